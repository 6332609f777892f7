"""The workflow as a graph of stage instances, built from the configuration alone.

The rules ask it what an instance reads and which section it runs with; `keys.py` gives each its address.
"""

import re
from collections.abc import Iterable
from functools import cache
from glob import glob
from pathlib import Path
from typing import Any

from pipeline.config.root import Config, ConfigError, hint
from pipeline.stages import MODEL_STAGES
from workflow.crawl import CrawlInstances
from workflow.instances import MINIWEB, Inputs, Instance, Result, is_part
from workflow.models import ModelInstances

REMOTE = ("hub:", "http://", "https://", "s3://")
OWN = {MINIWEB: "miniweb.enabled", "problems:": "problems.source"}  # prefixes of a stage's files, and its key
FORMULAS = "formulas"
SELECTION = re.compile(rf"corpus(?:/(iteration-\d+|{FORMULAS}))?")  # data of a mixture's source
UNSEEN = "out_of_distribution"
URLS = ("seed_urls", "background_urls")
LISTS = (
    "seed_texts",
    "background_texts",
    *URLS,
    "annotations",
    "opt_out",
    "blocklists",
)  # of the corpus


def selection_of(data: str | list[str]) -> str | None:
    """Which of the run's own corpora a mixture's source names: "" for that of the last iteration, else
    iteration-NUMBER or formulas; None for files.
    """
    found = SELECTION.fullmatch(data) if isinstance(data, str) else None
    return (found[1] or "") if found else None


class Graph(CrawlInstances, ModelInstances):
    """All instances of a run by name, in the order of the stages. Each is made by a job of its own."""

    def __init__(self, config: Config) -> None:
        self.config, self._launch_of = config, cache(config.launch_of)
        self._dumps: dict[tuple[int, tuple[str, ...]], dict[str, Any]] = {}
        self.nodes: dict[str, Instance] = {}
        self.missing: list[str] = []  # files of the `data_folder` that are not there yet
        self._miniweb()
        self._problems()
        self._crawl()
        self._corpus()
        self._decontaminate()
        self._tokens()
        self._models()
        self._report()
        self.before = cache(self._before)

    def _before(self, name: str) -> dict[str, None]:
        """The instances whose results an instance reads."""
        sources = (source for _, source in self.nodes[name].inputs)
        return dict.fromkeys(one.node for one in sources if isinstance(one, Result))

    def last(self, names: Iterable[str]) -> list[str]:
        """`names` without those that another of them reads: they are made before that one anyway, unless it
        is pinned.
        """
        named = dict.fromkeys(names)
        read = {before for name in named if name not in self.config.pins for before in self.before(name)}
        return [name for name in named if name not in read]

    def names(self, stage: str) -> list[str]:
        """Names of the instances of a stage."""
        return [name for name, node in self.nodes.items() if node.stage == stage]

    def _add(
        self,
        name: str,
        module: str,
        section: Any,
        inputs: Inputs,
        without: tuple[str, ...] = (),
        **more: Any,
    ) -> None:
        """Add an instance; `without`: keys that it does not depend on; `more`: values filled in here."""
        values = self._dumped(section, without)
        # Sorted by key, so that the order of keys in a file changes nothing; a key's own sources keep theirs.
        ordered = tuple(sorted(inputs, key=lambda pair: pair[0]))
        stage, _, model = name.partition("/")
        launch = self._launch_of(stage, model if stage in MODEL_STAGES else None)
        self.nodes[name] = Instance(
            name, module, type(section), values | more if more else values, ordered, launch
        )

    def _dumped(self, section: Any, without: tuple[str, ...]) -> dict[str, Any]:
        """The keys of a section as JSON values: one mapping for the thousands of instances that share it."""
        mark = (id(section), without)
        if mark not in self._dumps:
            dumped = section.model_dump(mode="json").items()
            self._dumps[mark] = {key: value for key, value in dumped if key not in without}
        return self._dumps[mark]

    def _sources(self, sources: str | list[str] | None, where: str) -> list[str | Result]:
        """Source strings as files or results; globs are expanded, hub ids and URLs stay as they are."""
        found: list[str | Result] = []
        for source in [sources] if isinstance(sources, str) else sources or []:
            if source.startswith(tuple(OWN)):
                found.append(self._own(source, where))
            elif source.startswith(REMOTE):
                if where != "crawl.warc" and not source.startswith("hub:"):
                    raise ConfigError(f"config key {where}: {source}: only crawl.warc reads addresses")
                found.append(source)
            else:
                files = sorted(glob(source)) or self._expected(source, where)
                if not files:
                    raise ConfigError(f"config key {where}: {source}: no such file")
                found += files
        return found

    def _own(self, source: str, where: str) -> Result:
        """`miniweb:<file>` or `problems:<file>`: a file that the stage of that name makes."""
        stage, _, file = source.partition(":")
        if stage not in self.nodes:
            raise ConfigError(f"config key {where}: {source!r} needs {OWN[f'{stage}:']}")
        files = self.config.sections[stage].files
        if file not in files:
            raise ConfigError(f"config key {where}: {source!r} is not generated{hint(file, files)}")
        return Result(stage, file)

    def _expected(self, source: str, where: str) -> list[str]:
        """The source itself where it is to be found in the `data_folder` one day, else nothing."""
        folder = self.config.data_folder
        if folder is None or not source.startswith(f"{folder.rstrip('/')}/"):
            return []
        self.missing.append(f"{where}: {source}")
        return [source]

    def _miniweb(self) -> None:
        if self.config.sections["miniweb"].enabled:
            self._add("miniweb", "pipeline.miniweb", self.config.sections["miniweb"], [])

    def _problems(self) -> None:
        section = self.config.sections["problems"]
        sources = [("source", source) for source in self._sources(section.source, "problems.source")]
        if not sources:
            return
        nodes = self.config.benchmarks
        names = section.kept_out
        if names is None:
            names = [name for name, node in nodes.items() if not is_part(node.source)]
        for name in names:
            if name not in nodes:
                known = hint(name, list(nodes))
                raise ConfigError(f"config key problems.kept_out: no benchmark {name!r}{known}")
        # Only what decides which questions a benchmark has, not how or how many of them are asked.
        which = {"source", "split", "language", "fields"}
        kept_out = {name: nodes[name].model_dump(mode="json", include=which) for name in names}
        inputs = [*sources, *self._benchmark_files(names)]
        # The filled-in benchmarks say which are kept out: null and the list of these are the same.
        self._add(
            "problems", "pipeline.problems", section, inputs, ("source", "kept_out"), benchmarks=kept_out
        )

    def _corpus(self) -> None:
        if "crawl/dedup" not in self.nodes:
            return
        section = self.config.sections["corpus"]
        lists = [
            (key, source) for key in LISTS for source in self._sources(getattr(section, key), f"corpus.{key}")
        ]
        for iteration in range(1, section.iterations + 1):
            self._iteration(iteration, section, lists)

    def _iteration(self, iteration: int, section: Any, lists: Inputs) -> None:
        unhashed = ("iterations", "tokenizer", UNSEEN, *LISTS)
        here, last = f"corpus/iteration-{iteration}", f"corpus/iteration-{iteration - 1}"
        before: Inputs = [("previous", Result(f"{last}/select"))] if iteration > 1 else []
        rounds = [pair for pair in lists if pair[0] == "annotations"]
        lists = [*(pair for pair in lists if pair not in rounds), *rounds[:iteration]]
        if 1 < iteration <= len(rounds):
            before.append(("new_round", rounds[iteration - 1][1]))
        trained, pool = ("train", Result(f"{here}/train")), ("pool", Result("crawl/dedup"))
        unseen = [
            (f"{UNSEEN}.{name}", source)
            for name, path in section.out_of_distribution.items()
            for source in self._sources(path, f"corpus.{UNSEEN}.{name}")
        ]
        taught = [pair for pair in lists if pair[0] not in LISTS[-3:]]
        model, grades = (self._second_stage(section, name) for name in ("embeddings", "grades"))
        inputs = [pool, *taught, *unseen, *before, *model, *grades]
        if section.tokenizer:
            inputs.append(("tokenizer", self._model_source(section.tokenizer, "corpus.tokenizer")))
        shards = self._pool_shards()
        if len(before) == 2:  # a new round teaches before the classifier is trained
            inputs += [pair for pair in lists if pair not in taught]
            inputs += [("previous_score", Result(f"{last}/score-{shard:04d}")) for shard in shards]
        self._add(f"{here}/train", "pipeline.corpus.train", section, inputs, unhashed)
        for shard in shards:
            name = f"score-{shard:04d}"
            inputs = [
                trained,
                ("shard", Result("crawl/dedup", f"pool/{shard:04d}.jsonl.zst")),
                *before,
                *model,
            ]
            inputs += [("previous_score", Result(f"{last}/{name}"))] if iteration > 1 else []
            self._add(f"{here}/{name}", "pipeline.corpus.score", section, inputs, unhashed)
        lists = [pair for pair in lists if pair[0] not in LISTS[:2]]
        scores: Inputs = [("score", Result(f"{here}/score-{shard:04d}")) for shard in shards]
        inputs = [trained, pool, *scores, *lists, *before]
        self._add(f"{here}/select", "pipeline.corpus.select", section, inputs, unhashed)

    def _second_stage(self, section: Any, name: str) -> Inputs:
        """The files of a key of the second stage; none while it is off."""
        stage = section.second_stage
        named = getattr(stage, name) if stage.enabled else None
        return [(name, source) for source in self._sources(named, f"corpus.second_stage.{name}")]

    def _benchmark_files(self, names: Iterable[str]) -> Inputs:
        return [
            (f"benchmark.{name}", source)
            for name in names
            for source in self._sources(self.config.benchmarks[name].source, f"benchmarks.{name}.source")
        ]

    def _decontaminate(self) -> None:
        if "crawl/dedup" not in self.nodes:
            return
        select = Result(f"corpus/iteration-{self.config.sections['corpus'].iterations}/select")
        self._clean("decontaminate", select)
        mixed = [one.data for mixture in self.config.mixtures.values() for one in mixture.sources.values()]
        for selection in dict.fromkeys(filter(None, map(selection_of, mixed))):
            self._clean(f"decontaminate/{selection}", self._selection(selection))
        self._lineage(select)

    def _lineage(self, select: Result) -> None:
        """What became of each page: a job for each part of the pool, and one that puts them together."""
        section, duplicates = self.config.sections["decontaminate"], self._duplicates()
        filters = list(duplicates)
        parts = self.config.sections["crawl"].cluster_parts(len(filters))

        def add(name: str, inputs: Inputs) -> None:
            self._add(name, "pipeline.decontaminate.pages", section, inputs, ("benchmarks",))

        for number, part in enumerate(parts):
            own = f"-{number:04d}" if len(parts) > 1 else ""
            inputs: Inputs = [(name, Result(select.node, f"{name}.parquet")) for name in ("kept", "excluded")]
            removed = dict.fromkeys(table for shard in part for table in duplicates[filters[shard]])
            inputs += [("duplicates", table) for table in removed]
            for shard in part:
                inputs += self._extracted(filters[shard])
                inputs.append(("score", Result(f"{Path(select.node).parent}/score-{shard:04d}")))
                inputs.append(("removals", Result(f"decontaminate/clean-{shard:04d}", "log.jsonl")))
            add(f"decontaminate/pages{own}", inputs)
        if len(parts) > 1:
            names = [f"decontaminate/pages-{number:04d}" for number in range(len(parts))]
            add("decontaminate/pages", [("part", Result(name)) for name in names])

    def _clean(self, folder: str, select: Result) -> None:
        """The instances `FOLDER/clean-SHARD` and `FOLDER/corpus` of the pages that `select` keeps."""
        section = self.config.sections["decontaminate"]
        names = section.benchmarks if section.benchmarks is not None else list(self.config.benchmarks)
        cleaned = []
        for shard in self._pool_shards():
            name = f"{folder}/clean-{shard:04d}"
            given = Result("crawl/dedup", f"pool/{shard:04d}.jsonl.zst")
            inputs = [("shard", given), ("select", select), *self._benchmark_files(names)]
            # The inputs name the benchmarks, so the key says no more: null and a list of all are the same.
            self._add(name, "pipeline.decontaminate.clean", section, inputs, ("benchmarks",))
            cleaned.append(("cleaned", Result(name)))
        inputs = [("pool", Result("crawl/dedup")), ("select", select), *cleaned]
        self._add(f"{folder}/corpus", "pipeline.decontaminate", section, inputs, ("benchmarks",))

    def _selection(self, name: str) -> Result:
        """The instance that chooses pages otherwise than the last iteration."""
        if name == FORMULAS:
            section = self.config.sections["corpus"]
            inputs: Inputs = [("pool", Result("crawl/dedup"))]
            self._add(f"corpus/{name}", "pipeline.corpus.formulas", section, inputs, tuple(dict(section)))
            return Result(f"corpus/{name}")
        if f"corpus/{name}/select" not in self.nodes:
            raise ConfigError(f"config key mixtures: corpus/{name}: no such iteration; see corpus.iterations")
        return Result(f"corpus/{name}/select")

    def _tokens(self) -> None:
        section = self.config.sections["tokens"]
        if any(mixture.tokenizer == "corpus" for mixture in self.config.mixtures.values()):
            texts: Inputs = [("text", source) for source in self._sources(section.texts, "tokens.texts")]
            if "decontaminate/corpus" in self.nodes:
                texts.append(("corpus", Result("decontaminate/corpus", "corpus")))
            self._add("tokens/tokenizer", "pipeline.tokens.tokenizer", section, texts)
        for name, mixture in self.config.mixtures.items():
            own = mixture.tokenizer == "corpus"
            inputs: Inputs = [("tokenizer", Result("tokens/tokenizer"))] if own else []
            for source_name, source in mixture.sources.items():
                where = f"mixtures.{name}.sources.{source_name}"
                selection = selection_of(source.data)
                if selection is not None and "decontaminate/corpus" not in self.nodes:
                    raise ConfigError(f"config key {where}.data: the run has no corpus; set crawl.warc")
                folder = f"decontaminate/{selection}/corpus" if selection else "decontaminate/corpus"
                own_corpus = [Result(folder, "corpus")]
                files = self._sources(source.data, where) if selection is None else own_corpus
                inputs += [(f"source.{source_name}", file) for file in files]
            self._add(f"tokens/{name}", "pipeline.tokens", mixture, inputs)

    def _report(self) -> None:
        section = self.config.sections["report"]
        truth = [("truth", source) for source in self._sources(section.truth, "report.truth")]
        lists = [
            (key, source)
            for key in URLS
            for source in self._sources(getattr(self.config.sections["corpus"], key), f"corpus.{key}")
        ]
        results = [(name, Result(name)) for name in self.nodes]
        texts = [("claims", section.claims), ("paper", section.paper)]
        inputs = [*results, *truth, *lists, *texts]
        more = {"run": self.config.run, "pins": self.config.pins}
        self._add("report", "pipeline.report", section, inputs, **more)
