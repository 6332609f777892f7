"""The files by which others find, cite and run the project: valid, and of one version."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_the_version_stands_in_the_changelog_and_the_citation_too() -> None:
    newest = re.search(r"^## \[([^]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1]
    assert newest == read("CITATION.cff")["version"] == PROJECT["version"]


def test_the_citation_has_what_its_format_requires_and_names_the_paper() -> None:
    citation = read("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    assert citation["license"] == PROJECT["license"] and citation["type"] == "software"
    (paper,) = citation["references"]
    assert paper["url"] == "https://arxiv.org/abs/2402.03300" and len(paper["authors"]) == 11
    assert all(author.keys() == {"given-names", "family-names"} for author in paper["authors"])


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_an_issue_form_asks_something_that_must_be_answered(form: Path) -> None:
    asked = yaml.safe_load(form.read_text())
    assert asked["name"] and asked["description"]
    assert {part["type"] for part in asked["body"]} <= {"textarea", "input"}
    assert all(part["attributes"]["label"] for part in asked["body"])
    assert any(part.get("validations", {}).get("required") for part in asked["body"])


def test_continuous_integration_runs_the_test_command_and_may_only_read() -> None:
    workflow = read(".github/workflows/ci.yml")
    assert (
        workflow["permissions"] == {"contents": "read"} and {"push", "pull_request"} <= workflow["on"].keys()
    )
    commands = [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]
    assert {".ci/run", "make site"} <= set(commands) and (ROOT / ".ci/run").stat().st_mode & 0o111


def test_every_page_has_its_place_in_the_site() -> None:
    listed = re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("nav:")[2])
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} | {"index.md", "contributing.md"}
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize("name", ["Dockerfile", "apptainer.def"])
def test_a_container_names_the_versions_of_the_environment_and_says_that_it_was_never_built(
    name: str,
) -> None:
    text, environment = (ROOT / name).read_text(), read("environment.yml")
    (pip,) = (item["pip"] for item in environment["dependencies"] if isinstance(item, dict))
    named = set(re.findall(r"\b(\w+={1,2}[\d.]+\d)", text))
    assert {"python", "torch", "vllm"} == {version.partition("=")[0] for version in named}
    assert named <= {*pip, *(item for item in environment["dependencies"] if isinstance(item, str))}
    assert f"envs/{environment['name']}/bin" in text and "Never built or run" in text
