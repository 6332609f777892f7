"""The instances of the stages `corpus`, `decontaminate` and `tokens`: from the pool to mixtures of tokens."""

import re
from pathlib import Path
from typing import Any

from pipeline.config.root import ConfigError
from workflow.crawl import duplicates, extracted, pool_shards
from workflow.instances import Inputs, Instances, Result

FORMULAS, POOL = "formulas", "pool"
SELECTION = re.compile(rf"corpus(?:/(iteration-\d+|{FORMULAS}|{POOL}))?")  # data of a mixture's source
URLS = ("seed_urls", "background_urls")
OPTED_OUT = ("opt_out", "blocklists")
LISTS = ("seed_texts", "background_texts", *URLS, "annotations", *OPTED_OUT)


def _selection_of(data: str | list[str]) -> str | None:
    """Read which of the run's own corpora a mixture's source names: "" for that of the last iteration, else
    iteration-NUMBER, formulas or pool; None for files.
    """
    found = SELECTION.fullmatch(data) if isinstance(data, str) else None
    return (found[1] or "") if found else None


def lists_of(graph: Instances, keys: tuple[str, ...]) -> Inputs:
    """Give the files of these keys of the section `corpus`, as inputs of the same names."""
    section = graph.config.sections["corpus"]
    return [pair for key in keys for pair in graph.inputs(key, getattr(section, key), f"corpus.{key}")]


def add_corpus(graph: Instances) -> None:
    """Add the iterations of the classifier loop, unrolled."""
    if "crawl/dedup" not in graph.nodes:
        return
    section = graph.config.sections["corpus"]
    lists = lists_of(graph, LISTS)
    for iteration in range(1, section.iterations + 1):
        _iteration(graph, iteration, section, lists)


def _iteration(graph: Instances, iteration: int, section: Any, lists: Inputs) -> None:
    here, last = f"corpus/iteration-{iteration}", f"corpus/iteration-{iteration - 1}"
    before: Inputs = [("previous", Result(f"{last}/select"))] if iteration > 1 else []
    rounds = [pair for pair in lists if pair[0] == "annotations"]
    lists = [*(pair for pair in lists if pair not in rounds), *rounds[:iteration]]
    if 1 < iteration <= len(rounds):
        before.append(("new_round", rounds[iteration - 1][1]))
    trained, pool = ("train", Result(f"{here}/train")), ("pool", Result("crawl/dedup"))
    taught = [pair for pair in lists if pair[0] != "annotations"]
    inputs = [pool, *taught, *before]
    if section.tokenizer:
        inputs.append(("tokenizer", graph.model_source(section.tokenizer, "corpus.tokenizer")))
    shards = pool_shards(graph)
    if len(before) == 2:  # a new round teaches before the classifier is trained
        inputs += [pair for pair in lists if pair not in taught]
        inputs += [("previous_score", Result(f"{last}/score-{shard:04d}")) for shard in shards]
    graph.add(f"{here}/train", "pipeline.corpus.train", section, inputs)
    for shard in shards:
        name = f"score-{shard:04d}"
        given = ("shard", Result("crawl/dedup", f"pool/{shard:04d}.jsonl.zst"))
        inputs = [trained, given, *before]
        inputs += [("previous_score", Result(f"{last}/{name}"))] if iteration > 1 else []
        graph.add(f"{here}/{name}", "pipeline.corpus.score", section, inputs)
    lists = [pair for pair in lists if pair[0] not in LISTS[:2]]
    scores: Inputs = [("score", Result(f"{here}/score-{shard:04d}")) for shard in shards]
    inputs = [trained, pool, *scores, *lists, *before]
    graph.add(f"{here}/select", "pipeline.corpus.select", section, inputs)


def add_decontamination(graph: Instances) -> None:
    """Add the cleaning of each selection of pages in use, and the ledger of what became of each page."""
    if "crawl/dedup" not in graph.nodes:
        return
    select = Result(f"corpus/iteration-{graph.config.sections['corpus'].iterations}/select")
    _clean(graph, "decontaminate", select)
    mixed = [one.data for mixture in graph.config.mixtures.values() for one in mixture.sources.values()]
    for selection in dict.fromkeys(filter(None, map(_selection_of, mixed))):
        chosen = None if selection == POOL else _selection(graph, selection)
        _clean(graph, f"decontaminate/{selection}", chosen)
    _lineage(graph, select)


def _lineage(graph: Instances, select: Result) -> None:
    """Add what became of each page: a job for each part of the pool, and one that puts them together."""
    section, removed = graph.config.sections["decontaminate"], duplicates(graph)
    filters = list(removed)
    parts = graph.config.sections["crawl"].ledger_parts(len(filters))

    def add(name: str, inputs: Inputs) -> None:
        graph.add(name, "pipeline.decontaminate.pages", section, inputs)

    for number, part in enumerate(parts):
        own = f"-{number:04d}" if len(parts) > 1 else ""
        inputs: Inputs = [(name, Result(select.node, f"{name}.parquet")) for name in ("kept", "excluded")]
        tables = dict.fromkeys(table for shard in part for table in removed[filters[shard]])
        inputs += [("duplicates", table) for table in tables]
        for shard in part:
            inputs += extracted(graph, filters[shard])
            inputs.append(("score", Result(f"{Path(select.node).parent}/score-{shard:04d}")))
            inputs.append(("removals", Result(f"decontaminate/clean-{shard:04d}", "log.jsonl")))
        add(f"decontaminate/pages{own}", inputs)
    if len(parts) > 1:
        names = [f"decontaminate/pages-{number:04d}" for number in range(len(parts))]
        add("decontaminate/pages", [("part", Result(name)) for name in names])


def _clean(graph: Instances, folder: str, select: Result | None) -> None:
    """Add the instances `FOLDER/clean-SHARD` and `FOLDER/corpus` of what `select` keeps, or of all pages."""
    section, names = graph.config.sections["decontaminate"], list(graph.config.benchmarks)
    fields, cleaned = graph.benchmark_fields(names), []
    chosen: Inputs = [("select", select)] if select else []
    without = [] if select else lists_of(graph, OPTED_OUT)
    for shard in pool_shards(graph):
        name, given = f"{folder}/clean-{shard:04d}", Result("crawl/dedup", f"pool/{shard:04d}.jsonl.zst")
        inputs = [("shard", given), *chosen, *without, *graph.benchmark_files(names)]
        clean = graph.add(name, "pipeline.decontaminate.clean", section, inputs, fields=fields)
        cleaned.append(("cleaned", clean))
    inputs = [("pool", Result("crawl/dedup")), *chosen, *cleaned]
    graph.add(f"{folder}/corpus", "pipeline.decontaminate", section, inputs)


def _selection(graph: Instances, name: str) -> Result:
    """Give the instance that chooses pages otherwise than the last iteration."""
    if name == FORMULAS:
        section = graph.config.sections["corpus"]
        inputs: Inputs = [("pool", Result("crawl/dedup")), *lists_of(graph, OPTED_OUT)]
        return graph.add(f"corpus/{name}", "pipeline.corpus.formulas", section, inputs)
    if f"corpus/{name}/select" not in graph.nodes:
        raise ConfigError(f"config key mixtures: corpus/{name}: no such iteration; see corpus.iterations")
    return Result(f"corpus/{name}/select")


def add_tokens(graph: Instances) -> None:
    """Add the run's own tokenizer, if a mixture uses it, and the mixtures."""
    section = graph.config.sections["tokens"]
    if any(mixture.tokenizer == "corpus" for mixture in graph.config.mixtures.values()):
        texts = graph.inputs("text", section.texts, "tokens.texts")
        if "decontaminate/corpus" in graph.nodes:
            texts.append(("corpus", Result("decontaminate/corpus", "corpus")))
        graph.add("tokens/tokenizer", "pipeline.tokens.tokenizer", section, texts)
    for name, mixture in graph.config.mixtures.items():
        own = Result("tokens/tokenizer") if mixture.tokenizer == "corpus" else None
        named = own or graph.model_source(mixture.tokenizer, f"mixtures.{name}.tokenizer")
        inputs: Inputs = [("tokenizer", named)]
        for source_name, source in mixture.sources.items():
            where = f"mixtures.{name}.sources.{source_name}"
            selection, role = _selection_of(source.data), f"source.{source_name}"
            if selection is None:
                inputs += graph.inputs(role, source.data, where)
                continue
            if "decontaminate/corpus" not in graph.nodes:
                raise ConfigError(
                    f"config key {where}.data: the run has no corpus; set crawl.warc or crawl.texts"
                )
            folder = f"decontaminate/{selection}/corpus" if selection else "decontaminate/corpus"
            inputs.append((role, Result(folder, "corpus")))
        more = {}
        if any(source.decontaminate for source in mixture.sources.values()):
            inputs += graph.benchmark_files(graph.config.benchmarks)
            more = {"fields": graph.benchmark_fields(graph.config.benchmarks)}
        graph.add(f"tokens/{name}", "pipeline.tokens", mixture, inputs, **more)
