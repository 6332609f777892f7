"""Keys of decontamination: benchmark texts that must not be in the corpus."""

from typing import ClassVar, Literal

from pipeline.core.section import Section, key


class DecontaminateSection(Section):
    """Pages that share a long run of words with a benchmark item leave the corpus (paper section 2.1)."""

    filled: ClassVar[tuple[str, ...]] = ("fields",)

    ngram: int = key(10, "words (or single CJK characters) of a matching run", paper="10-gram (2.1)", ge=3)
    shortest: int = key(
        3, "texts with at least so many, but fewer than `ngram` words must match whole", paper="3 (2.1)", ge=1
    )
    remove: Literal["page", "segment"] = key(
        "page",
        "what leaves the corpus: the whole page, or the paragraphs (lines) that hold a shared run",
        paper="text segments, whose size is not stated (2.1)",
    )
    fields: dict[str, dict[str, str]] = key({}, "columns of the benchmarks by name, as their `fields`")
