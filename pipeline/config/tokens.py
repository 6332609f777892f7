"""Keys of the tokenizer and the token files, and mixtures as named nodes."""

from typing import ClassVar

from pipeline.core.section import REQUIRED, Section, key


class TokensSection(Section):
    """The run's own tokenizer, for models that start from scratch."""

    files: ClassVar[tuple[str, ...]] = ("texts",)

    texts: str | list[str] | None = key(
        None, "text or sft-format files to learn from beside the corpus (globs, miniweb:<file>)"
    )
    vocabulary: int = key(
        32768,
        "entries of the byte-level BPE, special tokens included",
        paper="about 100K; an existing tokenizer",
        ge=260,
    )


class SourceNode(Section):
    """One source of a mixture."""

    files: ClassVar[tuple[str, ...]] = ("data",)

    data: str | list[str] = key(
        REQUIRED,
        "the run's own `corpus`, `corpus/iteration-<n>`, `corpus/formulas` (English pages with formulas) or"
        " `corpus/pool` (all pages); files (.jsonl[.gz|.zst], .parquet; globs) or"
        " hub:<id>[/<config>]:<split>[@<commit>]",
    )
    share: float = key(1.0, "share of all tokens seen in training; shares are normalised", gt=0)
    text: str = key("text", "field that holds a document's text")
    decontaminate: bool = key(
        False,
        "leave out documents that share a run of words with a benchmark of the run, by the defaults of"
        " `decontaminate`, and list them in removals.jsonl; for text of the web",
    )


class MixtureNode(Section):
    """A named mixture: tokenizer and sources."""

    filled: ClassVar[tuple[str, ...]] = ("fields",)
    files: ClassVar[tuple[str, ...]] = ("tokenizer",)

    tokenizer: str = key(
        "corpus", "`corpus`: the run's own; else that of a folder or hub id, needed where a model has an init"
    )
    sources: dict[str, SourceNode] = key(
        {"corpus": SourceNode(data="corpus")},
        "name -> source",
        paper="our corpus 56 %, AlgebraicStack 4 %, arXiv 10 %, GitHub code 20 %, Common Crawl 10 % (2.3)",
        min_length=1,
    )
    fields: dict[str, dict[str, str]] = key({}, "columns of the benchmarks by name, as their `fields`")
