"""Look at a Slurm cluster, and write a profile for it: `python -m pipeline.cli.cluster --output my/cluster`.

It asks Slurm for partitions, GPUs and memory of their nodes, time limits and accounting, changes
`profiles/slurm` accordingly, and lets two nodes greet each other for a minute (`--no-probe` leaves that out).
"""

import argparse
import getpass
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from pipeline.core.errors import InputError
from pipeline.core.manifest import ROOT

TEMPLATE = ROOT / "profiles/slurm/profile.yaml"
KEPT = 0.95  # share of a node's memory that a job may ask for
TRIES = 4  # of a job: one, and the profile's retries
PROBE = "srun --ntasks-per-node=1 printenv SLURMD_NODENAME"
PROBE_SECONDS = 300  # in which two nodes have to become free


@dataclass(frozen=True)
class Partition:
    """A partition: its time limit in minutes (0: none), nodes; cores, MB and GPUs of its smallest node."""

    name: str
    default: bool
    minutes: int
    nodes: int
    cores: int
    memory: int
    gpus: int


def ask(*command: str) -> str | None:
    """Return what a command of Slurm's prints; None if it fails or is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def minutes_of(limit: str) -> int:
    """Minutes of a time limit such as `2-00:00:00`; 0 for none."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", limit)
    if not found:
        return 0
    days, hours, minutes, _ = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + minutes


def partitions(said: str) -> list[Partition]:
    """Return the partitions that `sinfo --format=%P|%l|%D|%c|%m|%G` prints, a line for each kind of node."""
    kinds: dict[str, list[Partition]] = {}
    for line in said.splitlines():
        name, limit, nodes, cores, memory, gres = line.strip().split("|")
        counts = re.findall(r"gpu(?::[^:,()]+)?:(\d+)", gres)
        sizes = [int(re.sub(r"\D", "", text) or 0) for text in (nodes, cores, memory)]
        kind = Partition(name.rstrip("*"), "*" in name, minutes_of(limit), *sizes, sum(map(int, counts)))
        kinds.setdefault(kind.name, []).append(kind)
    return [
        Partition(
            name,
            rows[0].default,
            rows[0].minutes,
            sum(row.nodes for row in rows),
            *(min(getattr(row, field) for row in rows) for field in ("cores", "memory", "gpus")),
        )
        for name, rows in kinds.items()
    ]


def chosen(found: list[Partition]) -> tuple[Partition, Partition | None]:
    """Return the partitions for programs without GPUs and with them: the default one, else the largest."""
    without = [one for one in found if not one.gpus] or found
    with_gpus = [one for one in found if one.gpus]
    return (
        max(without, key=lambda one: (one.default, one.nodes)),
        max(with_gpus, key=lambda one: (one.gpus, one.default, one.nodes), default=None),
    )


def profile(cpu: Partition, gpu: Partition | None, accounting: bool) -> str:
    """Return the shipped profile with a site's partitions, GPUs, memory and time limits."""
    gpu = gpu or cpu
    data, separator, ranked = TEMPLATE.read_text().partition("  # (2) GPUs")
    data = data.replace('slurm_partition: "main"', f'slurm_partition: "{cpu.name}"', 1)
    ranked = ranked.replace('slurm_partition: "main"', f'slurm_partition: "{gpu.name}"', 1)
    if gpu.gpus:
        ranked = ranked.replace("gpu: 8\n", f"gpu: {gpu.gpus}\n", 1)
        ranked = ranked.replace("--gpus-per-node=8", f"--gpus-per-node={gpu.gpus}", 1)
    ranked = ranked.replace("mem_mb: 500000", f"mem_mb: {min(500000, int(gpu.memory * KEPT))}", 1)
    parts = [_fitted(_limited(data, cpu.minutes), cpu), separator, _limited(ranked, gpu.minutes)]
    return "".join(parts) + ("" if accounting else "slurm-status-command: squeue\n")


def _limited(text: str, minutes: int) -> str:
    def least(match: re.Match[str]) -> str:
        return f"runtime: {min(int(match[1]), minutes or int(match[1]))}"

    return re.sub(r"runtime: (\d+)", least, text)


def _fitted(text: str, cpu: Partition) -> str:
    """Cap the cores of programs, and the memory of each of their tries, by what the smallest node has."""
    most = int(cpu.memory * KEPT)

    def cores(match: re.Match[str]) -> str:
        return f"{match[1]}{min(int(match[2]), cpu.cores)}"

    def memory(match: re.Match[str]) -> str:
        return match[0] if TRIES * int(match[1]) <= most else f'"min({match[0]}, {most})"'

    text = re.sub(r"^(  [a-z]+_[a-z]+: )(\d+)$", cores, text, flags=re.MULTILINE)
    return re.sub(r"(?<=mem_mb: )(\d+) \* attempt", memory, text)


def probe(partition: Partition) -> str:
    """Return what two nodes of a partition answer. Raises InputError."""
    words = ["sbatch", "--wait", "--parsable", f"--partition={partition.name}", "--nodes=2", "--time=1"]
    words += ["--ntasks-per-node=1", "--output=cluster-probe-%j.log", f"--wrap={PROBE}"]
    done = subprocess.run(["timeout", str(PROBE_SECONDS), *words], capture_output=True, text=True)
    job = done.stdout.strip().partition(";")[0]
    log = Path(f"cluster-probe-{job}.log")
    said = log.read_text().split() if job and log.is_file() else []
    log.unlink(missing_ok=True)
    if done.returncode or len(said) != 2:
        if job:
            ask("scancel", job)
        why = done.stderr.strip() or f"not within {PROBE_SECONDS} seconds, or {len(said)} answers"
        raise InputError(f"partition {partition.name}: two nodes did not run a job: {why}")
    return f"two nodes of {partition.name} ran a job of one minute: {', '.join(said)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="folder for profile.yaml, for --profile")
    parser.add_argument("--no-probe", action="store_true", help="run no job")
    arguments = parser.parse_args()
    said = ask("sinfo", "--noheader", "--format=%P|%l|%D|%c|%m|%G")
    try:
        if not said:
            raise InputError("sinfo: no answer; run this where jobs are submitted")
        cpu, gpu = chosen(partitions(said))
        accounting = ask("sacct", "--allocations", "--noheader") is not None
        user = ("list", "user", getpass.getuser(), "format=DefaultAccount")
        accounts = ask("sacctmgr", "--noheader", "--parsable2", *user)
        for use, one in (("without GPUs", cpu), ("with GPUs", gpu)):
            print(f"programs {use}: {one or 'no partition with GPUs'}")
        print(f"sacct: {'answers' if accounting else 'does not answer; states come from squeue'}")
        print(f"default account: {(accounts or '').strip() or 'none'}")
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "profile.yaml").write_text(profile(cpu, gpu, accounting))
        print(f"wrote {arguments.output}/profile.yaml: snakemake --profile {arguments.output} ...")
        if not arguments.no_probe:
            print(probe(gpu or cpu))
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
