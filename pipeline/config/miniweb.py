"""Keys of the demo's generated world: its web, what is planted in it, the sizes of its data sets."""

from typing import ClassVar

from pipeline.config.section import LARGEST_SEED, Section, key


class MiniwebSection(Section):
    """A small web with known truth (ours; the paper works on Common Crawl)."""

    filled: ClassVar[tuple[str, ...]] = ("seed",)

    enabled: bool = key(False, "generate the world; off where real WARC files and benchmarks are given")
    seed: int = key(0, "seed of everything in the world; equal seeds give equal bytes", ge=0, le=LARGEST_SEED)
    scale: float = key(
        1.0,
        "factor on the number of hosts; 1: about 380 hosts with 6,500 pages, a family keeps at least 2 hosts",
        gt=0,
        le=10,
    )
    warc_files: int = key(8, "WARC files that the records are spread over", ge=1)
    background: int = key(700, "pages in `background_urls.txt`, a general sample", ge=1)
    exact_duplicates: int = key(160, "pages repeated byte for byte under a variant of their URL", ge=0)
    near_duplicates: int = key(100, "pages repeated with edits on a mirror in another layout", ge=0)
    leaks: int = key(30, "pages that hold a benchmark question word for word", ge=0)
    sft: int = key(12000, "supervised fine-tuning examples", ge=1)
    rl: int = key(4000, "prompts with known answers for the reward model and RL", ge=1)
    test: int = key(1000, "test problems: story frames known from training, unseen people and things", ge=1)
    dev: int = key(300, "development problems: of the kind of `test`, and none of its questions", ge=1)
    heldout: int = key(500, "test problems with story frames that training text never shows", ge=1)
    drill: int = key(
        60, "short test questions, 3 to 9 grams, for the exact-match rule of decontamination", ge=1
    )

    texts: int = key(
        0,
        "papers, files of source code and pages of prose beside the web, so many of each; 0: no files",
        ge=0,
    )

    @property
    def files(self) -> list[str]:
        """Every file that is generated; `miniweb:<file>` names one."""
        data: tuple[str, ...] = (
            "sft",
            "sft_worked",
            "sft_tool",
            "rl",
            "test",
            "dev",
            "heldout",
            "drill",
            "labels",
        )
        data += ("papers", "code", "prose") if self.texts else ()
        lists = ("seed_urls.txt", "background_urls.txt", "annotations.tsv")
        web = (f"warc/miniweb-{number:05d}.warc.gz" for number in range(self.warc_files))
        return [*(f"{name}.jsonl" for name in data), *lists, *web]
