"""The workflow with the shipped profile on a real Slurm of two nodes with eight pretended GPUs each.

Real programs train and sample at 2 nodes x 2 ranks (gloo). Run by `make test-cluster`.
"""

import os
import shutil
import signal
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from conftest import Checkout, copy_checkout
from safetensors.torch import load_file
from slurm_jobs import (
    PROFILE,
    Job,
    ask,
    cut_power,
    finish,
    job_of,
    jobs_of,
    notice,
    preempt,
    programs,
    ranks,
    requeue,
    send,
    stop_all,
    wait,
    workflow,
)

from workflow.crawl import files_name

pytestmark = pytest.mark.slurm
ONE, TWO = "{threads: 2, ranks: 1}", "{threads: 2, ranks: 2}"
BASE = "cpt/base"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Path:
    """The folder with the cluster's records and logs."""
    nodes = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%N"], capture_output=True, text=True
    ).stdout
    assert {"n1", "n2"} <= set(nodes.split()), "run by `make test-cluster`, which starts the nodes n1 and n2"
    return Path(os.environ["CLUSTER"])


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    stop_all()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The whole small workflow on the cluster, one rank for each model."""
    checkout = copy_checkout(tmp_path_factory.mktemp("cluster") / "one-rank")
    finish(checkout, workflow(checkout, "all", launch=ONE), 1800)
    return checkout


def given(cluster: Path) -> dict[str, set[tuple[int, int, str]]]:
    """What the tasks of each rule's jobs saw: number of nodes, cores of the job here, GPUs here. A step has
    no more cores than this machine really has.
    """
    lines = ask("squeue", "--states=all", "--array", "--noheader", "--format=%A|%k").splitlines()
    rules = dict(line.split("|") for line in lines)
    found = defaultdict(set)
    records = [
        dict(line.split("=", 1) for line in record.read_text().splitlines())
        for record in (cluster / "records").iterdir()
    ]
    cores: Counter[str] = Counter()
    for seen in records:
        job = seen["SLURM_JOB_ID"]
        cores[job] = max(cores[job], int(seen["SLURM_CPUS_ON_NODE"]))
    for seen in records:
        rule = rules.get(seen["SLURM_JOB_ID"], "").removeprefix("rule_").partition("_wildcards")[0]
        gpus = seen.get("CUDA_VISIBLE_DEVICES", "")
        found[rule].add((int(seen["SLURM_NNODES"]), cores[seen["SLURM_JOB_ID"]], gpus))
    return found


def test_each_rule_runs_on_the_nodes_cores_and_gpus_of_the_profile(finished: Checkout, cluster: Path) -> None:
    eight = ",".join(map(str, range(8)))
    models = ("cpt_model", "sft_model", "reward_model", "rl_model", "evaluate_model")
    expected = {rule: {(1, 2, eight)} for rule in models}
    expected |= {rule: {(1, 1, "")} for rule in ("miniweb_web", "crawl_extract", "report_page")}
    expected |= {
        "crawl_survivors": {(1, 1, "")},
        "tokens_mixture": {(1, 32, "")},
        "corpus_score": {(1, 4, "")},
    }
    expected["corpus_select"] = {(1, 32, "")}
    seen = given(cluster)
    assert {rule: seen[rule] for rule in expected} == expected


def test_extraction_and_signatures_are_arrays_whose_tasks_make_each_their_own(finished: Checkout) -> None:
    """And their states come from the accounting, in which a task has another number than in the array."""
    lines = ask(
        "sacct",
        "--starttime=now-1days",  # without it, since midnight
        "--allocations",
        "--noheader",
        "--parsable2",
        "--format=JobID,State,Comment",
    ).splitlines()
    for rule in ("crawl_extract", "crawl_sign"):
        states = dict(line.split("|")[:2] for line in lines if f"|rule_{rule}_" in line)
        (array,) = {number.partition("_")[0] for number in states}
        assert states == {f"{array}_1": "COMPLETED", f"{array}_2": "COMPLETED"}


def test_bad_input_is_not_tried_again_and_a_killed_program_is_with_more_memory(
    finished: Checkout, tmp_path: Path
) -> None:
    checkout = copy_checkout(tmp_path / "tries")
    (checkout.folder / "bad.warc.gz").write_bytes(b"no WARC file")
    before = len(jobs_of("crawl_extract"))
    bad = workflow(checkout, "crawl", launch=ONE, retries=3, more="crawl: {warc: [bad.warc.gz]}")
    assert bad.wait(timeout=300) != 0
    assert len(jobs_of("crawl_extract")) == before + 1
    (warc,) = finished.result("miniweb/data/warc").glob("*-00000.warc.gz")
    shutil.copy(warc, checkout.folder / "good.warc.gz")
    good = workflow(
        checkout,
        f"crawl/extract-{files_name(['good.warc.gz'])}",
        launch=ONE,
        retries=1,
        more="crawl: {warc: [good.warc.gz]}",
    )
    os.kill(wait("the program", lambda: list(programs("pipeline.crawl.extract")))[0], signal.SIGKILL)
    finish(checkout, good)
    first, second = jobs_of("crawl_extract")[-2:]
    assert [first.field("MinMemoryNode"), second.field("MinMemoryNode")] == ["4000M", "8000M"]


def again(finished: Checkout, folder: Path, *names: str, nodes: int = 2) -> Checkout:
    """A copy of the finished run in which some instances are still to be made, models on two nodes."""
    shutil.copytree(finished.folder, folder, symlinks=True)
    for name in names:
        shutil.rmtree(folder / "results/small/store" / name)
    profile = folder / PROFILE
    text = profile.read_text()
    profile.write_text(text.replace("gpu: 8\n    nodes: 1", f"gpu: {8 * nodes}\n    nodes: {nodes}"))
    return Checkout(folder)


def log_of(checkout: Checkout, name: str) -> str:
    """What the programs of an instance said."""
    (log,) = (checkout.folder / "results/small/logs").glob(f"{name}-*.log")
    return log.read_text()


def weights(checkout: Checkout, name: str) -> dict[str, torch.Tensor]:
    return load_file(checkout.result(f"{name}/data/model.safetensors"))


def same_bits(checkout: Checkout, other: Checkout, name: str = "cpt/base") -> bool:
    one, two = weights(checkout, name), weights(other, name)
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def distance(checkout: Checkout, other: Checkout, name: str, start: str | None = None) -> float:
    """The length of the difference of two models' weights, as a share of what training has changed since
    `start`, or of the weights.
    """

    def trunk(of: Checkout, name: str) -> dict[str, torch.Tensor]:  # a reward model has no more of its parent
        return {key.removeprefix("model."): value.double() for key, value in weights(of, name).items()}

    one, two, before = trunk(checkout, name), trunk(other, name), trunk(other, start) if start else {}
    apart = sum((one[key] - two[key]).square().sum() for key in two)
    change = sum((two[key] - before[key] if start else two[key]).square().sum() for key in two)
    return (apart / change).sqrt().item()


@pytest.fixture(scope="module")
def pretrained(finished: Checkout, tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """The base model trained at 2 nodes x 2 ranks, undisturbed."""
    checkout = again(finished, tmp_path_factory.mktemp("cluster") / "two", "cpt/base")
    finish(checkout, workflow(checkout, BASE, launch=TWO))
    return checkout


def test_pretraining_on_two_nodes_gives_the_weights_of_one_rank_to_rounding(
    pretrained: Checkout, finished: Checkout, cluster: Path
) -> None:
    assert (2, 4, "0,1,2,3,4,5,6,7") in given(cluster)["cpt_model"]
    assert distance(pretrained, finished, "cpt/base") < 1e-3


def frozen_after_a_checkpoint(checkout: Checkout, number: int = 4) -> tuple[Job, dict[int, int]]:
    """The job that trains the base model and its ranks, stopped when one more checkpoint is there."""
    job = job_of("cpt_model")
    folder = checkout.folder / "work/cpt/base"

    def steps() -> int:
        return max(
            (int(path.name.rpartition("-")[2]) for path in folder.glob("*/checkpoints/step-*")), default=0
        )

    before = steps()
    processes = wait(
        "ranks of the program", lambda: (found := ranks("pipeline.cpt")) and len(found) == number and found
    )
    wait("a checkpoint", lambda: steps() > before)
    send(signal.SIGSTOP, processes)
    return job, processes


def test_a_killed_rank_ends_all_within_a_minute_and_the_rerun_gives_the_same_bits(
    pretrained: Checkout, finished: Checkout, tmp_path: Path
) -> None:
    """The ranks of the first node are stopped, as if they hung in a collective, and cannot notice."""
    checkout = again(finished, tmp_path / "killed", "cpt/base")
    process = workflow(checkout, BASE, launch=TWO)
    job, processes = frozen_after_a_checkpoint(checkout)
    os.kill(processes[3], signal.SIGKILL)
    send(signal.SIGCONT, {2: processes[2]})
    wait("the end of all ranks", lambda: not ranks("pipeline.cpt"), 60)
    assert process.wait(timeout=120) != 0
    assert "error: rank 3 of 4 on n2 was killed by SIGKILL" in log_of(checkout, "cpt/base")
    assert not checkout.result("cpt/base/manifest.json").exists()
    finish(checkout, workflow(checkout, BASE, launch=TWO))
    assert same_bits(checkout, pretrained)


def test_training_outlives_every_way_in_which_slurm_takes_a_job_away(
    pretrained: Checkout, finished: Checkout, tmp_path: Path
) -> None:
    """The time limit nears; requeue; preemption that requeues, and that cancels; each node dies. No retry."""
    checkout = again(finished, tmp_path / "taken", "cpt/base")
    process = workflow(checkout, BASE, launch=TWO)
    ways: list[Callable[[Job, dict[int, int]], None]] = [
        notice,
        requeue,
        preempt,
        preempt,
        cut_power,
        partial(cut_power, node="n2"),
    ]
    partitions = ["main", "main", "cancelled", "main", "main", "main"]  # where the job runs after each
    for restarts, (way, partition) in enumerate(zip(ways, partitions, strict=True), 1):
        job, processes = frozen_after_a_checkpoint(checkout)
        way(job, processes)
        job.resume(restarts, partition)
    finish(checkout, process)
    assert job.field("Restarts") == str(len(ways))
    assert same_bits(checkout, pretrained)


def test_a_job_that_hangs_until_its_time_limit_is_tried_again(
    pretrained: Checkout, finished: Checkout, tmp_path: Path
) -> None:
    """All ranks stop and get no notice. Slurm ends the job as TIMEOUT; the retry resumes."""
    checkout = again(finished, tmp_path / "hanging", "cpt/base")
    profile = checkout.folder / PROFILE
    profile.write_text(profile.read_text().replace(" --signal=USR1@600", ""))
    process = workflow(checkout, BASE, launch=TWO, retries=1)
    job, _ = frozen_after_a_checkpoint(checkout)
    ask("scontrol", "update", f"JobId={job.number}", "TimeLimit=1")
    wait("TIMEOUT", lambda: job.state == "TIMEOUT")
    finish(checkout, process)
    assert same_bits(checkout, pretrained)


def test_reward_grpo_and_evaluation_on_the_cluster_give_what_one_rank_gives(
    finished: Checkout, tmp_path: Path, cluster: Path
) -> None:
    """Labels, rollouts, training and evaluation at 2 nodes x 2 ranks."""
    names = ("reward/prm", "rl/grpo", "evaluate/instruct")
    checkout = again(finished, tmp_path / "others", *names)
    finish(checkout, workflow(checkout, *names, launch=TWO))
    seen = given(cluster)
    rules = ("reward_model", "rl_model", "evaluate_model")
    assert all((2, 4, "0,1,2,3,4,5,6,7") in seen[rule] for rule in rules)
    assert distance(checkout, finished, "reward/prm", "cpt/base") < 1e-2
    assert distance(checkout, finished, "rl/grpo", "sft/instruct") < 1e-2
    scores = [done.result("evaluate/instruct/data/scores.json").read_text() for done in (checkout, finished)]
    assert scores[0] == scores[1]


def test_a_restarted_workflow_waits_for_the_program_that_still_runs(
    finished: Checkout, tmp_path: Path
) -> None:
    """Its job has a node of its own and finds the program at work; that one's result is taken."""
    checkout = again(finished, tmp_path / "restarted", "cpt/base", nodes=1)
    first = workflow(checkout, BASE, launch=TWO)
    job, stopped = frozen_after_a_checkpoint(checkout, 2)
    first.kill()
    first.wait()
    shutil.rmtree(checkout.folder / ".snakemake/locks")
    second = workflow(checkout, BASE, launch=TWO)
    wait("the second job", lambda: "waiting for it" in log_of(checkout, "cpt/base"))
    assert jobs_of("cpt_model", "RUNNING")[0] == job
    send(signal.SIGCONT, stopped)
    finish(checkout, second)
    assert "cpt/base: made meanwhile" in log_of(checkout, "cpt/base")
    wait("the end of the first job", lambda: job.state == "COMPLETED")
