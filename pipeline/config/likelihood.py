"""Keys of the likelihood of documents."""

from typing import ClassVar

from pipeline.config.section import Section, key

FILE = "documents.jsonl"  # of a result


class LikelihoodSection(Section):
    """Bits per byte of documents that no model is trained on, by every model that writes text."""

    files: ClassVar[tuple[str, ...]] = ("documents",)

    documents: str | list[str] | None = key(
        None, "files of rows with `id` and `text` (globs, miniweb:<file>); null: not measured"
    )
