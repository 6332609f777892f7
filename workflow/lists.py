"""The seed, the reviewed prefixes and the other lists of the corpus, read before the first job: what is wrong
with them would otherwise end a run after the crawl.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from pipeline.core.errors import InputError
from workflow.graph import Graph

SEEDS, BACKGROUNDS = ("seed_urls", "seed_texts"), ("background_urls", "background_texts")
URLS = ("seed_urls", "background_urls", "opt_out", "blocklists")
TRAINING = "pipeline.corpus.train"


def faulty_lists(graph: Graph, names: Iterable[str]) -> Iterator[str]:
    """Yield a line for each fault in the lists of the corpus, if any of these instances belongs to it."""
    nodes = [graph.nodes[name] for name in names if name.startswith("corpus/")]
    if not nodes:
        return
    roles = {role for node in nodes for role, _ in node.inputs}
    if any(node.module == TRAINING for node in nodes) and roles.isdisjoint(SEEDS):
        yield "config key corpus.seed_urls: none, and no seed_texts: name pages or texts of mathematics"
    files: dict[str, dict[Path, None]] = {}
    for role, source in chain.from_iterable(node.inputs for node in nodes):
        if isinstance(source, str) and (path := Path(source)).is_file():
            files.setdefault(role, {})[path] = None
    for role in URLS:
        for path in files.get(role, ()):
            if fault := _fault_of_urls(path, needed=role in (*SEEDS, *BACKGROUNDS)):
                yield f"config key corpus.{role}: {fault}"
    if fault := _fault_of_reviews([*files.get("annotations", ())]):
        yield f"config key corpus.annotations: {fault}"


def _fault_of_urls(path: Path, *, needed: bool) -> str | None:
    from pipeline.crawl.opted_out import read_urls  # half a second to import, and few commands need it

    try:
        urls = read_urls(path)
    except InputError as error:
        return str(error)
    return f"{path}: lists no URL" if needed and not urls else None


def _fault_of_reviews(paths: list[Path]) -> str | None:
    import duckdb

    from pipeline.crawl.annotations import add_annotations

    try:
        with duckdb.connect() as database:
            add_annotations(database, "annotations", *paths)
    except InputError as error:
        return str(error)
    return None
