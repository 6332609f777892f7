"""`dsm classify`: a classifier of a run judges other files as the loop judges its pages."""

import os
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from given.corpora import MATH, corpus_of, rows_of, train_classifier, words
from given.texts import write
from killing import bytes_of, kill_at_call

from pipeline.cli import classify
from pipeline.core.data.rows import read_rows
from pipeline.core.data.shards import read_table


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_classifier(tmp_path_factory.mktemp("trained"))


def test_scores_and_kept_rows_are_those_of_the_corpus_stage(tmp_path: Path, trained: Path) -> None:
    scores, kept = corpus_of(trained)
    assert 20 < len(kept) < 80
    rows = rows_of(trained.parents[1] / "dedup")
    names = ("a.parquet", "b.jsonl", "c.jsonl.gz", "d.jsonl.zst")
    (tmp_path / "texts").mkdir()
    for number, name in enumerate(names):
        write(tmp_path / "texts" / name, rows[25 * number : 25 * number + 25])
    output = tmp_path / "out"
    classify.main(words(trained, output, tmp_path / "texts", processes=2))
    found = [read_table(output / f"scores/{name}.parquet").to_pylist() for name in names]
    assert [row["score"] for part in found for row in part] == scores
    by_id = {row["id"]: row | {"math_score": score} for row, score in zip(rows, scores, strict=True)}
    written = [row for name in names for _, row in read_rows(str(output / "kept" / name))]
    assert written == [by_id[row["id"]] for row in rows if row["id"] in kept]
    alone = tmp_path / "alone"
    classify.main(words(trained, alone, tmp_path / "texts"))
    assert bytes_of(alone) == bytes_of(output)


def test_a_command_that_is_killed_goes_on_and_ends_with_the_same_bytes(tmp_path: Path, trained: Path) -> None:
    rows = rows_of(trained.parents[1] / "dedup")
    files = [write(tmp_path / f"{n}.jsonl.zst", rows[50 * n : 50 * n + 50]) for n in range(2)]
    classify.main(words(trained, tmp_path / "whole", *files))
    again = partial(classify.main, words(trained, tmp_path / "out", *files))
    for number in (1, 3, 5):  # before a file's scores, kept rows, and those of the next get their names
        assert kill_at_call(again, number, ((Path, "replace"), (Path, "rename")))
    finished = tmp_path / "out/scores/0.jsonl.zst.parquet"
    before = finished.stat().st_mtime_ns
    again()
    assert bytes_of(tmp_path / "out") == bytes_of(tmp_path / "whole")
    assert finished.stat().st_mtime_ns == before


def test_only_a_whole_result_of_a_file_that_did_not_change_counts_as_made(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classify, "BATCH", 10)
    path = write(tmp_path / "a.parquet", rows_of(trained.parents[1] / "dedup"))
    again = partial(classify.main, words(trained, tmp_path / "out", path))
    again()
    kept, scores = tmp_path / "out/kept/a.parquet", tmp_path / "out/scores/a.parquet.parquet"
    assert pq.ParquetFile(kept).num_row_groups == 1
    whole = bytes_of(tmp_path / "out")
    for damaged in (kept.unlink, partial(scores.write_bytes, scores.read_bytes()[:-9])):
        damaged()
        again()
        assert bytes_of(tmp_path / "out") == whole
    before = scores.stat().st_mtime_ns
    os.utime(path, ns=(0, 0))
    again()
    assert scores.stat().st_mtime_ns > before


def test_hidden_files_that_are_not_its_own_stay(tmp_path: Path, trained: Path) -> None:
    path = write(tmp_path / "a.parquet", rows_of(trained.parents[1] / "dedup"))
    theirs = [tmp_path / f"out/{name}" for name in ("project/.env", "kept/.keep", "scores/.old.parquet")]
    for file in [*theirs, tmp_path / "out/project/.git/HEAD"]:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    classify.main(words(trained, tmp_path / "out", path))
    assert all(file.exists() for file in theirs)
    own = [tmp_path / f"out/{name}" for name in ("kept/.a.h.1.partial", "scores/.a.parquet.parquet")]
    for file in own:
        file.touch()
    classify.main(words(trained, tmp_path / "out", path))
    assert not any(file.exists() for file in own) and all(file.exists() for file in theirs[:2])


def test_results_can_go_to_the_folder_in_which_one_works(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    classify.main(words(trained, Path("."), write(tmp_path / "a.jsonl", [{"text": "a"}])))
    assert sorted(os.listdir()) == ["classify.json", "kept", "scores"]


def test_rows_without_a_text_have_no_score_and_are_not_kept(tmp_path: Path, trained: Path) -> None:
    rows = [{"body": text} for text in (None, 5, " \n", " ".join(MATH))]
    path = write(tmp_path / "rows.jsonl", rows)
    classify.main([*words(trained, tmp_path / "out", path), "--text", "body"])
    found = read_table(tmp_path / "out/scores/rows.jsonl.parquet").to_pylist()
    assert [row["score"] is None for row in found] == [True, True, True, False]
    assert [row["kept"] for row in found] == [False, False, False, True]


def test_what_cannot_be_classified_is_one_line_that_names_it(
    tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = write(tmp_path / "a.jsonl", [{"body": "a"}])
    scored = tmp_path / "b.parquet"
    pq.write_table(pa.table({"text": ["a"], "math_score": [1.0]}), scored)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(scored.read_bytes()[:-9])
    empty = tmp_path / "empty"
    empty.mkdir()
    cases = [
        (words(trained, tmp_path / "o", texts), "a.jsonl: no column 'text' (--text); it has body"),
        (words(trained, tmp_path / "o", scored), "b.parquet: has a column math_score already"),
        (words(trained, tmp_path / "o", tmp_path / "none.parquet"), "none.parquet: no such file"),
        (words(trained, tmp_path / "o", empty), "empty: no .jsonl"),
        (words(trained, tmp_path / "o", cut), "cut.parquet: not a readable Parquet file"),
        (words(tmp_path / "nothing", tmp_path / "o", texts), "nothing: no finished classifier; expected"),
        (words(trained, tmp_path / "o", texts, processes=0), "--processes 0: must be 1 or more"),
    ]
    for line, message in cases:
        with pytest.raises(SystemExit) as ended:
            classify.main(line)
        assert message in str(ended.value) and "\n" not in str(ended.value)
    assert not [
        path for path in (tmp_path / "o").rglob("*") if path.is_file() and path.name != "classify.json"
    ]
    (tmp_path / "o/classify.json").write_text("{}")
    with pytest.raises(SystemExit, match="made with another classifier or column"):
        classify.main(words(trained, tmp_path / "o", texts))
