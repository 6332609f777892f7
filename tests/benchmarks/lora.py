"""`make bench-lora`: adapters (LoRA) beside training all weights, by fine-tuning and by GRPO.

Reads the finished run of configs/lora.yaml, in which both see the same questions in the same steps. Then
checks both trainings of adapters: the adapter merged into its parent beside the same adapter as PEFT loads
it, and a short training that is killed and started again beside an undisturbed one. Prints the table, writes
results/bench/lora.json, and with `--page` puts the table between the marks of a page (docs/measured.md).
"""

import argparse
import json
import signal
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import table
from table import ROOT, Row, publish

RUN = ROOT / "results/lora"
STAGES = {"SFT": ("sft/instruct", "sft/instruct-lora"), "GRPO": ("rl/grpo", "rl/grpo-lora")}
SHORT = {"sft": {"steps": 4, "batch": 2}, "rl": {"steps": 3, "questions_per_step": 2, "save_every": 1}}
PEER = "training of all weights"
SHARED = "adapter as PEFT loads it"
UNDISTURBED = "undisturbed training"


def read(result: str, file: str) -> dict[str, Any]:
    """Read a JSON file of a result of the run."""
    return json.loads((RUN / result / file).read_text())


def read_lines(result: str, file: str) -> list[dict[str, Any]]:
    """Read a file of JSON lines of a result of the run."""
    return [json.loads(line) for line in (RUN / result / file).read_text().splitlines()]


def row_of(what: str, unit: str, ours: float, peer: float | None, name: str = PEER, data: str = "") -> Row:
    """Make a row of the table without a ratio: accuracies and gaps are no rates."""
    return table.row_of(what, unit, ours, peer, name, data)


def score_rows() -> list[Row]:
    """Compare accuracies after each stage, with their intervals and that of the difference by question."""
    from pipeline.intervals import paired_difference

    rows = []
    for name, sides in {"no training": ("sft/published",) * 2, **STAGES}.items():
        found, rights = [], []
        for side in sides:
            result = f"evaluate/{side.partition('/')[2]}"
            ((mode, score),) = read(result, "data/scores.json")["svamp"].items()
            found.append(score)
            lines = read_lines(result, f"data/svamp.{mode}.jsonl")
            rights.append([line["greedy"]["verdict"] == "right" for line in lines])
        row = row_of(f"SVAMP after {name}", "%", *(100 * score["accuracy"] for score in reversed(found)))
        bounds = {"peer": found[0]["ci95"], "ours": found[1]["ci95"]}
        if name in STAGES:
            bounds["difference"] = paired_difference(*rights)["ci95"]
        row["intervals"] = {side: [100 * bound for bound in pair] for side, pair in bounds.items()}
        rows.append(row | {"data": f"{found[0]['n']} questions, greedy"})
    return rows


def cost_rows() -> list[Row]:
    """Compare the memory of each training, and how far GRPO's sampler is from its policy."""
    rows = []
    for name, sides in STAGES.items():
        memory = [read(side, "run.json")["peak_rss_mb"] / 1e3 for side in sides]
        rows.append(row_of(f"peak memory of {name}", "GB", memory[1], memory[0]))
    gaps = [[row["logprob_gap_mean"] for row in read_lines(side, "data/metrics.jsonl")] for side in sides]
    rows.append(row_of("GRPO: mean gap of sampler and policy", "nats", fmean(gaps[1]), fmean(gaps[0])))
    return rows


def merging_row(name: str, result: str) -> Row:
    """Compare log-probabilities by weights merged in fp32 with those by the adapter as PEFT loads it.

    Both are computed in fp64: in fp32 one model alone is 1e-5 nats from its own log-probabilities. Raises
    AssertionError if the published weights are not the merged ones, rounded to their type.
    """
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file

    from pipeline.training.lora import merged, own_parameters
    from pipeline.training.model import load_model
    from pipeline.training.tokenizer import load_tokenizer

    data, (parent,) = RUN / result / "data", read(result, "run.json")["inputs"]["parent"]
    precision = read(result, "manifest.json")["config"]["precision"]  # in which the parent was trained on
    whole, base = (load_model(parent, precision).float() for _ in range(2))
    adapted = PeftModel.from_pretrained(base, data / "adapter").base_model.model
    stored = load_file(data / "model.safetensors")
    weights = dict(whole.named_parameters())
    with torch.no_grad():
        for key, weight, layer in own_parameters(adapted):
            weights[key].copy_(merged(weight, layer) if layer else weight)
            assert torch.equal(stored[key], weights[key].to(stored[key].dtype)), key
    tokenizer, largest = load_tokenizer(parent), 0.0
    models = whole.double(), adapted.double()
    answers = read_lines(f"evaluate/{result.partition('/')[2]}", "data/svamp.chat_cot.jsonl")[:20]
    for answer in answers:
        ids = tokenizer(answer["question"] + answer["greedy"]["text"], return_tensors="pt").input_ids
        with torch.no_grad():
            logprobs = [model(ids, use_cache=False).logits.log_softmax(-1) for model in models]
        targets = ids[:, 1:, None]
        gap = (logprobs[0] - logprobs[1])[:, :-1].gather(-1, targets).abs().max().item()
        largest = max(largest, gap)
    what = f"{name}: largest gap of merged weights"
    return row_of(what, "nats", largest, None, SHARED, f"{len(answers)} answers, fp64")


def resuming_row(name: str, result: str) -> Row:
    """Kill a short training after its first checkpoint and start it again; the share of equal files."""
    from programs import start

    manifest, note, stage = read(result, "manifest.json"), read(result, "run.json"), result.partition("/")[0]
    section = manifest["config"] | SHORT[stage]
    inputs = {role: Path(path) for role, (path,) in note["inputs"].items()}
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = (Path(folder, which) for which in ("whole", "killed"))
        for place, times in ((whole, 1), (killed, 2)):
            for attempt in range(times):
                process = start(stage, place, section, note["launch"] | {"save_minutes": 0}, inputs)
                if attempt + 1 < times:
                    while process.poll() is None and not list(place.glob("work/checkpoints/step-*")):
                        time.sleep(0.05)
                    process.send_signal(signal.SIGKILL)
                _, errors = process.communicate(1200)
                assert process.returncode == (0 if attempt + 1 == times else -signal.SIGKILL), errors[-2000:]
        made = json.loads((killed / "run.json").read_text())["counters"]["deepspeed.steps"]
        assert made < section["steps"], "it did not go on from a checkpoint"
        files = [path.relative_to(whole) for path in (whole / "data").rglob("*.safetensors")]
        same = fmean((whole / file).read_bytes() == (killed / file).read_bytes() for file in files)
    data = f"{len(files)} files of weights, {section['steps']} steps"
    return row_of(f"{name}: files equal after SIGKILL", "%", 100 * same, None, UNDISTURBED, data)


def as_markdown(rows: list[Row]) -> str:
    """Write the rows as a table of a page."""
    lines = ["| | all weights | adapters |", "|---|---:|---:|"]
    for row in rows:
        what = f"{row['what']}, {row['unit']}" + (f" ({row['data']})" if row["data"] else "")
        cells = []
        for side in ("peer", "ours"):
            if bounds := row.get("intervals", {}).get(side):
                cells.append(f"{row[side]:.1f} [{bounds[0]:.1f}, {bounds[1]:.1f}]")
            else:
                cells.append("" if row[side] is None else f"{row[side]:.3g}")
        lines.append(f"| {what} | {' | '.join(cells)} |")
        if "difference" in row.get("intervals", {}):
            low, high = row["intervals"]["difference"]
            change = f"{row['ours'] - row['peer']:+.1f} [{low:+.1f}, {high:+.1f}]"
            lines.append(f"| the same: difference by question, points | | {change} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", type=Path, help="page to put the table into")
    arguments = parser.parse_args()
    rows = score_rows() + cost_rows()
    for check in (merging_row, resuming_row):
        for name, (_, adapted) in STAGES.items():
            rows.append(check(name, adapted))
            print(rows[-1], flush=True)
    publish("lora", rows, "1 thread")
    if arguments.page:
        from pipeline.report.scores import write_table

        write_table(arguments.page, as_markdown(rows))


if __name__ == "__main__":
    main()
