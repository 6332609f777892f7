"""Fingerprints: what belongs to a result's identity, what does not, and files that are read only once."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model

from pipeline.common.identity import Digests, digest_of, essence, identity, published
from pipeline.common.manifest import fingerprint
from pipeline.config.cpt import CptSection
from pipeline.config.evaluate import EvaluateSection
from pipeline.config.rl import RlSection
from pipeline.config.section import key


def mark(section: Any, inputs: dict[str, list[str]] | None = None, module: str = "pipeline.cpt") -> str:
    return fingerprint(identity("cpt", "base", section, inputs or {}, module))


def test_a_new_key_with_its_default_leaves_the_fingerprint() -> None:
    extended = create_model("Extended", __base__=CptSection, extra=(bool, key(False, "an option")))
    assert mark(CptSection(tokens=5)) == mark(extended(tokens=5))
    assert mark(CptSection(tokens=5)) != mark(extended(tokens=5, extra=True))


def test_a_key_set_to_its_default_is_as_if_it_were_not_set() -> None:
    assert mark(CptSection()) == mark(CptSection(**CptSection().model_dump()))


def test_a_raised_version_changes_the_fingerprint() -> None:
    class Raised(CptSection):
        version = CptSection.version + 1

    assert mark(CptSection()) != mark(Raised())


def test_nested_keys_are_compared_with_the_default_of_the_section_that_holds_them() -> None:
    """RL's optimizer has another default than the class of its keys."""
    assert essence(RlSection()) == {}
    assert essence(RlSection(optimizer={"weight_decay": 0.0})) == {}
    assert essence(RlSection(optimizer={"weight_decay": 0.1})) == {"optimizer": {"weight_decay": 0.1}}


def test_a_key_of_a_benchmark_counts_where_it_differs_from_the_default() -> None:
    section = EvaluateSection(benchmarks={"toy": {"source": "a.jsonl", "shots": 4, "limit": 3}})
    assert essence(section) == {"benchmarks": {"toy": {"source": "a.jsonl", "limit": 3}}}


def test_code_counts_where_no_model_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    def marks() -> tuple[str, str]:
        return mark(CptSection()), mark(EvaluateSection(), module="pipeline.evaluate")

    before = marks()
    monkeypatch.setattr("pipeline.common.identity.code_hash", lambda module: "edited")
    assert marks()[0] == before[0] and marks()[1] != before[1]


def test_a_file_counts_by_path_and_content_and_not_by_its_times(tmp_path: Path) -> None:
    path = tmp_path / "seed_urls.txt"
    path.write_text("http://a.org/1\n")
    first = digest_of(str(path), Digests())
    os.utime(path, (1e9, 1e9))
    assert digest_of(str(path), Digests()) == first
    path.write_text("http://a.org/2\n")  # as long as before
    os.utime(path, (1e9, 1e9))
    assert digest_of(str(path), Digests()) != first
    (tmp_path / "other.txt").write_text("http://a.org/1\n")
    assert digest_of(str(tmp_path / "other.txt"), Digests()) != first


def test_a_file_that_did_not_change_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / f"{n}.warc.gz" for n in range(20)]
    for file in files:
        file.write_bytes(os.urandom(100))
    found = [Digests(tmp_path / "memory").file(file) for file in files]
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("was read again"))
    assert [Digests(tmp_path / "memory").file(file) for file in files] == found


def test_a_large_file_that_was_never_read_is_left_to_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "large.warc.gz"
    path.write_bytes(b"x" * 2000)
    monkeypatch.setattr("pipeline.common.identity.LARGE", 1000)
    digests = Digests(tmp_path / "memory")
    assert digests.file(path, lazy=True) is None and digest_of(str(path), digests, lazy=True) is None
    whole = digests.file(path)
    assert Digests(tmp_path / "memory").file(path, lazy=True) == whole


@pytest.mark.parametrize("text", ["[1, 2]", '{"name": "a web app"}', "not JSON"])
def test_a_manifest_of_another_program_is_no_result(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    path = tmp_path / "pages/seed_urls.txt"
    path.parent.mkdir()
    path.write_text("http://a.org/1\n")
    assert published(path) is None
    assert digest_of(str(path), Digests()).startswith(str(path))


def test_a_hub_id_counts_by_its_name() -> None:
    assert digest_of("deepseek-ai/deepseek-math-7b-base", Digests()) == "deepseek-ai/deepseek-math-7b-base"
