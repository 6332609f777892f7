"""Training is exact: packing leaks nothing, batches may be cut anywhere, a kill changes nothing."""

import json
import shutil
import signal
import threading
import time
from pathlib import Path
from subprocess import Popen
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from given.lines import read_lines
from peft import PeftModel
from programs import finished, start
from safetensors.torch import load_file
from tiny_model import save_tiny_model, save_tiny_tokens
from warm import Program

from pipeline.config.sft import SftSection
from pipeline.core import watchdog
from pipeline.core.manifest import fingerprint
from pipeline.core.stage import InputError, Stage
from pipeline.training import checkpoint, linear_loss
from pipeline.training.engine import build_engine, constant, multi_step, settings_from
from pipeline.training.flops import ModelFlops
from pipeline.training.model import IGNORE, TokenLogprobs, load_model
from pipeline.training.next_token import Steps, TrainingPlan
from pipeline.training.next_token import train as train_rows
from pipeline.training.packing import PackedRow, make_row

ROOT = Path(__file__).resolve().parents[1]
CONTEXT = 48
STEPS = 18
MODEL_STATES = "mp_rank_00_model_states.pt"
KEPT = 3 * 4 * CONTEXT + 1  # tokens: after the fourth step
OPTIMISER = {"precision": "fp32", "learning_rate": 0.003, "context": CONTEXT}
SECTIONS = {
    "cpt": OPTIMISER
    | {"tokens": STEPS * 4 * CONTEXT, "batch_tokens": 4 * CONTEXT, "warmup_steps": 2, "keep_at": [KEPT]},
    "sft": OPTIMISER | {"steps": STEPS, "batch": 4, "suffix": {}},
}
SECTIONS["lora"] = SECTIONS["sft"] | {"learning_rate": 0.01, "lora": {"rank": 4, "alpha": 8.0}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A tiny model, token files of two sources, and sft examples."""
    folder = tmp_path_factory.mktemp("training")
    save_tiny_model(folder / "model", seed=1, spread=0.05)
    save_tiny_tokens(folder / "tokens", folder / "model")
    with (folder / "sft.jsonl").open("w") as file:
        for n in range(60):
            turns = [("user", f"{n} + 1"), ("assistant", f"It is {n + 1}")]
            messages = [{"role": role, "content": content} for role, content in turns]
            file.write(json.dumps({"messages": messages, "format": "cot"}) + "\n")
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder / "model").double()


def train(folder: Path, stage: str, name: str, launch: dict | None = None, **keys: object) -> Popen:
    """Start a training program in `<folder>/<stage>-<name>`."""
    data = {"tokens": folder / "tokens"} if stage == "cpt" else {"data": folder / "sft.jsonl"}
    inputs = data | {"init": folder / "model"}
    return start(
        "cpt" if stage == "cpt" else "sft", folder / f"{stage}-{name}", SECTIONS[stage] | keys, launch, inputs
    )


def metrics(folder: Path, run: str) -> list[dict]:
    return read_lines(folder / run / "data/metrics.jsonl")


def kill_in_the_middle(process: Popen | Program, output: Path) -> None:
    """Kill a run after some steps, when it has written a part of a checkpoint."""
    log, checkpoints = output / "work/metrics.jsonl", output / "work/checkpoints"
    while process.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < 8):
        time.sleep(0.002)
    while process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        while "(stopped)" not in Path(f"/proc/{process.pid}/status").read_text():
            time.sleep(0.001)
        if list(checkpoints.glob("partial-*/state/*.pt")):
            break
        process.send_signal(signal.SIGCONT)
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL and not (output / "manifest.json").exists()


def check_adapter(parent: Path, run: Path) -> None:
    """The published model is its parent with the adapter beside it, as PEFT loads that; checkpoints hold the
    adapter and its optimiser alone.
    """
    merged, adapted = load_model(run / "data"), load_model(parent)
    adapted = PeftModel.from_pretrained(adapted, run / "data/adapter")
    tokens_BT = torch.arange(4, 64).view(3, 20)
    logits = [model(tokens_BT, use_cache=False).logits for model in (merged, adapted, load_model(parent))]
    torch.testing.assert_close(logits[0], logits[1], rtol=0, atol=1e-5)
    assert (logits[0] - logits[2]).abs().max() > 0.1
    before, after = (load_file(path / "model.safetensors") for path in (parent, run / "data"))
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.endswith("_proj.weight")}
    state = torch.load(max((run / "work/checkpoints").glob("step-*")) / checkpoint.TAG / MODEL_STATES)
    assert len(state["module"]) == 2 * len(changed) and all("lora" in name for name in state["module"])


@pytest.mark.parametrize("stage", ["cpt", "sft", "lora"])
def test_a_killed_run_resumes_from_its_newest_checkpoint_and_ends_with_the_same_weights(folder, stage):
    undisturbed = train(folder, stage, "whole")
    kill_in_the_middle(train(folder, stage, "killed"), folder / f"{stage}-killed")
    finished(undisturbed)
    saved = folder / f"{stage}-killed" / "work" / "checkpoints"
    steps = [checkpoint.step_of(path) for path in saved.glob("step-*")]
    (begun,) = saved.glob("partial-*")  # a name that no folder had: NFS would for a minute mean that one
    assert int(begun.name.removeprefix("partial-")) > max(steps)
    finished(train(folder, stage, "killed"))
    counters = json.loads((folder / f"{stage}-killed/run.json").read_text())["counters"]
    assert len(steps) > 1 and counters["deepspeed.steps"] == STEPS - max(steps)
    assert "sft.tokenised" not in counters  # only in the run that was killed
    whole, killed = (folder / f"{stage}-{name}/data/model.safetensors" for name in ("whole", "killed"))
    assert whole.read_bytes() == killed.read_bytes()
    if stage == "cpt":  # what was kept on the way is there after a kill, and no other model
        early, again = (path.parent / f"kept/{KEPT}/model.safetensors" for path in (whole, killed))
        assert early.read_bytes() == again.read_bytes() != whole.read_bytes()
        assert load_model(early.parent).num_parameters() == load_model(whole.parent).num_parameters()
    if stage == "lora":
        check_adapter(folder / "model", folder / "lora-whole")
    lines = [[line["loss"] for line in metrics(folder, f"{stage}-{name}")] for name in ("whole", "killed")]
    assert lines[0] == lines[1] and len(lines[0]) == STEPS and lines[0][-1] < lines[0][0]


def test_the_newest_checkpoint_is_the_one_after_most_steps(tmp_path):
    alone = SimpleNamespace(global_rank=0, world_size=1)
    assert checkpoint.newest(alone, tmp_path) is None
    for name in ("step-0000010", "step-0000009", "partial-0000012", ".step-0000011.old"):
        (tmp_path / name).mkdir()
        note = {"files": {}}
        (tmp_path / name / "checkpoint.json").write_text(json.dumps(note | {"digest": fingerprint(note)}))
    assert checkpoint.newest(alone, tmp_path) == tmp_path / "step-0000010"
    assert checkpoint.step_of(tmp_path / "step-0000010") == 10


def test_changed_inputs_discard_the_checkpoints(folder, tmp_path):
    for name in ("model", "sft.jsonl"):
        (shutil.copytree if (folder / name).is_dir() else shutil.copy)(folder / name, tmp_path / name)
    kill_in_the_middle(train(tmp_path, "sft", "killed"), tmp_path / "sft-killed")
    save_tiny_model(tmp_path / "model", seed=2, spread=0.05)  # the same fingerprint, other weights
    finished(train(tmp_path, "sft", "killed"))
    counters = json.loads((tmp_path / "sft-killed/run.json").read_text())["counters"]
    assert counters["deepspeed.steps"] == STEPS
    finished(train(tmp_path, "sft", "whole"))
    whole, killed = (tmp_path / f"sft-{name}/data/model.safetensors" for name in ("whole", "killed"))
    assert whole.read_bytes() == killed.read_bytes()


def test_a_norm_beyond_all_numbers_is_told_and_ends_training_with_the_name_of_the_weight(folder, tmp_path):
    """The loss is finite: the last norm multiplies by 1e30 what the output layer multiplies by almost 0."""
    shutil.copy(folder / "sft.jsonl", tmp_path)
    model = load_model(save_tiny_model(tmp_path / "model", seed=1, tied=False))
    model.model.norm.weight.data.fill_(1e30)
    model.lm_head.weight.data.mul_(1e-31)
    model.save_pretrained(tmp_path / "model")
    process = train(tmp_path, "sft", "broken")
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 2
    rows = read_lines(tmp_path / "sft-broken" / "work" / "metrics.jsonl")
    assert [(row["step"], row["grad_norm"]) for row in rows] == [(1, None), (2, None)]
    told = [line for line in errors.splitlines() if line.startswith("update ")]
    assert told[0] == "update 1: the gradient is not finite; the weights stay as they are" and len(told) == 3
    last = "error: 3 updates in a row skipped: the gradient of lm_head.weight reaches "
    assert errors.splitlines()[-1].startswith(last)


def test_packed_examples_give_the_logprobs_and_gradients_of_single_ones(model):
    generator = np.random.default_rng(0)
    examples = [(generator.integers(4, 60, n), np.arange(n) >= 2) for n in (7, 1, 12, 5)]
    scored = TokenLogprobs(model)

    def run(groups: list[list], length: int) -> tuple[list[float], torch.Tensor]:
        rows = [make_row(group, length, pad=0) for group in groups]
        parts = (np.stack([getattr(row, n) for row in rows]) for n in ("tokens", "positions", "targets"))
        tokens_BT, positions_BT, targets_BT = map(torch.from_numpy, parts)
        logprobs_BT = scored(tokens_BT, positions_BT, targets_BT)
        model.zero_grad()
        logprobs_BT.sum().backward()
        gradient = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        return logprobs_BT[targets_BT != IGNORE].tolist(), gradient

    packed, single = run([examples], 30), run([[example] for example in examples], 12)
    assert len(packed[0]) == sum(len(ids) - 2 for ids, _ in examples if len(ids) > 1)
    np.testing.assert_allclose(packed[0], single[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(packed[1], single[1], rtol=0, atol=1e-5)


class Alone:
    """One rank's engine around a model, without an optimiser."""

    device, global_rank, world_size = torch.device("cpu"), 0, 1

    def __init__(self, model: torch.nn.Module) -> None:
        self.module = TokenLogprobs(model)

    def __call__(self, *inputs: torch.Tensor, **more: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.module(*inputs, **more)


@pytest.mark.parametrize("micro_batch", [1, 3])
def test_the_loss_is_the_mean_over_tokens_or_as_in_equation_6_over_examples(model, micro_batch):
    generator = np.random.default_rng(1)
    examples = [(generator.integers(4, 60, n), np.arange(n) >= 2) for n in (7, 1, 14, 5, 9, 4)]
    rows = [make_row(group, 30, pad=0) for group in (examples[:4], examples[4:], [])]
    engine = Alone(model)
    nll = []
    for ids, own in examples:
        row = make_row([(ids, own)], 20, pad=0)
        parts = (torch.from_numpy(part)[None] for part in (row.tokens, row.positions, row.targets))
        tokens_BT, positions_BT, targets_BT = parts
        logprobs_BT = engine(tokens_BT, positions_BT, targets_BT)
        nll += [-logprobs_BT[targets_BT != IGNORE]] if (targets_BT != IGNORE).any() else []
    for by_example, expected in (
        (False, torch.cat(nll).mean()),
        (True, torch.stack([values.mean() for values in nll]).mean()),
    ):
        plan = TrainingPlan(rows.__getitem__, 1, 3, constant(1e-3), ["x"], by_example)
        step = Steps(engine, plan, micro_batch, ModelFlops.of(model), 1.0).make(0)
        loss = sum(step.loss_of(batch).item() for batch in step.micro_batches)
        assert loss == pytest.approx(expected.item(), abs=1e-5)


def test_the_rows_of_the_next_step_are_made_by_a_thread_while_this_one_trains(folder, tmp_path):
    steps, batch, made = 4, 3, []
    ready = [threading.Event() for _ in range(steps)]

    def row(n: int) -> PackedRow:
        assert threading.current_thread() is not threading.main_thread()
        made.append(n)
        if n % batch == batch - 1:
            ready[n // batch].set()
        return make_row([(np.arange(4, 20), np.ones(16, bool))], 24, 0)

    def after(done: int) -> None:
        """The rows of the next step come although nobody has asked for it."""
        assert done == steps or ready[done].wait(timeout=60)
        assert made == list(range(min(steps, done + 1) * batch))

    stage = Stage("sft", "ahead", SftSection(**SECTIONS["sft"]), "f", {}, tmp_path, tmp_path, tmp_path, {})
    stage.partial.mkdir()
    engine = build_engine(TokenLogprobs(load_model(folder / "model")), settings_from(stage.config, {}))
    train_rows(stage, engine, TrainingPlan(row, steps, batch, constant(1e-3), ["x"]), after)
    lines = read_lines(stage.partial / "metrics.jsonl")
    assert all(0 < line["data_seconds"] < line["seconds"] for line in lines)


def test_what_is_wrong_with_a_row_ends_training_with_its_message(folder, tmp_path):
    def row(n: int) -> PackedRow:
        raise InputError(f"row {n} cannot be read")

    stage = Stage("sft", "bad", SftSection(**SECTIONS["sft"]), "f", {}, tmp_path, tmp_path, tmp_path, {})
    stage.partial.mkdir()
    engine = build_engine(TokenLogprobs(load_model(folder / "model")), settings_from(stage.config, {}))
    with pytest.raises(InputError, match="row 0 cannot be read"):
        train_rows(stage, engine, TrainingPlan(row, 2, 2, constant(1e-3), ["x"]))


def test_chunks_of_logits_give_the_logprobs_and_gradients_of_all_at_once(model, monkeypatch):
    tokens_BT = torch.arange(4, 64).view(3, 20)
    positions_BT, targets_BT = torch.arange(20).expand(3, 20), tokens_BT.flip(1).clone()
    targets_BT[1, 3:] = IGNORE

    def run() -> list[torch.Tensor]:
        model.zero_grad()
        found = TokenLogprobs(model)(tokens_BT, positions_BT, targets_BT)
        found.sum().backward()
        return [found, *(parameter.grad.clone() for parameter in model.parameters())]

    whole = run()
    monkeypatch.setitem(linear_loss.CHUNK_ELEMENTS, "cpu", 7 * model.config.vocab_size)
    torch.testing.assert_close(run(), whole, rtol=0, atol=1e-5)
    model.set_attn_implementation("eager")  # transformers' own
    logits = model(input_ids=tokens_BT, position_ids=positions_BT, use_cache=False).logits
    expected = logits.log_softmax(-1).gather(-1, targets_BT.clamp(min=0)[..., None]).squeeze(-1)
    wanted = targets_BT != IGNORE
    torch.testing.assert_close(whole[0][wanted], expected[wanted].float())
    assert (whole[0][~wanted] == 0).all()


def test_the_schedules_are_those_of_the_paper():
    rate = multi_step(5.3e-4, steps=37_500, warmup_steps=2000, drops=[(0.8, 0.316), (0.9, 0.1)])
    at = [0, 999, 1999, 2000, 29_999, 30_000, 33_749, 33_750, 37_499]
    expected = [
        5.3e-4 / 2001,
        5.3e-4 * 1000 / 2001,
        5.3e-4 * 2000 / 2001,
        5.3e-4,
        5.3e-4,
        1.6748e-4,
        1.6748e-4,
        5.3e-5,
        5.3e-5,
    ]
    assert [rate(step) for step in at] == pytest.approx(expected)
    assert [constant(5e-5)(step) for step in (0, 499)] == [5e-5, 5e-5]
    assert [constant(1.0, 3)(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    warm = multi_step(1.0, steps=100, warmup_steps=3, drops=[])
    assert [warm(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_what_another_process_writes_counts_as_progress_and_nothing_else_does(tmp_path, monkeypatch):
    beats = []
    monkeypatch.setattr(watchdog, "beat", lambda: beats.append(True))
    growth = watchdog.Growth(tmp_path / "one", tmp_path / "two")
    growth.look()
    (tmp_path / "two/deep").mkdir(parents=True)
    (tmp_path / "two/deep/file").write_text("x")
    growth.look()
    at = len(beats)
    for _ in range(3):
        growth.look()
    assert len(beats) == at == 1


def test_two_ranks_train_on_the_examples_that_rank_0_tokenised(folder):
    for name, launch in (("one", {}), ("two", {"ranks": 2})):
        finished(train(folder, "sft", name, launch, steps=3))
        counters = json.loads((folder / f"sft-{name}/run.json").read_text())["counters"]
        assert counters["sft.tokenised"] == 60
    lines = [[line["loss"] for line in metrics(folder, f"sft-{name}")] for name in ("one", "two")]
    assert lines[0] == pytest.approx(lines[1], rel=1e-5)
