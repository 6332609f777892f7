"""Document shards and tables: datatrove's format, complete or absent, errors that name the file."""

import pyarrow as pa
import pytest
from datatrove.data import Document
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

from pipeline.core.data.rows import raw_lines
from pipeline.core.data.shards import DocumentWriter, read_documents, read_table, shard_paths, write_table
from pipeline.core.stage import InputError

DOCUMENTS = [
    Document(
        "Let $x^2 = 4$.\nThen x = ±2.", "a:0", metadata={"url": "http://a.org/", "offset": 0, "title": ""}
    ),
    Document(
        "数学分析\u2028第一章", "a:90", metadata={"url": "http://b.org/", "offset": 90, "truncated": None}
    ),
]


def write(path):
    with DocumentWriter(path) as writer:
        for document in DOCUMENTS:
            writer.write(document)


def test_a_shard_has_the_lines_that_datatrove_writes_and_reads_back_equal(tmp_path):
    write(tmp_path / "ours" / "00000.jsonl.zst")
    with JsonlWriter(
        str(tmp_path / "theirs"), output_filename="${rank}.jsonl.zst", compression="zstd"
    ) as writer:
        for document in DOCUMENTS:
            writer.write(document, rank=0)
    ours, theirs = (tmp_path / name / "00000.jsonl.zst" for name in ("ours", "theirs"))
    assert list(raw_lines(ours)) == list(raw_lines(theirs))
    assert list(read_documents(theirs)) == DOCUMENTS
    assert list(read_documents(tmp_path / "ours" / "00000.jsonl.zst")) == DOCUMENTS
    assert list(JsonlReader(str(tmp_path / "ours"), add_file_path=False).run()) == DOCUMENTS


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), DocumentWriter(tmp_path / "0000.jsonl.zst") as writer:
        writer.write(DOCUMENTS[0])
        raise RuntimeError("killed")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"no zstd" + data, None])
def test_a_damaged_or_missing_shard_is_one_line_that_names_it(tmp_path, damage):
    path = tmp_path / "0000.jsonl.zst"
    if damage:
        write(path)
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"0000\.jsonl\.zst: [^\n]+$"):
        list(read_documents(path))


def test_an_empty_shard_holds_no_documents_and_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(InputError, match="holds no"):
        shard_paths(tmp_path)
    with DocumentWriter(tmp_path / "0000.jsonl.zst"):
        pass
    assert [list(read_documents(path)) for path in shard_paths(tmp_path)] == [[]]


def test_a_table_keeps_rows_and_bytes_for_any_number_of_row_groups(tmp_path):
    schema = pa.schema([("url", pa.string()), ("offset", pa.int64())])
    rows = [{"url": f"http://a.org/{n}", "offset": n or None} for n in range(10)]
    assert write_table(tmp_path / "a.parquet", iter(rows), schema, rows_per_group=3) == 10
    write_table(tmp_path / "b.parquet", rows, schema, rows_per_group=3)
    assert read_table(tmp_path / "a.parquet").to_pylist() == rows
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert read_table(tmp_path / "a.parquet", ["offset"]).column_names == ["offset"]
    with pytest.raises(InputError, match="c.parquet: no such table"):
        read_table(tmp_path / "c.parquet")
