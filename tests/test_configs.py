"""The shipped configurations are complete: each shows its plan without network or the user's files."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from conftest import ROOT, copy_checkout, run

from pipeline.cli import status
from pipeline.config.rl import RlSection
from pipeline.config.root import SECTIONS, Config, ConfigError
from pipeline.core.overlays import read_config
from pipeline.core.stages import program_of
from pipeline.rl.__main__ import count_skipped
from pipeline.training.engine import settings_from
from pipeline.training.next_token import TrainingPlan, rows_of
from pipeline.training.packing import IGNORE, PackedRow
from workflow.graph import Graph, Result
from workflow.overridden import overridden_keys

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
PAPER_7B = ["configs/deepseekmath-7b.yaml"]
PAPER_1B = ["configs/deepseekmath-1.3b.yaml"]
ITERATIVE = [*PAPER_7B, "configs/iterative.yaml"]
SINGLE = ["configs/single-gpu.yaml"]


def merged(*overlays: str) -> dict:
    """Return what the shipped overlays say together, without the defaults."""
    return read_config(ROOT / name for name in overlays)


@pytest.mark.parametrize(
    ("overlays", "jobs"),
    [
        (SINGLE, {"rl_model": 1, "evaluate_model": 2}),
        ([*SINGLE, "configs/single-gpu-lora.yaml"], {"rl_model": 1, "evaluate_model": 2}),
        ([*SINGLE, "configs/single-gpu-7b-lora.yaml"], {"rl_model": 1, "evaluate_model": 2}),
        (ITERATIVE, {"cpt_model": 1, "sft_model": 1, "reward_model": 3, "rl_model": 3, "corpus_train": 4}),
        ([*PAPER_7B, "configs/deepseekmath-open.yaml"], {"sft_model": 1, "reward_model": 1, "rl_model": 1}),
        (PAPER_1B, {"cpt_model": 10, "tokens_mixture": 9, "reward_model": 2, "rl_model": 4}),
    ],
    ids=lambda value: Path(value[-1]).stem if isinstance(value, list) else "",
)
def test_a_dry_run_shows_the_plan_and_a_run_lists_the_missing_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlays: list[str], jobs: dict[str, int]
) -> None:
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    checkout = copy_checkout(tmp_path)
    (tmp_path / "few.yaml").write_text("crawl: {pool_shards: 2}\n")  # 4,000 score jobs take long to list
    overlays = [*overlays, "few.yaml"]
    done = checkout.snakemake("--dry-run", "--quiet", "rules", overlays=overlays)
    assert done.returncode == 0, done.stdout[-3000:]
    counts = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    assert {rule: int(counts[rule]) for rule in jobs} == jobs and "report_page" in counts
    if overlays[:1] != SINGLE:
        done = checkout.snakemake(overlays=overlays)
        assert done.returncode != 0 and not (tmp_path / "results").exists()
        assert "bring these files first" in done.stdout and "data/crawl/*.paths.gz" in done.stdout


def test_the_papers_hyperparameters_are_those_of_the_paper() -> None:
    config = Config(merged(*ITERATIVE))
    base, instruct, reward, rl = (
        config.model_sections[name] for name in ("base", "instruct", "reward", "rl-2")
    )
    found = (base.tokens, base.batch_tokens, base.context, base.learning_rate, base.warmup_steps, base.drops)
    assert found == (500_000_000_000, 10_000_000, 4096, 4.2e-4, 2000, [(0.8, 0.316), (0.9, 0.1)])  # 2.2, 2.3
    assert base.optimizer.weight_decay == 0.1 and settings_from(base, {}).betas == (0.9, 0.95)
    shares = [source.share for source in config.mixtures["base"].sources.values()]
    assert shares == [0.56, 0.04, 0.1, 0.2, 0.1]
    assert (instruct.steps, instruct.batch, instruct.learning_rate) == (500, 256, 5e-5)  # 3.2
    assert instruct.loss_mean == "example"  # Eq. 6
    assert (reward.learning_rate, config.model_sections["reward-2"].replay) == (2e-5, 0.1)  # 4.2, 4.1.4
    assert config.models["reward"].parent == "base" and config.models["reward-2"].parent == "reward"
    assert (rl.learning_rate, rl.kl_coefficient, rl.group_size) == (1e-6, 0.04, 64)  # 4.2
    assert (rl.max_tokens, rl.updates, rl.group_size * rl.questions_per_step) == (1024, 1, 1024)
    assert (rl.rewards.accuracy, rl.rewards.model) == (0, 1)
    corpus = config.sections["corpus"]
    fasttext = (corpus.dimension, corpus.learning_rate, corpus.word_ngrams, corpus.min_count, corpus.epochs)
    assert fasttext == (256, 0.1, 3, 3, 3) and corpus.iterations == 4  # 2.1
    shots = {name: node.shots for name, node in config.benchmarks.items()}
    assert (shots["gsm8k"], shots["math"], shots["cmath"], shots["gaokao_mathqa"]) == (8, 4, 6, 5)  # 8.3


def test_rounds_of_iterative_grpo_branch_as_in_figure_6_and_never_ask_a_question_twice() -> None:
    graph, first = Graph(Config(merged(*ITERATIVE))), 0
    for name, steps in (("rl", 1100), ("rl-2", 1600), ("rl-3", 2600)):  # branches at 1,100 and 2,700
        section = RlSection(**graph.nodes[f"rl/{name}"].section)
        assert section.steps == steps and count_skipped(section) == first
        first += steps * section.questions_per_step
    assert first <= 144_000  # within one pass


def test_the_ablations_are_those_of_the_paper() -> None:
    config = Config(merged(*PAPER_1B))
    for name in ("mathpile", "openwebmath", "proof-pile-2", "deepseekmath"):  # table 1
        section = config.model_sections[name]
        assert (section.tokens, section.batch_tokens) == (150 * 10**9, 4 * 10**6)
        assert section.learning_rate == 5.3e-4
    shares = {name: source.share for name, source in config.mixtures["proof-pile-2"].sources.items()}
    assert shares == {"arxiv": 2, "openwebmath": 4, "algebraic-stack": 1}  # 2.2
    for kind in ("general", "code"):  # 5.1.1
        second = config.models[f"{kind}-then-math"]
        assert config.model_sections[kind].tokens == 400 * 10**9 and second.parent == kind
        assert config.model_sections[f"{kind}-then-math"].tokens == 150 * 10**9
    assert config.model_sections["code-and-math"].tokens == 550 * 10**9
    methods = [config.model_sections[name] for name in ("rft", "online-rft", "grpo-os", "grpo-ps")]  # 5.2.1
    assert [section.method for section in methods] == ["rft", "online_rft", "grpo", "grpo"]
    assert methods[-1].supervision == "process" and {section.steps for section in methods} == {8800}
    for section in methods:  # figure 5: GSM8K and MATH, each a panel
        assert [Path(file).name for file in section.evaluation] == ["gsm8k_test.jsonl.gz", "math500.jsonl.gz"]
        assert section.evaluate_every == 200
    asked = {"gsm8k", "math", "sat", "ocw", "mmlu_stem", "cmath", "gaokao_mathcloze", "gaokao_mathqa"}  # 8.3
    for benchmarks in (config.benchmarks, Config(merged(*ITERATIVE)).benchmarks):
        assert all("/official/" in benchmarks[name].prompt for name in asked)


@pytest.mark.parametrize("name", ["demo", "compare"])
def test_training_is_not_watched_on_questions_that_are_scored(name: str) -> None:
    config = Config(merged(f"configs/{name}.yaml"))
    sources = [node.source for node in config.benchmarks.values()]
    scored = {file for files in sources for file in ([files] if isinstance(files, str) else files)}
    watched = {node.evaluation for node in config.model_sections.values() if isinstance(node, RlSection)}
    assert watched and scored and not scored & watched


def test_missing_files_are_listed_and_only_inside_the_data_folder() -> None:
    values = merged(*PAPER_7B)
    missing = Graph(Config(values)).missing
    assert any(line.startswith("models.rl.prompts: data/rl") for line in missing)
    with pytest.raises(ConfigError, match="crawl.warc: data/crawl/.*.paths.gz"):
        Graph(Config(values | {"data_folder": "elsewhere"}))


def test_the_printed_defaults_are_those_of_the_sections() -> None:
    """What a program uses when it is started alone, and what the workflow gives it from default.yaml."""
    printed = yaml.safe_load((ROOT / "configs/default.yaml").read_text())
    for name, model in SECTIONS.items():
        found, expected = model(**printed[name]), model()
        assert found == expected, name


def test_a_stages_and_a_models_own_launch_override_the_common_one_and_are_in_no_section() -> None:
    plain, own = merged(*PAPER_7B), merged(*PAPER_7B)
    plain["cpt"], own["cpt"] = {}, {"launch": {"zero_stage": 1, "micro_batch": 2}}
    own["models"]["base"]["launch"] = {"micro_batch": 4}
    own["evaluate"] = plain["evaluate"] | {"launch": {"threads": 5}}
    before, now = Graph(Config(plain)), Graph(Config(own))
    assert {name: node.section for name, node in before.nodes.items()} == {
        name: node.section for name, node in now.nodes.items()
    }
    assert (now.nodes["cpt/base"].launch.zero_stage, now.nodes["cpt/base"].launch.micro_batch) == (1, 4)
    assert now.nodes["evaluate/base"].launch.threads == 5
    unchanged = set(before.nodes) - {"cpt/base"} - {f"evaluate/{name}" for name in own["models"]}
    assert all(before.nodes[name].launch == now.nodes[name].launch for name in unchanged)


def test_a_node_with_seeds_stands_for_nodes_that_differ_in_their_seed_alone() -> None:
    node = {"stage": "sft", "init": "owner/model", "steps": 3, "benchmarks": []}
    family = Config({"seed": 5, "models": {"tuned": node | {"seeds": [0, 7]}}})
    alone = {f"tuned-{seed}": node | {"seed": seed} for seed in (0, 7)}
    assert {name: node.section for name, node in Graph(family).nodes.items()} == {
        name: node.section for name, node in Graph(Config({"seed": 5, "models": alone})).nodes.items()
    }
    assert list(Config({"models": {"tuned": node | {"seeds": None}}}).models) == ["tuned"]


@pytest.mark.parametrize("ranks", [1, 8, 16, 32, 64])
@pytest.mark.parametrize("batch", [16, 256, 976, 2441])  # rows of a step in the shipped configurations
def test_any_number_of_ranks_can_share_a_batch(batch: int, ranks: int) -> None:
    def row(n: int) -> PackedRow:
        return PackedRow(np.array([n]), np.array([0]), np.array([n]), 1)

    plan = TrainingPlan(row, 2, batch, lambda step: 1.0, ["x"])
    shares = [rows_of(plan, 1, rank, ranks) for rank in range(ranks)]
    assert {len(rows) for rows in shares} == {-(-batch // ranks)}
    trained = [row.targets[0] for rows in shares for row in rows if row.targets[0] != IGNORE]
    assert sorted(trained) == list(range(batch, 2 * batch))


def test_kept_models_are_asked_greedily_by_jobs_of_their_own() -> None:
    """Figure 3: the corpora of table 1; an evaluation of a finished model does not depend on it."""
    values = merged(*PAPER_1B)
    graph = Graph(Config(values))
    found = [name.split("/")[1:] for name in graph.names("trajectory")]
    corpora = ("mathpile", "openwebmath", "proof-pile-2", "deepseekmath")
    assert found == [
        [name, f"{billions}000000000"] for name in corpora for billions in (10, 25, 50, 75, 100, 125)
    ]
    node = graph.nodes["trajectory/mathpile/50000000000"]
    section = node.kind.model_validate(node.section)
    assert dict(node.inputs)["model"] == Result("cpt/mathpile", "kept/50000000000")
    assert {section.asked(name)[0] for name in section.benchmarks} == {"few_shot_cot"}
    assert section.samples == 0 and all(asked.samples == 0 for asked in section.benchmarks.values())
    assert program_of(node.module) == ("trajectory", type(section))
    without = Graph(Config(values | {"trajectory": {}}))
    assert without.names("trajectory") == []
    assert without.nodes["evaluate/mathpile"] == graph.nodes["evaluate/mathpile"]


@pytest.mark.parametrize(
    ("overlays", "told"),
    [
        (
            [{"rl": {"group_size": 8}, "models": {"grpo": {"steps": 2}}}],
            ["1.yaml: rl.group_size has no effect where models.grpo.group_size is set"],
        ),
        (
            [{"launch": {"micro_batch": 3}}, {"models": {"grpo": {"launch": {"micro_batch": 2}}}}],
            [],  # a later file sets the node: both are meant
        ),
        (
            [{"models": {"grpo": {"launch": {"ranks": 2}}}, "rl": {"launch": {"threads": 2}}}]
            + [{"launch": {"ranks": 4, "threads": 1}}],
            [
                "2.yaml: launch.ranks has no effect where models.grpo.launch.ranks is set",
                "2.yaml: launch.threads has no effect where rl.launch.threads is set",
            ],
        ),
        ([{"rl": {"group_size": 4}}], []),  # the value that the node has
        (
            [{"benchmarks": {"miniweb": {"samples": 2}}}, {"evaluate": {"samples": 4}}],
            ["2.yaml: evaluate.samples has no effect where benchmarks.miniweb.samples is set"],
        ),
    ],
)
def test_a_key_of_an_overlay_that_a_node_overrides_is_told_with_the_key_that_wins(
    tmp_path: Path, overlays: list[dict], told: list[str]
) -> None:
    base = tmp_path / "base.yaml"
    models = {"start": {"stage": "cpt", "init": "a/model", "train": False}}
    models["grpo"] = {"stage": "rl", "parent": "start", "prompts": "x.jsonl", "group_size": 4}
    base.write_text(yaml.safe_dump({"models": models, "benchmarks": {"miniweb": {"source": "x.jsonl"}}}))
    files = [str(base), *(str(tmp_path / f"{number}.yaml") for number, _ in enumerate(overlays, 1))]
    for path, overlay in zip(files[1:], overlays, strict=True):
        Path(path).write_text(yaml.safe_dump(overlay))
    assert [line.removeprefix(f"{tmp_path}/") for line in overridden_keys(files, {})] == told


def test_a_key_without_effect_is_told_by_status_and_by_a_dry_run(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    checkout = copy_checkout(tmp_path)
    (tmp_path / "few.yaml").write_text("sft: {steps: 3}\n")
    told = "few.yaml: sft.steps has no effect where models.tool.steps is set\n"
    assert f"warning: {told}" in checkout.dsm("-n", overlays=["configs/demo.yaml", "few.yaml"]).stdout
    status.main(["--configfile", str(ROOT / "configs/demo.yaml"), str(tmp_path / "few.yaml")])
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("overlays", [ITERATIVE, [*SINGLE, "configs/single-gpu-lora.yaml"]])
def test_shipped_overlays_have_no_key_without_effect(overlays: list[str]) -> None:
    assert overridden_keys([ROOT / name for name in overlays], {}) == []


def test_make_pretrained_looks_for_the_benchmarks_before_it_converts_the_model(tmp_path: Path) -> None:
    words = ["make", "-n", "pretrained", "BENCH=/nope", f"PUBLISHED={tmp_path}/model"]
    plan = run(words).stdout
    assert 0 < plan.index("recipes.pretrained") < plan.index("recipes.published")
