"""Keys of the grades that a language model gives to pages of the pool."""

from typing import ClassVar

from pipeline.config.section import LARGEST_SEED, Section, key

PAGE_BYTES = 4000  # of a page that the model sees, about 1,200 tokens
ANSWER_TOKENS = 128  # of its answer at most


class AnnotateSection(Section):
    """Grades of pages by a language model, which the second stage of the corpus learns (ours)."""

    shares: ClassVar[bool] = True
    files: ClassVar[tuple[str, ...]] = ("grades.jsonl", "ungraded.jsonl")  # that are made

    model: str | None = key(
        None, "folder or hub id of a model with a chat template that grades pages; null: none is graded"
    )
    pages: int = key(500_000, "pages of the pool that are graded, drawn by a hash of their URLs", ge=1)
    prompt: str = key(
        "configs/prompts/page-mark.txt",
        "file with what the model is asked: {page} stands for the beginning of a page; its answer must have"
        " a line `Mark: N`, N from 0 to 5",
    )
    seed: int = key(0, "seed of that hash", ge=0, le=LARGEST_SEED)
