"""Configuration of stage `crawl`: what is read, what counts as a page, what counts as a duplicate."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipeline.core.section import LARGEST_SEED, REQUIRED, Section, key, parts_of

Named = Annotated[str, Field(pattern=r"^.+\.py:[A-Za-z_]\w*$|^datatrove(\.[A-Za-z_]\w*)+$")]
Fields = dict[Literal["text", "url", "id", "language"], str]
SourceName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
DOWNLOADS = 8  # jobs that read from servers at a time, unless a profile says otherwise
SIGNATURES = ("buckets", "hashes_per_bucket")
LEDGER_JOBS = 20  # jobs that write the page ledger, at most


class TextSource(Section):
    """A named source of texts that are pages already."""

    data: str | Annotated[list[str], Field(min_length=1)] = key(
        REQUIRED,
        "paths or globs of *.parquet and *.jsonl[.gz|.zst], or hub:<owner>/<name>[:<folder>]@<revision>: such"
        " files of a data set, below a folder of this name",
    )
    pattern: str = key("*", "glob of the paths in the data set of the hub that are read, of all its files")
    fields: Fields = key({}, "their columns, as `fields`, whose place it takes")
    licence: str | None = key(None, "of the texts; the card counts it, and pages carry it")
    use: Literal["train", "evaluate", "blocked"] = key(
        "train",
        "train; evaluate: not read here and refused where a model learns, but a benchmark may be made of it;"
        " blocked: refused everywhere",
    )


class CrawlSection(Section):
    """From WARC files or texts to deduplicated pages (paper section 2.1, which gives no settings for it)."""

    filled: ClassVar[tuple[str, ...]] = ("seed",)
    named: ClassVar[tuple[str, ...]] = ("warc", "texts")
    programs: ClassVar[dict[str, tuple[str, ...]]] = {
        "extract": ("base_url", "fields", "files_per_shard", "order", "filters"),  # its inputs name the files
        "sign": ("seed", *SIGNATURES),
        "exact": (),
        "buckets": ("min_similarity", "bucket_jobs", *SIGNATURES),
        "survivors": (),
        "filter": (),
        "dedup": (),
    }

    warc: str | list[str] | None = key(
        None,
        "WARC or WET files: paths, globs, https or s3 addresses, lists of them (*.paths[.gz], *.txt), a"
        " Common Crawl dump (CC-MAIN-2024-10, CC-MAIN-2024-10/wet), or indexes that name single records by"
        " url, filename, offset and length (*.parquet, *.cdxj[.gz], *.jsonl[.gz])",
    )
    texts: str | list[str] | dict[SourceName, TextSource] | None = key(
        None,
        "files of texts that are pages already: paths or globs of *.parquet and *.jsonl[.gz|.zst], or sources"
        " by name, each with `data`, which may also be hub:<owner>/<name>[:<folder>]@<revision>, and perhaps"
        " `pattern` (of paths in the data set), `fields`, `licence`, `use`",
    )
    fields: Fields = key(
        {},
        "their columns, where text and url have other names; rows that repeat an id are rejected; a language"
        " (ISO 639-1) that is not given is detected; a row without a URL is a page without a domain",
    )
    base_url: str = key(
        "https://data.commoncrawl.org/", "prefix of the relative paths in a list, as in Common Crawl's lists"
    )
    files_per_shard: int = key(
        1,
        "WARC files that one extraction job reads, in the order of the list; above 1, list new files last",
        ge=1,
    )
    lost_files: list[str] = key(
        [], "names of WARC files to skip; other files, and the results already made from them, are unaffected"
    )
    pool_shards: int = key(
        1,
        "maximum number of shards of the deduplicated pool, each filtered and scored by a job of its own",
        ge=1,
    )
    order: Literal["paper", "math_first"] = key(
        "paper",
        "paper: all pages are deduplicated, then scored; math_first: extraction drops pages without any sign"
        " of mathematics, and each list of files is deduplicated by itself before all are together",
        paper="paper (2.1)",
    )
    filters: list[Named] = key(
        [],
        "filters of your own that each page must pass: FILE.py:NAME of a function of a document, or of a"
        " filter of datatrove's; or the dotted name of one of datatrove's classes. What FILE.py imports is"
        " not watched: a change there makes nothing stale. A filter must keep no state from page to page",
    )
    buckets: int = key(40, "MinHash bands; more of them find less similar pairs", ge=1)
    hashes_per_bucket: int = key(
        4, "MinHash values in a band; more of them find only more similar pairs", ge=1
    )
    min_similarity: float = key(
        0.7,
        "pages are near-duplicates from this estimated Jaccard similarity of their shingles on",
        ge=0,
        le=1,
    )
    seed: int = key(1, "seed of the MinHash permutations", ge=0, le=LARGEST_SEED)
    bucket_jobs: int = key(
        1,
        "maximum number of jobs that compare the bands; above `buckets` a band is split by its hashes",
        ge=1,
    )

    def pool_parts(self, extracts: int) -> list[range]:
        """Numbers of the extraction shards that each shard of the pool comes from."""
        return parts_of(extracts, self.pool_shards)

    def ledger_parts(self, shards: int) -> list[range]:
        """Numbers of the pool's shards that each job of the page ledger has."""
        return parts_of(shards, LEDGER_JOBS)

    @property
    def text_sources(self) -> dict[str, TextSource]:
        """The sources of texts that are for training by name; those without one are "" together."""
        if isinstance(self.texts, dict):
            return {name: source for name, source in self.texts.items() if source.use == "train"}
        return {"": TextSource(data=self.texts)} if self.texts else {}
