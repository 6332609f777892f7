"""The instances of stage `crawl`: from files and indexes to the pool."""

from collections import Counter
from glob import glob
from itertools import chain
from typing import Any

from pipeline.config.crawl import TextSource
from pipeline.config.root import ConfigError
from pipeline.core.addresses import is_remote
from pipeline.core.data.rows import FORMATS, HUB
from pipeline.core.errors import InputError
from pipeline.core.manifest import fingerprint
from pipeline.crawl.sources import expand_lists, file_name
from pipeline.crawl.text_files import hub_files, lineage_name
from workflow.instances import MINIWEB, Inputs, Instance, Instances, Result


def add_crawl(graph: Instances) -> None:
    """Add the jobs that make the pool: of all files at once or, with `crawl.order: math_first`, of each dump
    and then of what is left of several.
    """
    section = graph.config.sections["crawl"]
    files = _warc_files(graph, section)
    texts = {name: _text_files(graph, name, source) for name, source in section.text_sources.items()}
    if not files and not texts:
        return
    lost = set(section.lost_files)
    if lost and (unknown := lost - {_name_of(file) for _, file in files}):
        raise ConfigError(f"config key crawl.lost_files: {min(unknown)}: no file of crawl.warc")
    dumps: dict[str | None, Inputs] = {}
    for name, file in files:
        dumps.setdefault(None if section.order == "paper" else name, []).append(("warc", file))
    found: dict[str, list[Result]] = {}
    pages = {name: _extracts(graph, section, own) for name, own in dumps.items()}
    for source, own in texts.items():
        name = None if section.order == "paper" else source or "texts"
        pages.setdefault(name, []).extend(_extracts(graph, section, own, source))
    for name, extracts in pages.items():
        which = "" if name is None else f"-{files_name([name])}"
        if extracts:
            found[which] = _deduplicated(graph, section, which, extracts)
    shards, within = list(chain(*found.values())), []
    if len(found) > 1:
        within = [(f"dump.{place:04d}", shard) for place, own in enumerate(found.values()) for shard in own]
        shards = _deduplicated(graph, section, "", shards)
    _add(graph, "dedup", "", [*(("filter", one) for one in shards), *within])


def pool_shards(graph: Instances) -> range:
    """Count the pool's shards, from 0 on."""
    return range(len(graph.read("crawl/dedup", "filter")))


def duplicates(graph: Instances) -> dict[str, list[Result]]:
    """List the tables of the duplicates by shard of the pool, as results of `filter`: of those among the
    pages that it is made from, and of those that went before, within their dumps, which `dedup` wrote.
    """
    number, inputs = len(pool_shards(graph)), graph.nodes["crawl/dedup"].inputs
    dumps = dict.fromkeys(role for role, _ in inputs if role.startswith("dump."))
    within = {
        shard: Result("crawl/dedup", f"duplicates/{place:04d}.parquet")
        for place, dump in enumerate(dumps, start=number)
        for shard in graph.read("crawl/dedup", dump)
    }
    found = {}
    for shard in (one.node for one in graph.read("crawl/dedup", "filter")):
        before = dict.fromkeys(within[dump] for dump in graph.read(shard, "extract") if dump in within)
        found[shard] = [Result(shard, "removed.parquet"), *before]
    return found


def extracted(graph: Instances, shard: str) -> Inputs:
    """List the results of extraction that a result of `filter` is made from."""
    found: Inputs = []
    for source in graph.read(shard, "extract"):
        filtered = graph.nodes[source.node].module.endswith("filter")  # of one dump
        found += extracted(graph, source.node) if filtered else [("extract", source)]
    return found


def files_name(files: list[str | Result]) -> str:
    """Make a name that goes with the files and not with their place in a list that may grow anywhere."""
    return fingerprint({"files": [str(file) for file in files]})


def is_downloading(node: Instance) -> bool:
    """Whether an instance reads WARC files, or records of an index, from a server."""
    from pipeline.crawl.index import is_index  # slow to import, and no other job needs it

    base = is_remote(node.section.get("base_url", ""))
    named = (source for role, source in node.inputs if role == "warc")
    sources = [source.path if isinstance(source, Result) else source for source in named]
    texts = (source for role, source in node.inputs if role == "texts")
    of_hub = any(isinstance(source, str) and source.startswith(HUB) for source in texts)
    return of_hub or any(is_remote(source) or (base and is_index(source)) for source in sources)


def _add(
    graph: Instances, program: str, which: str, inputs: Inputs, unread: tuple[str, ...] = (), **more: Any
) -> Result:
    section = graph.config.sections["crawl"]
    return graph.add(f"crawl/{program}{which}", f"pipeline.crawl.{program}", section, inputs, unread, **more)


def _extracts(graph: Instances, section: Any, files: Inputs, source: str = "") -> list[Result]:
    """Add a job for each `files_per_shard` files, of the named `source` of texts if there is one; none for
    files that are all given up.
    """
    size, lost, found = section.files_per_shard, set(section.lost_files), []
    own = [name.rpartition(":")[0] for name in section.filters if ":" in name]
    filters = graph.inputs("filter", own, "crawl.filters")
    more = {}
    if source:  # where its files lie is said by the inputs
        named = section.text_sources[source].model_copy(update={"data": "", "pattern": "*"})
        more = {"texts": {source: named.model_dump(mode="json")}}
    for group in (files[start : start + size] for start in range(0, len(files), size)):
        if inputs := [(role, file) for role, file in group if not lost or _name_of(file) not in lost]:
            own_files = [file for _, file in group]
            name = f"-{files_name([source, *own_files] if source else own_files)}"
            unread = () if group[0][0] == "texts" else ("fields",)  # columns
            found.append(_add(graph, "extract", name, [*inputs, *filters], unread, **more))
    return found


def _name_of(file: str | Result) -> str:
    """Get the name of a WARC file or index."""
    return file_name(file.path if isinstance(file, Result) else file)


def _deduplicated(graph: Instances, section: Any, which: str, pages: list[Result]) -> list[Result]:
    """Get shards of `pages` without duplicates among all of them; `which` is in the names of the jobs.

    `exact` and `survivors` list all signed shards by path and digest, so that no other job names them all.
    """
    signed: Inputs = []
    for one in pages:
        own = one.node.partition("-")[2]
        signed.append(("sign", _add(graph, "sign", f"-{own}", [("extract", one)])))
    same: Inputs = [("exact", _add(graph, "exact", which, signed))]
    pairs = [_add(graph, "buckets", f"{which}-{job:04d}", same) for job in range(section.bucket_jobs)]
    similar: Inputs = [*same, *(("buckets", one) for one in pairs)]
    survivors = _add(graph, "survivors", which, similar).node
    removed = [Result(survivors, f"removed/{rank:05d}.parquet") for rank in range(len(pages))]
    found = []
    for number, part in enumerate(section.pool_parts(len(pages))):
        inputs: Inputs = [("extract", pages[rank]) for rank in part]
        inputs += [("removed", removed[rank]) for rank in part]
        found.append(_add(graph, "filter", f"{which}-{number:04d}", inputs))
    return found


def _warc_files(graph: Instances, section: Any) -> list[tuple[str, str | Result]]:
    """List the files, each after the list that names it."""
    sources = [section.warc] if isinstance(section.warc, str) else section.warc or []
    if any(source.startswith(MINIWEB) for source in sources):
        return [("", file) for file in graph.sources(sources, "crawl.warc")]
    expected = [source for source in sources if not glob(source) and graph.expected(source, "crawl.warc")]
    try:
        there = [source for source in sources if source not in expected]
        return [*expand_lists(there, section.base_url), *((source, source) for source in expected)]
    except InputError as error:
        raise ConfigError(f"config key crawl.warc: {error}") from error


def _text_files(graph: Instances, name: str, source: TextSource) -> Inputs:
    """Get the files of a source of texts. Raises ConfigError for an unknown kind and for two of one name."""
    where = f"crawl.texts.{name}" if name else "crawl.texts"
    files: list[str | Result] = []
    for one in [source.data] if isinstance(source.data, str) else source.data:
        if one.startswith(HUB) and not name:
            raise ConfigError(
                f"config key {where}: {one}: give a source of the hub a name: {{NAME: {{data: {one}}}}}"
            )
        try:
            if one.startswith(HUB):
                files += hub_files(one, source.pattern)
                continue
        except InputError as error:
            raise ConfigError(f"config key {where}: {error}") from error
        files += graph.sources(one, where)
    names = (lineage_name(file) if isinstance(file, str) else _name_of(file) for file in files)
    for file, times in Counter(names).items():
        if not file.endswith(FORMATS):
            raise ConfigError(
                f"config key {where}: {file}: unknown kind of file; known: {', '.join(FORMATS)}"
            )
        if times > 1:
            raise ConfigError(
                f"config key {where}: {file}: two files of this name; lineage needs different names"
            )
    return [("texts", file) for file in files]
