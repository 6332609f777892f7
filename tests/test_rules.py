"""The rules that a Snakemake user reads: each is complete, and names what the graph gives its program."""

import re

import pytest
from conftest import ROOT, copy_checkout

from pipeline.stages import PROGRAMS, STAGES
from pipeline.status import read_graph
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
    assert body.startswith('    """') and f"python -m pipeline.start {program.module} {{" in body


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
    assert command.startswith("python -m pipeline.start pipeline.rl --input ")
    assert re.findall(r"--input (\w+)=", command) == ["evaluation", "parent", "prompts"]
    (config,) = re.findall("--config '(.*?)'", command)
    assert '"steps": 3' in config and "clip" not in config and len(command) < 1200
    keys = re.findall(r'"(\w+)": ', re.sub(r": \{.*?\}", ": 0", config))
    assert keys == sorted(keys)
