"""The rules that a Snakemake user reads: each is complete, and names what the graph gives its program."""

import re

import pytest
from conftest import ROOT, Checkout, copy_checkout

from pipeline.cli.status import read_graph
from pipeline.core.stages import PROGRAMS, STAGES
from workflow.job import ROLE

TEXTS = {path.stem: path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk")}
RULE = re.compile(r"^rule (\w+):\n(.*?)(?=^\w|\Z)", re.MULTILINE | re.DOTALL)
RULES = {name: body for stage in STAGES for name, body in RULE.findall(TEXTS[stage.name])}
CONFIGURATIONS = ("demo", "pretrained", "ablations", "deepseekmath-7b", "deepseekmath-1.3b", "single-gpu")


def kinds(body: str) -> set[str]:
    """The kinds of roles that a rule's inputs name; a report reads results of all stages."""
    named = re.findall(r"^        \w+=JOB\.read\((.*)\),$", body, re.MULTILINE)
    return {kind for words in named for kind in re.findall(r'"(\w+)"', words)} | (
        {stage.name for stage in STAGES} if "*NAMES" in named else set()
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.rule)
def test_each_program_has_a_rule_that_is_written_out(program) -> None:
    body = RULES[program.rule]
    parts = [*(["input"] if kinds(body) else []), "output", "log", "conda", "threads", "params", "shell"]
    assert [word for word in re.findall(r"^    (\w+):", body, re.MULTILINE) if word != "resources"] == parts
    assert body.startswith('    """') and f"python -m pipeline.core.start {program.module} {{" in body


def test_no_rule_inherits_from_another() -> None:
    assert not [name for name, text in TEXTS.items() if re.search(r"^use rule", text, re.MULTILINE)]
    assert {program.rule for program in PROGRAMS} == RULES.keys()


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_graph_gives_no_role_that_a_rule_does_not_name(name: str) -> None:
    rules = {program.module: kinds(RULES[program.rule]) for program in PROGRAMS}
    for node in read_graph([f"configs/{name}.yaml"], []).nodes.values():
        assert {ROLE.split(role)[0] for role, _ in node.inputs} <= rules[node.module], node.name


def test_a_role_that_a_rule_does_not_name_ends_the_run_before_its_first_job(tmp_path) -> None:
    checkout = copy_checkout(tmp_path)
    rule = checkout.folder / "workflow/rules/rl.smk"
    rule.write_text(rule.read_text().replace('        parent=JOB.read("parent"),\n', ""))
    done = checkout.snakemake("-n")
    last = done.stdout.strip().splitlines()[-1]
    assert done.returncode == 1 and last == "error: rl/grpo: the rule of pipeline.rl names no input 'parent'"


def test_a_printed_command_names_inputs_and_the_keys_that_differ_and_can_be_read(tmp_path) -> None:
    """In 15 lines of a dry run."""
    done = copy_checkout(tmp_path).snakemake("-n", "-p", "rl")
    job = next(part for part in done.stdout.split("\n\n") if "\nrule rl_model:" in part)
    assert len(job.splitlines()) <= 15, job
    (command,) = re.findall("^Shell command: *(.*)", job, re.MULTILINE)
    assert command.startswith("python -m pipeline.core.start pipeline.rl --input ")
    assert re.findall(r"--input (\w+)=", command) == ["evaluation", "parent", "prompts"]
    (config,) = re.findall("--config '(.*?)'", command)
    assert '"steps": 3' in config and "clip" not in config and len(command) < 1200
    keys = re.findall(r'"(\w+)": ', re.sub(r": \{.*?\}", ": 0", config))
    assert keys == sorted(keys)


def closure(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """All pairs of rules of which the second one follows from the first."""
    while more := {(a, d) for a, b in edges for c, d in edges if b == c} - edges:
        edges = edges | more
    return edges


def test_the_picture_of_the_readme_is_the_graph_of_the_rules() -> None:
    """As `make figure` draws it: without edges that follow from others."""
    dot = Checkout(ROOT).snakemake("report", "--rulegraph", overlays=["configs/demo.yaml"]).stdout
    labels = dict(re.findall(r'(\d+)\[label = "(\w+)"', dot))
    rules = {(labels[one], labels[two]) for one, two in re.findall(r"(\d+) -> (\d+)", dot)}
    picture = (ROOT / "docs/workflow.svg").read_text()
    drawn = dict(re.findall(r"<title>(\d+)</title>.*?<text [^>]*>(\w+)</text>", picture, re.DOTALL))
    edges = {(drawn[one], drawn[two]) for one, two in re.findall(r"<title>(\d+)&#45;&gt;(\d+)", picture)}
    assert closure(edges) == closure(rules) and len(edges) < len(rules)
    order = [
        "crawl_extract",
        "corpus_train",
        "decontaminate_corpus",
        "tokens_mixture",
        "cpt_model",
        "sft_model",
    ]
    chain = [*order, "rl_model", "evaluate_model", "report_page"]
    assert (
        set(zip(chain, chain[1:], strict=False)) <= closure(rules) and ("sft_model", "reward_model") in edges
    )
