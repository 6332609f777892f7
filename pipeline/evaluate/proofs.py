"""Formal proofs (paper section 2.3, table 3): what a model wrote is checked by another program.

The checker is a command. It reads a JSON object a line from standard input: `id`, `statement` (the theorem to
be proved), `header` (that of its theory) and `proof`. It writes one line for each to standard output: `id`,
`proved` (true or false) and `reason`. It runs once for the proofs of each `evaluate.batch` statements, and
takes its time. Without a checker no proof is checked, and none counts as right.
"""

import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mathverdict.answers import Verdict

from pipeline.config.evaluate import EvaluateSection
from pipeline.core.ending import interrupted, received
from pipeline.core.launch.queue import Batch, Queue, make_together
from pipeline.core.stage import InputError
from pipeline.core.watchdog import waiting
from pipeline.evaluate.benchmarks import Item

NOT_CHECKED = "not checked"


def check_proofs(
    label: str,
    items: Sequence[Item],
    answers: Sequence[Sequence[str]],
    section: EvaluateSection,
    folder: Path,
) -> list[list[Verdict]]:
    """Give `proof_verdicts`, saved in `folder` for a batch of statements at a time. Raises its errors, and
    Interrupted after a signal: the next run goes on there.
    """
    checker, size = section.proof_checker, section.batch

    def batch(part: slice) -> Batch:
        def make() -> list[Any]:
            return [list(map(asdict, row)) for row in proof_verdicts(items[part], answers[part], checker)]

        decisive = [checker, list(map(asdict, items[part])), answers[part]]
        return Batch(folder, f"{part.start:06d}", lambda: decisive, make)

    batches = [batch(slice(start, start + size)) for start in range(0, len(items), size)]
    make_together(Queue(), label, batches)
    return [[Verdict(**verdict) for verdict in row] for each in batches for row in each.rows()]


def proof_verdicts(
    items: Sequence[Item], answers: Sequence[Sequence[str]], checker: str | None
) -> list[list[Verdict]]:
    """Verdicts on the texts written for each statement; equal proofs of a statement are checked once.

    Raises InputError if the checker fails, or does not answer for each proof.
    """
    proofs = {
        f"{number}/{place}": (item, text.strip())
        for number, (item, row) in enumerate(zip(items, answers, strict=True))
        for place, text in enumerate(row)
    }
    first = {}
    for key, (item, proof) in proofs.items():
        first.setdefault((item.id, proof), key)
    if checker is None:
        found = {key: {"proved": False, "reason": NOT_CHECKED} for key in first.values()}
    else:
        found = checked({key: proofs[key] for key in first.values() if proofs[key][1]}, checker)

    def verdict(item: Item, text: str) -> Verdict:
        proof = text.strip()
        if not proof:
            return Verdict("wrong", None, "no proof")
        row = found[first[item.id, proof]]
        if row["reason"] == NOT_CHECKED:
            return Verdict("undecided", proof, NOT_CHECKED)
        return Verdict("right" if row["proved"] is True else "wrong", proof, str(row["reason"]))

    return [[verdict(item, text) for text in row] for item, row in zip(items, answers, strict=True)]


def checked(proofs: dict[str, tuple[Item, str]], checker: str) -> dict[str, Any]:
    """Return what the checker says of each proof, by key. Raises InputError if it fails."""
    lines = [
        {"id": key, "statement": item.formal, "header": item.header, "proof": proof}
        for key, (item, proof) in proofs.items()
    ]
    given = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    try:
        with waiting():
            done = subprocess.run(
                shlex.split(checker), input=given, capture_output=True, text=True, check=False
            )
    except OSError as error:
        raise InputError(f"config key evaluate.proof_checker: {checker}: {error}") from error
    if done.returncode and received():  # Slurm sends it to the checker too
        raise interrupted(received(), "proofs so far")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"config key evaluate.proof_checker: it ended with code {done.returncode}: {last}")
    try:
        rows = {
            row["id"]: {"proved": row["proved"], "reason": row["reason"]}
            for row in map(json.loads, done.stdout.splitlines())
        }
        return {key: rows[key] for key in proofs}
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"config key evaluate.proof_checker: not what a checker writes ({error!r})"
        ) from error
