"""The forecast: hand-worked figures, formulas against real models, and clear errors."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT
from given.cases import cases
from given.plans import (
    DEMO,
    H100,
    ITERATIVE,
    LORA,
    LORA_7B,
    PAPER_1B,
    PAPER_7B,
    SINGLE,
    config_of,
    forecast_of,
)

from pipeline.cli.plan import power
from pipeline.cli.plan.__main__ import main
from pipeline.cli.plan.jobs import model_jobs
from pipeline.config.lora import Lora
from workflow.forecast import costs
from workflow.forecast.costs import Gpu, gpu_named
from workflow.forecast.forecast import Assumptions, Planner
from workflow.forecast.refusals import refusals
from workflow.forecast.shapes import shape_named

TABLES = cases("plan")
DEEPSEEK_7B = shape_named("deepseek-ai/deepseek-math-7b-base")


def test_training_hours_are_the_hand_worked_ones() -> None:
    """6 N T / (989e12 * 0.4 * 3600): 7B on 500B tokens 14.5k H100-hours, 1.3B on 150B about 0.8k."""
    seven, one = forecast_of(PAPER_7B, mfu=0.4), forecast_of(PAPER_1B, mfu=0.4)
    assert seven["base", "cpt"].flops == pytest.approx(2.07e22, rel=0.005)
    assert seven["base", "cpt"].times["train"] == pytest.approx(14_550, rel=0.005)
    assert one["openwebmath", "cpt"].times["train"] == pytest.approx(851, rel=0.005)
    assert costs.hours(6 * 1.3e9 * 150e9, H100.gpu, 0.4) == pytest.approx(822, rel=0.001)
    assert seven["instruct", "sft"].trained == 500 * 256 * 4096
    half = seven["base", "cpt"].times["train"] / 2
    assert forecast_of(PAPER_7B, mfu=0.8)["base", "cpt"].times["train"] == pytest.approx(half)


@pytest.mark.parametrize(
    ("launch", "factor"),
    [
        ({"activation_checkpointing": True}, 4 / 3),
        ({"compile": False}, 1.2),
        ({"zero_stage": 3, "activation_checkpointing": True}, 1.6),
    ],
)
def test_hours_depend_on_how_a_model_is_trained(launch: dict[str, Any], factor: float) -> None:
    """Recomputation adds a third; layers that are not compiled take a fifth longer: 25 % MFU, not 40 %."""
    plain, changed = forecast_of(PAPER_7B), forecast_of(PAPER_7B, {"cpt": {"launch": launch}})
    expected = factor * plain["base", "cpt"].times["train"]
    assert changed["base", "cpt"].times["train"] == pytest.approx(expected)


def test_every_mode_of_a_benchmark_is_asked() -> None:
    """Programs in one part, tool-integrated answers in two (8.2)."""
    for modes, parts in ((["chat_cot"], 1), (["chat_cot", "chat_tool"], 3)):
        models = {"instruct": {"benchmarks": ["gsm8k"], "modes": modes}}
        row = forecast_of(PAPER_7B, {"models": models})["instruct", "evaluate"]
        assert row.sampled == parts * 1319 * 65 * 1024
    changes = {"models": {"rl": {"mode": "tool", "supervision": "outcome"}}}  # its parts share max_tokens
    rows = [forecast_of(PAPER_7B, more)["rl", "rl"] for more in ({}, changes)]
    assert rows[0].sampled == rows[1].sampled > 0


def test_a_sampler_that_sleeps_is_counted_when_awake_and_the_policy_when_it_trains() -> None:
    row = forecast_of(PAPER_7B)["rl", "rl"]
    assert row.memory["activations"] and "cache" not in row.memory and row.memory["vllm"] == 1e9
    assert row.sampling["cache"] and "activations" not in row.sampling
    assert row.peak == max(sum(row.memory.values()), sum(row.sampling.values()))
    # No weights in main memory meanwhile: they are loaded again anyway.
    awake = forecast_of(PAPER_7B, {"rl": {"launch": {"sleep": False}}})["rl", "rl"]
    assert awake.main_memory == row.main_memory


@pytest.mark.parametrize(
    ("place", "frozen", "main"), [("whole", 26.8, 0), ("split", 3.35, 0), ("main_memory", 0, 26.8)]
)
def test_the_reference_and_the_reward_model_are_where_the_launch_puts_them(
    place: str, frozen: float, main: float
) -> None:
    whole, row = (
        forecast_of(PAPER_7B, {"rl": {"launch": {"frozen": name}}})["rl", "rl"] for name in ("whole", place)
    )
    for memory in (row.memory, row.sampling):
        assert memory["frozen"] / 1e9 == pytest.approx(frozen, rel=0.001)
    assert (row.main_memory - whole.main_memory) / 1e9 == pytest.approx(main, rel=0.001)


def test_labels_and_evaluation_have_all_gpus_to_themselves() -> None:
    """vLLM gets 80 % of an empty GPU for labels, and sleeps in training; evaluation runs on every GPU."""
    found = forecast_of(PAPER_7B, nodes=2)
    row = found["reward", "reward"]
    assert row.sampling["cache"] + row.sampling["vllm"] == pytest.approx(0.8 * H100.gpu.memory)
    assert "cache" not in row.memory and row.memory["vllm"] == 1e9 and row.memory["optimiser"] > 0
    (job,) = (job for job in model_jobs(list(found.values())) if job.name == "evaluate/rl")
    assert job.gpus == 16 and job.hours == pytest.approx(found["rl", "evaluate"].hours / 16)
    large = forecast_of(PAPER_7B, {"reward": {"label_batch": 256}, "evaluate": {"batch": 64}})
    for row, key in (("reward", "reward"), "label_batch"), (("instruct", "evaluate"), "evaluate.batch"):
        (note,) = large[row].notes
        assert re.fullmatch(rf"{key}: a batch takes up to \d+ minutes, but a time limit is told .*", note)
    outcome = forecast_of(PAPER_7B, {"reward": {"target": "outcome"}, "rl": {"supervision": "outcome"}})
    assert outcome["reward", "reward"].sampled == 144_000 * 4 * 1024  # no completions


ONE_CARD = {"base", "instruct", "reward", "rl"}  # 7B models, which one GPU cannot train


@pytest.mark.parametrize("ranks", [1, 8, 16, 32, 64])
@pytest.mark.parametrize(
    ("files", "card", "too_large"),
    [
        (PAPER_7B, "H100", ONE_CARD),
        (ITERATIVE, "H100", {*ONE_CARD, "reward-2", "reward-3", "rl-2", "rl-3"}),
        (PAPER_1B, "H100", set()),
        (SINGLE, "RTX4090", set()),
        (LORA, "RTX4090", set()),
        (LORA_7B, "H100", set()),
        (DEMO, "RTX4090", set()),
    ],
    ids=["7b", "iterative", "1.3b", "single-gpu", "lora", "7b-lora", "demo"],
)
def test_shipped_configurations_fit_with_a_margin_at_any_number_of_ranks(
    files: list[Path], card: str, too_large: set[str], ranks: int
) -> None:
    config = config_of(files, {"launch": {"ranks": min(8, ranks)}})
    assumed = Assumptions(gpu_named(card), nodes=max(1, ranks // 8))
    found = Planner(config, assumed).rows()
    assert {row.model for row in found if not row.fits(assumed)} == (too_large if ranks == 1 else set())
    assert refusals(config) == []
    assert all("is filler" in note for row in found if row.stage != "evaluate" for note in row.notes)


def test_ranks_that_do_not_divide_a_batch_are_noted_with_the_time_that_they_lose() -> None:
    """2,441 rows of 4,096 tokens are 10M: 39 for each of 64 ranks, with 55 rows of filler."""
    assert forecast_of(PAPER_7B)["base", "cpt"].notes == []  # 306 for each of 8: 0.3 %
    assert forecast_of(PAPER_7B, nodes=8)["base", "cpt"].notes == [
        "2,441 rows a step on 64 ranks: 2.2% of their time is filler"
    ]
    found = forecast_of(PAPER_7B, nodes=24)["rl", "rl"].notes  # 285 rows, two of each rank
    assert found == ["285 rows a step on 192 ranks: 25.8% of their time is filler"]


def test_rl_tokens_and_flops_are_the_hand_worked_ones() -> None:
    """9,000 steps of 16 x 64 outputs of 1,024 tokens; 6 N to train, 2 N for each other pass."""
    row = forecast_of(PAPER_7B)["rl", "rl"]
    tokens = 9000 * 16 * 64 * 1024
    assert row.sampled == row.trained == tokens
    weights, trunk = 6_910_365_696, 6_910_365_696 - 102_400 * 4096
    assert row.parameters == weights and row.flops == pytest.approx((10 * weights + 2 * trunk) * tokens)
    assert row.memory["frozen"] == 0 and row.main_memory > 2 * (weights + trunk)  # split, in main memory


def test_labels_cost_a_solution_and_half_of_one_for_each_completion() -> None:
    row = forecast_of(PAPER_7B, steps=6)["reward", "reward"]
    solutions = 144_000 * 4
    assert row.sampled == solutions * 1024 + solutions * 5 * 8 * 512
    assert row.trained == pytest.approx(solutions * 0.9 * 1024)
    continued = forecast_of(ITERATIVE)["reward-2", "reward"]
    assert continued.trained == pytest.approx(row.trained / 0.9)  # a tenth of the examples is replayed


@pytest.mark.parametrize(
    ("stage", "ranks", "weights", "gradients", "optimiser"),
    [(1, 1, 2, 4, 12), (1, 8, 2, 4, 1.5), (2, 8, 2, 0.5, 1.5), (3, 8, 0.25, 0.5, 1.5)],
)
def test_memory_of_training_by_zero_stage(
    stage: int, ranks: int, weights: float, gradients: float, optimiser: float
) -> None:
    """Bytes per weight in bf16: 2 + 4 + 12, of which ZeRO-1 shards the 12, 2 the gradients too, 3 all."""
    found = costs.training_state(10**9, "bf16", stage, ranks)
    state = {name: found[name] / 1e9 for name in ("weights", "gradients", "optimiser")}
    assert state == {"weights": weights, "gradients": gradients, "optimiser": optimiser}


def test_cache_and_decoding_of_the_papers_7b() -> None:
    """480 KB a token: 126 GB for 512 sequences of 500 tokens, and an H200 has no more."""
    assert costs.cache_bytes(DEEPSEEK_7B, "bf16") == 480 * 1024
    assert 512 * 500 * costs.cache_bytes(DEEPSEEK_7B, "bf16") == pytest.approx(126e9, rel=0.01)
    h200 = Gpu("H200", 790e12, 141e9, 4.3e12)
    assert costs.cache_tokens(DEEPSEEK_7B, "bf16", h200, 1.0) == pytest.approx(
        126.2e9 / 480 / 1024, rel=0.001
    )
    rate = costs.decode_rate(DEEPSEEK_7B, "bf16", h200, 1.0, 1000, given=256)
    assert rate == pytest.approx(256 * 4.3e12 / (2 * 6.91e9 + 256 * 500 * 480 * 1024), rel=0.001)
    assert rate == pytest.approx(14_350, rel=0.001)
    assert costs.decode_rate(DEEPSEEK_7B, "bf16", h200, 0.1, 1000) == 0.0  # the weights alone do not fit


def test_the_single_gpu_configuration_fits_a_24_gb_card(capsys: pytest.CaptureFixture) -> None:
    main(["--configfile", *map(str, SINGLE), "--gpu", "RTX4090", "--json"])
    row = next(row for row in json.loads(capsys.readouterr().out) if row["stage"] == "rl")
    assert 20e9 < sum(row["sampling"].values()) < 0.9 * 25.3e9 and row["sampling"]["cache"] > 4e9


BELOW = TABLES["below"]
NO_OVERLAYS = {"default", "claims", "paper"}
SHIPPED = sorted({path.stem for path in (ROOT / "configs").glob("*.yaml")} - NO_OVERLAYS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_configuration_has_a_whole_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(power, "DRAWS", (2, 1))  # enough for a table whose numbers are not looked at
    shape = {"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4}
    shape |= {"intermediate_size": 352, "vocab_size": 2048}
    for model in ("cpt/base", "sft/instruct"):  # of a finished demo, which `compare` starts from
        folder = Path(f"results/demo/{model}/data")
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(shape))
    Path("pages.yaml").write_text("crawl: {warc: pages.warc.gz}\n")  # which `make real` adds
    files = [ROOT / f"configs/{one}.yaml" for one in (BELOW.get(name), name) if one]
    files += [Path("pages.yaml")] if name == "real" else []
    main(["--configfile", *map(str, files), "--profile", str(ROOT / "profiles/slurm")])
    said = capsys.readouterr().out
    assert "Jobs: time beside the profile's limit" in said
    config = config_of(files)
    trained = [one for one, node in config.models.items() if node.train and node.stage == "rl"]
    grpo = [one for one in trained if config.model_sections[one].method == "grpo"]
    table = said.partition("What PPO's value model would add")[2].partition("\n\n")[2].partition("\n\n")[0]
    listed = [one for line in table.splitlines()[2:] for one in line.partition("  ")[0].split(", ")]
    assert all(any(one == label or one.startswith(f"{label}-") for label in listed) for one in grpo)
    assert bool(listed) == bool(grpo)


@pytest.mark.slow
def test_a_warning_names_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text("models: {rl-small: {stage: rl, parent: instruct, launch: {gpu_memory: 0.3}}}\n")
    main(["--configfile", *map(str, PAPER_7B), str(overlay), "--gpu", "A100-40"])
    said = capsys.readouterr().out
    assert "! rl (rl): " in said and "GB do not fit into 42 GB with 10% free" in said
    assert "! rl-small (rl): vLLM's 13 GB hold no sequence: raise launch.gpu_memory" in said
    assert "! rl-small (rl): the sampler has no room; change its `launch` (micro_batch, " in said
    assert "! models.rl-small.prompts: missing" in said


def test_adapters_fit_where_the_whole_model_does_not_and_are_counted_by_hand() -> None:
    """7B, rank 32 at all linear layers: 30 x 32 x (8 x 4096 + 3 x (4096 + 11008)) of 6.91B weights."""
    row = forecast_of(LORA_7B)["grpo", "rl"]
    weights, adapter = 6_910_365_696, 30 * 32 * (8 * 4096 + 3 * (4096 + 11008))
    assert DEEPSEEK_7B.adapter(32, Lora().targets) == adapter == 74_956_800
    held = {"weights": 2 * (weights + adapter), "gradients": 4 * adapter, "optimiser": 12 * adapter}
    assert {part: row.memory[part] for part in held} == held and "frozen" not in row.memory
    tokens = 200 * 16 * 64 * 1024
    # 4 N to train, 2 N for the reference (the same weights) and 2 N to sample; 6 for each of the adapter's.
    assert row.flops == pytest.approx((8 * weights + 6 * adapter) * tokens)
    assert row.scratch == 3 * 14 * adapter and row.disk > 2 * weights
    whole = forecast_of(LORA_7B, {"models": {"grpo": {"lora": None}}})["grpo", "rl"]
    assert whole.peak > 1.5 * 80e9 > 1.5 * row.peak


def test_a_model_from_scratch_has_the_shape_of_its_section() -> None:
    architecture = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    architecture |= {"num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": True}
    models = {"base": {"stage": "cpt", "init": "scratch", "mixture": "math", "benchmarks": []}}
    models["base"] |= {"architecture": architecture, "tokens": 1000, "batch_tokens": 100, "context": 10}
    changes = {"models": models, "mixtures": {"math": {}}, "tokens": {"vocabulary": 300}}
    found = forecast_of([], changes)
    weights = 300 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 64
    assert found["base", "cpt"].parameters == weights and found["base", "cpt"].flops == 6 * weights * 1000
    assert found["math", "tokens"].disk == 2 * 1000
    assert found["base", "cpt"].disk == weights * 2 and found["base", "cpt"].scratch == 3 * 14 * weights


@pytest.mark.parametrize(("values", "words"), TABLES["unknown"])
def test_an_unknown_quantity_is_a_one_line_error_that_names_the_key(
    tmp_path: Path, values: dict, words: str
) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(yaml.safe_dump(values))
    with pytest.raises(SystemExit) as error:
        main(["--configfile", str(overlay)])
    told = str(error.value)
    assert told.startswith(f"error: {words}") and "\n" not in told


def test_the_chunk_of_logits_is_that_of_the_trainer() -> None:
    from pipeline.training import linear_loss

    assert linear_loss.CHUNK_ELEMENTS["cuda"] == costs.CHUNK_ELEMENTS
