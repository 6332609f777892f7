"""Keys of the demo's generated world: its size, and those of its data sets."""

from typing import ClassVar

from pipeline.core.section import LARGEST_SEED, Section, key

WARC_FILES = 8
DATA = ("sft", "sft_worked", "sft_tool", "rl", "test", "dev", "heldout", "drill", "labels")


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
    sft: int = key(12000, "supervised fine-tuning examples", ge=1)
    rl: int = key(4000, "prompts with known answers for the reward model and RL", ge=1)
    test: int = key(1000, "test problems: story frames known from training, unseen people and things", ge=1)
    texts: int = key(
        0,
        "papers, files of source code and pages of prose beside the web, so many of each; 0: no files",
        ge=0,
    )

    @property
    def files(self) -> list[str]:
        """Every file that is generated; `miniweb:<file>` names one."""
        data = DATA + (("papers", "code", "prose") if self.texts else ())
        lists = ("seed_urls.txt", "background_urls.txt", "annotations.tsv")
        web = (f"warc/miniweb-{number:05d}.warc.gz" for number in range(WARC_FILES))
        return [*(f"{name}.jsonl" for name in data), *lists, *web]
