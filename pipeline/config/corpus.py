"""Keys of the corpus loop: the classifier, the cut, the domains, and when to stop."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipeline.core.section import LARGEST_SEED, Section, key

CLASSIFIER = (
    *("dimension", "learning_rate", "word_ngrams", "min_count", "epochs", "buckets", "subwords"),
    *("positives", "negatives", "folds", "seed"),
)
Count = Annotated[int, Field(ge=1)] | Literal["auto"]
Rate = Annotated[float, Field(gt=0)] | Literal["auto"]


class CorpusSection(Section):
    """The iterated classifier over the pool (paper section 2.1)."""

    filled: ClassVar[tuple[str, ...]] = ("seed",)
    programs: ClassVar[dict[str, tuple[str, ...]]] = {  # inputs name the files
        "train": (*CLASSIFIER, "reviewed"),
        "score": (),
        "select": ("cut", "budget_tokens", "threshold", "domain_share", "reviewed", "converged"),
        "formulas": (),
    }

    seed_texts: str | list[str] | None = key(
        None,
        "texts that are positives of every iteration: files of rows with `text`, perhaps `url`, or"
        " hub:<id>:<split>; `positives` of them are drawn",
        paper="OpenWebMath (2.1)",
    )
    background_texts: str | list[str] | None = key(
        None, "texts that are negatives of every iteration, as `seed_texts`; `negatives` of them are drawn"
    )
    seed_urls: str | None = key(
        None, "file of URLs, one a line: pages of the pool that are positives of the first iteration"
    )
    background_urls: str | None = key(
        None, "file of URLs of a general sample: negatives", paper="Common Crawl pages (2.1)"
    )
    annotations: str | list[str] | None = key(
        None,
        "reviewed URL prefixes: tab-separated prefix, verdict (math: pages under it are; not_math: none is,"
        " and none is kept), annotator, date, evidence; of several files iteration n reads the first n, so"
        " that a new one changes no iteration before it",
        paper="made by hand, not published (2.1)",
    )
    opt_out: str | None = key(
        None, "file of hosts or URL prefixes, one a line, whose pages are never kept (robots, opt-out lists)"
    )
    blocklists: str | list[str] | None = key(
        None, "files of domains, one a line; no page of them or of their subdomains is ever kept"
    )
    tokenizer: str | None = key(
        None,
        "folder or hub id of the tokenizer in whose tokens pages and budget_tokens count, by a ratio measured"
        " on pages of the pool; null: words and CJK characters",
    )
    iterations: int = key(
        4,
        "number of iterations; after convergence the rest copy the last result; changing it reruns nothing",
        paper="4 (2.1)",
        ge=1,
    )
    positives: int = key(
        500_000, "maximum number of positives that a classifier is trained on", paper="500,000 (2.1)", ge=1
    )
    negatives: int = key(500_000, "maximum number of negatives", paper="500,000 (2.1)", ge=1)
    dimension: Count = key(
        256,
        "fastText: vector dimension; here and in the next six keys `auto` is the preset for the number of"
        " training pages (pipeline/corpus/classifier.py)",
        paper="256 (2.1)",
    )
    learning_rate: Rate = key(0.1, "fastText: learning rate", paper="0.1 (2.1)")
    word_ngrams: Count = key(3, "fastText: longest word n-gram", paper="3 (2.1)")
    min_count: Count = key(3, "fastText: least occurrences of a word", paper="3 (2.1)")
    epochs: Count = key(3, "fastText: epochs", paper="3 (2.1)")
    buckets: Count = key(2_000_000, "fastText: hash buckets of the n-grams")
    subwords: tuple[int, int] | Literal["auto"] = key(
        (0, 0), "fastText: shortest and longest character n-gram; 0 switches them off"
    )
    folds: int = key(
        2,
        "parts of the cross-validation on unseen hosts, each costs a training; 0: none, else at least 2",
        ge=0,
    )
    cut: Literal["tokens", "score"] = key(
        "tokens",
        "what is kept of the ranking: its top up to a token budget or down to a score",
        paper="token budget (2.1)",
    )
    budget_tokens: list[int] = key(
        [40_000_000_000, 89_000_000_000, 120_000_000_000],
        "tokens kept per iteration; the last holds for all further ones",
        paper="40B first; 89B and 120B are the known sizes of later corpora (2.1, 5.1)",
        min_length=1,
    )
    threshold: float = key(0.0, "least log-odds of a kept page, where cut is score")
    domain_share: float = key(
        0.1, "a domain is mathematical above this share of kept pages", paper="10 % (2.1)", ge=0
    )
    reviewed: Literal["uncollected", "all"] = key(
        "uncollected",
        "what reviewed prefixes teach: `uncollected`, pages not kept under math prefixes join the seed; "
        "`all`, all pages under them do, and pages under not_math prefixes become negatives",
        paper="uncollected (2.1)",
    )
    converged: float = key(
        0.98,
        "stop when this share of an iteration's pages was collected before",
        paper="nearly 98 % (2.1)",
        gt=0,
        le=1,
    )
    seed: int = key(0, "seed of fastText, of samples and of the split by host", ge=0, le=LARGEST_SEED)
