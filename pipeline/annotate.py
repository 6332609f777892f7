"""Let a language model grade a sample of the pool, for the second stage of the corpus (ours; FineMath and
FineWeb-Edu taught their classifiers so).

Inputs: `pool`, the deduplicated crawl; `model`, a folder or hub id; `prompt`, what it is asked. Outputs:
`grades.jsonl`, which `corpus.second_stage.grades` reads: the `url` of a page, its `grade` from 0 to 5 and the
model's `answer`; `ungraded.jsonl`, the pages whose answers have no mark, and how these ended. No mark is
guessed; where more than `MOST_UNGRADED` of the answers have none, the program ends with an error.

The sample are the pages whose URLs have the lowest hashes, so it is the same however the pool is cut into
shards. The model sees the first `PAGE_BYTES` of a page and answers greedily. Ranks share out batches of
pages, each with an engine of its own, and save them: a killed run goes on with the next batch.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

import pipeline.training.environment  # noqa: F401 (before torch and vLLM)
from pipeline.config.annotate import ANSWER_TOKENS, PAGE_BYTES, AnnotateSection
from pipeline.data.shards import read_documents, shard_paths, table_schema, write_table
from pipeline.data.workers import map_forked
from pipeline.protocol.progress import Progress
from pipeline.protocol.stage import Counts, InputError, Stage, label, run_stage
from pipeline.protocol.watchdog import beat, enter
from pipeline.ranks.queue import Batch, make_together, queue_of_ranks
from pipeline.training.asking import draw_in_context, message_tokens, open_model

PAGE = "{page}"
BATCH = 256  # pages between two saves, as many as vLLM answers at once
MARK = re.compile(r"^[ *]*Mark:[ *]*([0-5])[ *.]*$", re.MULTILINE)
MOST_UNGRADED, ENOUGH = 0.2, 1000  # share of the answers; so many answers of a rank show it
SAMPLE = "pages.parquet"
PAGES = table_schema(url=str, text=str)


def mark_of(answer: str) -> int | None:
    """Return the mark of an answer; None if it has none, or two that differ."""
    found = set(MARK.findall(answer))
    return int(found.pop()) if len(found) == 1 else None


def read_template(path: Path) -> str:
    """Read what the model is asked. Raises InputError."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); save it as UTF-8") from error
    if text.count(PAGE) != 1:
        raise InputError(f"{path}: {PAGE} has to stand in it once, for the page")
    return text


def check_marks(answers: int, ungraded: int) -> None:
    """Raise InputError where too many answers have no mark."""
    if ungraded > MOST_UNGRADED * answers:
        raise InputError(
            f"annotate.model: {ungraded:,} of {answers:,} answers have no line `Mark: N`, more than"
            f" {MOST_UNGRADED:.0%}; name a model that follows annotate.prompt, or write that otherwise"
        )


def _place(seed: int, url: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}:{url}".encode(), digest_size=8).digest())


def _places(shard: Path, seed: int) -> NDArray[np.uint64]:
    urls = (document.metadata["url"] for document in read_documents(shard))
    return np.fromiter((_place(seed, url) for url in urls), np.uint64)


def _rows(shard: Path, seed: int, last: int) -> list[dict[str, str]]:
    """Return the pages of a shard whose hashes are not above `last`, each as far as the model sees it."""
    return [
        {"url": url, "text": document.text.encode()[:PAGE_BYTES].decode(errors="ignore")}
        for document in read_documents(shard)
        if _place(seed, url := document.metadata["url"]) <= last
    ]


def draw_sample(stage: Stage[AnnotateSection]) -> None:
    """Write the sample to the work folder, a batch in each group of rows, in the order of the pool."""
    path, section = stage.work / SAMPLE, stage.config
    if path.exists():
        return
    shards = shard_paths(stage.input("pool") / "pool")
    with Progress(f"{label(stage)}: draws pages", 2 * len(shards), unit="shard") as bar:

        def each(function: Callable[[Path], Any]) -> Iterator[Any]:
            for found in map_forked(function, shards, stage.launch.get("threads", 1)):
                yield found
                bar.update()
                beat()

        places = np.sort(np.concatenate(list(each(partial(_places, seed=section.seed)))))
        if not len(places):
            raise InputError(f"{stage.input('pool')}: no pages; look why crawl rejected all")
        last = int(places[: section.pages][-1])
        rows = (row for found in each(partial(_rows, seed=section.seed, last=last)) for row in found)
        write_table(path, rows, PAGES, BATCH)


class Annotator:
    """Asks the model about batches of the sample."""

    def __init__(self, stage: Stage[AnnotateSection]) -> None:
        self.stage, self.model = stage, open_model(stage.source("model"))
        self.template = read_template(stage.input("prompt"))
        self.context = min(self.model.context, len(self._prompt("")) + PAGE_BYTES + ANSWER_TOKENS)
        self.seen: Counter[bool] = Counter()  # answers of this process, and whether they have a mark

    @cached_property
    def engine(self) -> Any:
        from pipeline.training.generation import Generator

        return Generator(self.model.path, dtype=self.model.dtype, max_model_len=self.context)

    def batches(self) -> list[Batch]:
        """Return the work items: [URL, answer, how it ended] of each page of a group of rows."""
        sample, folder = pq.ParquetFile(self.stage.work / SAMPLE), self.stage.work / "answers"

        def make(number: int) -> list[Any]:
            return self._answers(sample.read_row_group(number).to_pylist())

        # The work folder is named after all else that decides a batch.
        return [Batch(folder, f"{n:06d}", dict, partial(make, n)) for n in range(sample.num_row_groups)]

    def _prompt(self, page: str) -> list[int]:
        text = self.template.replace(PAGE, page)
        return message_tokens(self.model.tokenizer, text, self.model.path)

    def _answers(self, pages: list[dict[str, str]]) -> list[list[str]]:
        enter("annotation")
        prompts = [self._prompt(page["text"]) for page in pages]
        rooms = [min(ANSWER_TOKENS, self.context - len(prompt)) for prompt in prompts]
        drawn = draw_in_context(self.engine, prompts, rooms, None, self.stage.counters, temperature=0.0)
        found = []
        for page, samples in zip(pages, drawn, strict=True):
            text, ended = "", "prompt_too_long"
            for sample in samples:
                text = self.model.tokenizer.decode(sample.token_ids, skip_special_tokens=True)
                ended = sample.finish_reason
            found.append([page["url"], text, ended])
            self.seen[mark_of(text) is not None] += 1
        if self.seen.total() >= ENOUGH:
            check_marks(self.seen.total(), self.seen[False])
        return found


def write_grades(folder: Path, batches: list[Batch]) -> Counter[str]:
    """Write the grades and what has none; returns their counts. Raises InputError as `check_marks` does."""
    counts = Counter(pages=0, graded=0, ungraded=0)
    with (folder / "grades.jsonl").open("w") as grades, (folder / "ungraded.jsonl").open("w") as ungraded:
        for url, answer, ended in (row for batch in batches for row in batch.rows()):
            mark = mark_of(answer)
            own = {"url": url, "ended": ended} if mark is None else {"url": url, "grade": mark}
            line = json.dumps(own | {"answer": answer}, ensure_ascii=False)
            (ungraded if mark is None else grades).write(f"{line}\n")
            kinds = ("ungraded", f"ungraded_{ended}") if mark is None else ("graded", f"graded_{mark}")
            counts.update(["pages", *kinds])
    check_marks(counts["pages"], counts["ungraded"])
    return counts


def run(stage: Stage[AnnotateSection]) -> Counts:
    """Grade the sample; returns the numbers of pages, of grades by value, and of answers without a mark."""
    queue, annotator = queue_of_ranks(stage.counters), Annotator(stage)
    queue.on_rank_0(lambda: draw_sample(stage))
    batches = annotator.batches()
    make_together(queue, f"{label(stage)}: answers", batches)
    return dict(sorted(write_grades(stage.partial, batches).items())) if stage.is_main else {}


if __name__ == "__main__":
    run_stage("annotate", AnnotateSection, run)
