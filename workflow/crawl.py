"""The instances of stage `crawl`: from files and indexes to the pool."""

from collections.abc import Sequence
from glob import glob
from typing import TYPE_CHECKING, Any

from pipeline.config.crawl import PROGRAM_KEYS, CrawlSection
from pipeline.config.root import ConfigError
from pipeline.crawl.sources import expand_lists
from pipeline.protocol.stage import InputError
from workflow.instances import MINIWEB, Inputs, Result, file_of, files_name

if TYPE_CHECKING:
    from workflow.graph import Graph


class CrawlInstances:
    """The part of the graph that builds them."""

    def _crawl(self: "Graph") -> None:
        section = self.config.sections["crawl"]
        files = [*self._warc_files(section), *(("", file) for file in self._looked_up(section))]
        if not files:
            return
        lost = set(section.lost_files)
        if lost and (unknown := lost - {file_of(file) for _, file in files}):
            raise ConfigError(f"config key crawl.lost_files: {min(unknown)}: no file of crawl.warc")
        if section.order == "paper":
            self._pool(self._deduplicated(section, "", self._extracts(section, [file for _, file in files])))
            return
        dumps: dict[str, list[str | Result]] = {}
        for name, file in files:
            dumps.setdefault(name, []).append(file)
        found = {}
        for name, own in dumps.items():
            which = f"-{files_name([name])}"
            if pages := self._extracts(section, own):
                found[which] = self._deduplicated(section, which, pages)
        shards = [shard for dump in found.values() for shard in dump]
        if len(found) > 1:
            together = self._deduplicated(section, "", shards)
            self._pool(together, self._staying(found, together))
        else:
            self._pool(shards)

    def _extracts(self: "Graph", section: Any, files: list[str | Result]) -> list[Result]:
        """A job for each `files_per_shard` files; none for files that are all given up."""
        size, lost, found = section.files_per_shard, set(section.lost_files), []
        for group in (files[start : start + size] for start in range(0, len(files), size)):
            if inputs := [("warc", file) for file in group if not lost or file_of(file) not in lost]:
                found.append(self._crawl_program("extract", f"-{files_name(group)}", inputs))
        return found

    def _crawl_program(self: "Graph", program: str, which: str, inputs: Inputs) -> Result:
        """Add an instance with the keys that its program depends on."""
        without = tuple(key for key in CrawlSection.model_fields if key not in PROGRAM_KEYS[program])
        name = f"crawl/{program}{which}"
        self._add(name, f"pipeline.crawl.{program}", self.config.sections["crawl"], inputs, without)
        return Result(name)

    def _deduplicated(self: "Graph", section: Any, which: str, pages: list[Result]) -> list[Result]:
        """Shards of `pages` without duplicates among all of them; `which` is in the names of the jobs.

        `exact` and `resolve` list all signed shards by path and digest, so that no other job names them all.
        """
        signed: Inputs = []
        for one in pages:
            own = one.node.partition("-")[2]
            signed.append(("sign", self._crawl_program("sign", f"-{own}", [("extract", one)])))
        same: Inputs = [("exact", self._crawl_program("exact", which, signed))]
        jobs = range(section.bucket_jobs)
        pairs = [self._crawl_program("buckets", f"{which}-{job:04d}", same) for job in jobs]
        similar: Inputs = [*same, *(("buckets", one) for one in pairs)]
        removed = self._removed(section, which, similar, len(pages))
        found = []
        for number, part in enumerate(section.pool_parts(len(pages))):
            inputs: Inputs = [("extract", pages[rank]) for rank in part]
            inputs += [("removed", removed[rank]) for rank in part]
            found.append(self._crawl_program("filter", f"{which}-{number:04d}", inputs))
        return found

    def _pool(self: "Graph", shards: list[Result], staying: Sequence[Result] = ()) -> None:
        """The pool of `shards`; `staying`: what stays for the pages that went before, within their dumps."""
        inputs: Inputs = [*(("filter", one) for one in shards), *(("staying", one) for one in staying)]
        self._crawl_program("dedup", "", inputs)

    def _staying(self: "Graph", dumps: dict[str, list[Result]], shards: list[Result]) -> list[Result]:
        """Which pages of the pool, of `shards`, stay for those that went within each of the `dumps`. The job
        of a dump takes some minutes; of several, each would name all shards.
        """
        read = {shard: set(self._read(shard.node, "extract")) for shard in shards}
        found = []
        for which, own in dumps.items():
            after = [shard for shard, sources in read.items() if not sources.isdisjoint(own)]
            inputs: Inputs = [*(("dump", shard) for shard in own), *(("filter", shard) for shard in after)]
            found.append(self._crawl_program("across_dumps", which, inputs))
        return found

    def _duplicates(self: "Graph") -> dict[str, list[Result]]:
        """By shard of the pool, as results of `filter`: the tables of the duplicates among the pages that it
        is made from, also of those that went before, within their dumps.
        """
        within = {
            dump: Result(staying.node, "staying.parquet")
            for staying in self._read("crawl/dedup", "staying")
            for dump in self._read(staying.node, "dump")
        }
        found = {}
        for shard in (one.node for one in self._read("crawl/dedup", "filter")):
            before = dict.fromkeys(within[dump] for dump in self._read(shard, "extract") if dump in within)
            found[shard] = [Result(shard, "removed.parquet"), *before]
        return found

    def _removed(self: "Graph", section: Any, which: str, inputs: Inputs, shards: int) -> list[Result]:
        """The tables of the pages that go, of each of so many shards."""
        parts, later = section.cluster_parts(shards), []
        for number in reversed(range(len(parts))):
            pairs = [*inputs, *(("later", one) for one in later)]
            later.insert(0, self._crawl_program("cluster", f"{which}-{number:04d}", pairs))
        found = []
        for number, part in enumerate(parts):
            forests: Inputs = [inputs[0], *(("cluster", one) for one in later[: number + 1])]
            node = self._crawl_program("resolve", f"{which}-{number:04d}", forests)
            found += [Result(node.node, f"removed/{rank:05d}.parquet") for rank in part]
        return found

    def _pool_shards(self: "Graph") -> range:
        """Numbers of the pool's shards."""
        return range(len(self._read("crawl/dedup", "filter")))

    def _read(self: "Graph", name: str, key: str) -> list[Result]:
        """The results that an instance reads under a key."""
        inputs = self.nodes[name].inputs
        return [source for kind, source in inputs if kind == key and isinstance(source, Result)]

    def _extracted(self: "Graph", shard: str) -> Inputs:
        """The results of extraction that a result of `filter` is made from."""
        found: Inputs = []
        for source in self._read(shard, "extract"):
            filtered = self.nodes[source.node].module.endswith("filter")  # of one dump
            found += self._extracted(source.node) if filtered else [("extract", source)]
        return found

    def _warc_files(self: "Graph", section: Any) -> list[tuple[str, str | Result]]:
        """The files, each after the list that names it."""
        sources = [section.warc] if isinstance(section.warc, str) else section.warc or []
        if any(source.startswith(MINIWEB) for source in sources):
            return [("", file) for file in self._sources(sources, "crawl.warc")]
        expected = [source for source in sources if not glob(source) and self._expected(source, "crawl.warc")]
        try:
            there = [source for source in sources if source not in expected]
            return [*expand_lists(there, section.base_url), *((source, source) for source in expected)]
        except InputError as error:
            raise ConfigError(f"config key crawl.warc: {error}") from error

    def _looked_up(self: "Graph", section: Any) -> list[Result]:
        """The range tables of what is looked up in an index; their WARC files are below `base_url`."""
        lookup = section.lookup
        if not lookup.index:
            return []
        from pipeline.crawl.lookup import index_files  # the database is slow to import, and few runs look up

        listed = ("urls", "hosts", "prefixes")
        try:
            inputs: Inputs = [("index", file) for file in index_files(lookup.index, section.base_url)]
        except InputError as error:
            raise ConfigError(f"config key crawl.lookup.index: {error}") from error
        for name in listed:
            where = f"crawl.lookup.{name}"
            inputs += [(name, source) for source in self._sources(getattr(lookup, name), where)]
        self._add("crawl/lookup", "pipeline.crawl.lookup", lookup, inputs, ("index", *listed))
        return [Result("crawl/lookup", f"ranges/{number:04d}.parquet") for number in range(lookup.tables)]
