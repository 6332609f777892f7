"""Fingerprints: what belongs to a result's identity, what does not, and files that are read only once."""

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import create_model

from pipeline.config.cpt import CptSection
from pipeline.config.evaluate import EvaluateSection
from pipeline.config.rl import RlSection
from pipeline.core.code import Code
from pipeline.core.identity import Digests, digest_of, essence, identity, published
from pipeline.core.manifest import fingerprint
from pipeline.core.section import key

CODE = Code()


def mark(section: Any, module: str = "pipeline.cpt", code: Code = CODE) -> str:
    return fingerprint(identity("cpt", "base", section, {}, module, code))


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
    assert essence(section) == {"benchmarks": {"toy": {"limit": 3}}}  # the source is an input, by content


def test_a_value_of_an_unknown_type_is_refused_and_not_hashed_by_its_name() -> None:
    odd = create_model("Odd", __base__=CptSection, place=(Any, key(None, "anything")))
    assert mark(odd(place=[1, "a", None, {"b": 0.5}])) != mark(odd())
    for value in (object(), b"a", {1, 2}, Path("a")):
        with pytest.raises(TypeError):
            mark(odd(place=value))


@pytest.mark.slow
def test_code_and_packages_count_where_no_model_is_trained() -> None:
    edited = Code()
    edited.digest = lambda module: "0"
    assert mark(CptSection(), code=edited) == mark(CptSection())
    marks = [mark(EvaluateSection(), "pipeline.evaluate", code) for code in (CODE, edited)]
    assert marks[0] != marks[1]
    what = identity("evaluate", "a", EvaluateSection(), {}, "pipeline.evaluate", CODE)
    assert {"torch", "vllm"} <= what["packages"].keys()
    assert not {"code", "packages"} & identity("cpt", "a", CptSection(), {}, "pipeline.cpt", CODE).keys()


def test_a_file_counts_by_content_and_not_by_its_times_or_its_place(tmp_path: Path) -> None:
    path = tmp_path / "seed_urls.txt"
    path.write_text("http://a.org/1\n")
    first = digest_of(str(path), Digests())
    os.utime(path, (1e9, 1e9))
    assert digest_of(str(path), Digests()) == first
    path.write_text("http://a.org/2\n")  # as long as before
    os.utime(path, (1e9, 1e9))
    assert digest_of(str(path), Digests()) != first
    (tmp_path / "other.txt").write_text("http://a.org/1\n")
    assert digest_of(str(tmp_path / "other.txt"), Digests()) == first


def test_the_name_of_a_file_counts_where_it_gets_into_the_result(tmp_path: Path) -> None:
    """In any folder. A WARC file's name stands in the rows of its pages."""
    places = [tmp_path / name for name in ("one/a.gz", "two/a.gz", "two/b.gz")]
    for place in places:
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(b"the same")
    one, two, other = (digest_of(str(place), Digests(), named=True) for place in places)
    assert one == two != other


def test_a_folder_counts_by_the_names_and_bytes_of_its_files(tmp_path: Path) -> None:
    for name in ("model", "copy"):
        (tmp_path / name / "deep").mkdir(parents=True)
        (tmp_path / name / "deep/weights").write_text("1")
    assert digest_of(str(tmp_path / "model"), Digests()) == digest_of(str(tmp_path / "copy"), Digests())
    (tmp_path / "copy/deep/weights").rename(tmp_path / "copy/weights")
    assert digest_of(str(tmp_path / "model"), Digests()) != digest_of(str(tmp_path / "copy"), Digests())


def test_a_file_that_did_not_change_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / f"{n}.warc.gz" for n in range(20)]
    for file in files:
        file.write_bytes(os.urandom(100))
    found = [Digests(tmp_path / "memory").file(file) for file in files]
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("was read again"))
    assert [Digests(tmp_path / "memory").file(file) for file in files] == found


def test_a_start_that_is_not_one_remembers_only_what_took_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`dsm status` and a dry run leave no file of a small run, and read a dump on this disk once."""
    monkeypatch.setattr("pipeline.core.identity.LARGE", 150)
    files = [tmp_path / f"{n}.warc.gz" for n in range(3)]
    for file in files:
        file.write_bytes(os.urandom(100))
    digests, memory = Digests(tmp_path / "memory", lazy=True), tmp_path / "memory"
    found = [digests.file(files[0])]
    assert not memory.exists()
    found += map(digests.file, files[1:])
    assert len([path for path in memory.rglob("*") if path.is_file()]) == 2
    digests.save()
    monkeypatch.setattr("hashlib.file_digest", lambda *_: pytest.fail("was read again"))
    assert [Digests(memory).file(file) for file in files] == found


@pytest.mark.parametrize("text", ["[1, 2]", '{"name": "a web app"}', "not JSON"])
def test_a_manifest_of_another_program_is_no_result(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    path = tmp_path / "pages/seed_urls.txt"
    path.parent.mkdir()
    path.write_text("http://a.org/1\n")
    assert published(path) is None
    found = digest_of(str(path), Digests())
    (tmp_path / "manifest.json").unlink()
    assert digest_of(str(path), Digests()) == found


def test_a_hub_id_counts_by_its_name() -> None:
    assert digest_of("deepseek-ai/deepseek-math-7b-base", Digests()) == "deepseek-ai/deepseek-math-7b-base"
