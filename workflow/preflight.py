"""What would end a run hours after its start, asked of this machine and of the inputs before its first job.

Each line names what is missing and the remedy. Only what the jobs to run need is asked for. Bytes of memory
and disk are lower bounds; `dsm plan` forecasts all that a job takes.
"""

import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from huggingface_hub import constants, try_to_load_from_cache
from sealedpy.pool import NoNamespaces, check

from pipeline.core.data.rows import HUB
from pipeline.core.errors import InputError
from pipeline.core.stages import MODEL_STAGES
from pipeline.crawl.text_files import is_pinned
from workflow.forecast.costs import checkpoint_disk, size_of, training_state
from workflow.forecast.shapes import shape_of
from workflow.graph import Graph
from workflow.instances import HUB_ID, Instance
from workflow.lists import faulty_lists

HUB_SECONDS = 5.0
# Inputs that may be of the hub.
MODELS = ("init", "parent", "model", "policy", "reward_model", "tokenizer")
TEXTS = ("crawl", "corpus", "tokens")  # stages whose inputs are texts to learn from
SOURCE_NAME = re.compile(r"hub:[^@:]*(?::[^@:/]*)?(?:@[^:]*)?")  # without the path of a file
PARTS = {
    r"config\.json": "config.json",
    r"tokenizer.*|.*\.model|vocab.*": "the tokenizer's files: copy those of the model that it comes from",
    r".*\.(safetensors|bin)": "weights",
}
EVALUATED = ("evaluate", "trajectory")
LARGE = 300_000_000  # weights from which training on CPU cores takes days
DEVICES = """import torch
print(*(torch.cuda.get_device_properties(n).total_memory for n in range(torch.cuda.device_count())))"""


class Machine:
    """What this machine has, each asked for when it is first needed."""

    @cached_property
    def gpus(self) -> list[int]:
        """Bytes of the GPUs that programs see."""
        done = subprocess.run([sys.executable, "-c", DEVICES], capture_output=True, text=True)
        return [int(word) for word in done.stdout.split()]

    @cached_property
    def memory(self) -> int:
        """Bytes of main memory."""
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    @cached_property
    def disk(self) -> int:
        """Free bytes where results are written."""
        return shutil.disk_usage(Path.cwd()).free

    @cached_property
    def hub(self) -> str | None:
        """Why the hub cannot be reached; None if it can."""
        if constants.HF_HUB_OFFLINE:
            return "HF_HUB_OFFLINE is set"
        try:
            request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
            urllib.request.urlopen(request, timeout=HUB_SECONDS).close()
        except urllib.error.HTTPError:  # an answer
            return None
        except OSError as error:
            return f"{constants.ENDPOINT} cannot be reached ({getattr(error, 'reason', error)})"
        return None

    @cached_property
    def lists_cores(self) -> bool:
        """Whether vLLM can ask for the cores."""
        return shutil.which("lscpu") is not None


def missing(graph: Graph, jobs: Mapping[str, int], local: bool, machine: Machine) -> list[str]:
    """List what is missing for `jobs`: names of the instances to make, each with the GPUs that its profile
    gives.

    `local`: they run on this machine; of the machines of a cluster only the shared disk is known.
    """
    nodes = [graph.nodes[name] for name in jobs]
    found = []
    if graph.missing:
        found.append(
            f"bring these files first, or change the keys: {'; '.join(dict.fromkeys(graph.missing))}"
        )
    if empty := nothing_to_do(graph):
        found.append(empty)
    found += faulty(graph, jobs)
    found += _unreachable(nodes, machine)
    found += _disk(graph, nodes, machine)
    if local:
        found += _devices(graph, nodes, jobs, machine)
        found += _programs(graph, nodes, machine)
    return found


def faulty(graph: Graph, names: Iterable[str]) -> list[str]:
    """List what is wrong with the data and models that instances read."""
    from workflow.first_rows import faulty_rows  # a dry run with nothing to do needs none of its readers

    nodes = [graph.nodes[name] for name in names]
    models = dict.fromkeys(line for node in nodes for line in _no_models(node))
    return [*faulty_lists(graph, [node.name for node in nodes]), *faulty_rows(graph, nodes), *models]


def nothing_to_do(graph: Graph) -> str | None:
    """Give a line for a configuration that asks for nothing, such as the defaults alone."""
    if graph.nodes.keys() - {"report"}:
        return None
    empty = "config key models: empty, and no crawl.warc or texts"
    return f"{empty}: nothing to make; give --configfile configs/demo.yaml"


def slow(graph: Graph, jobs: Iterable[str], machine: Machine) -> list[str]:
    """Give a line for each model that would train for days, because this machine has no GPU."""
    trained = {name: _trained(graph, graph.nodes[name]) for name in jobs}
    return [
        f"{name}: trains {found[0] / 1e6:,.0f}M weights, and torch sees no GPU on this machine: it takes days"
        " (`dsm plan` prints the FLOPs; a core does about 1e11 in a second)"
        for name, found in trained.items()
        if found and found[0] >= LARGE and not machine.gpus
    ]


def unpinned(graph: Graph, jobs: Iterable[str]) -> list[str]:
    """Give a line for each data set of the hub that texts come from and whose revision is no commit."""
    nodes = (graph.nodes[name] for name in jobs)
    read = (source for node in nodes if node.stage in TEXTS for _, source in node.inputs)
    named = {source for source in read if isinstance(source, str) and source.startswith(HUB)}
    sets = dict.fromkeys(SOURCE_NAME.match(source)[0] for source in sorted(named) if not is_pinned(source))
    return [
        f"{source}: no commit is named (@<commit>), so its texts may be others tomorrow" for source in sets
    ]


def held_back(graph: Graph) -> list[str]:
    """Give a line for each source of texts that is not for training."""
    sources = Counter(graph.held_back.values())
    return [
        f"crawl.texts.{name}: {number:,} files or data sets are left out (use: {use})"
        for (name, use), number in sources.items()
    ]


def _no_models(node: Instance) -> Iterator[str]:
    """Find folders that are named as models and lack what each has."""
    for key, source in node.inputs:
        folder = Path(str(source))
        if key in ("init", "parent", "model", "policy") and isinstance(source, str) and folder.is_dir():
            names = [path.name for path in folder.iterdir()]
            for pattern, what in PARTS.items():
                if not any(re.fullmatch(pattern, name) for name in names):
                    yield f"{node.name}: {source}: no folder of a model, it lacks {what}"
                    break


def _unreachable(nodes: list[Instance], machine: Machine) -> Iterator[str]:
    """Find models and data sets of the hub that are not here while the hub is out of reach."""
    readers: dict[str, list[str]] = {}
    for node in nodes:
        sources = [source for key, source in node.inputs if isinstance(source, str) and _of_hub(key, source)]
        for source in dict.fromkeys(sources):
            readers.setdefault(source, []).append(node.name)
    for source, names in readers.items():
        data = source.startswith(HUB)
        if _data_is_here(source) if data else isinstance(try_to_load_from_cache(source, "config.json"), str):
            continue
        if machine.hub is None:
            return
        remedy = "save its rows as .jsonl" if data else f"`hf download {source}`"
        then = "name the file" if data else f"copy {constants.HF_HUB_CACHE}"
        yield f"{source} (of {', '.join(names)}): {machine.hub}: {remedy} where the hub answers, then {then}"


def _of_hub(key: str, source: str) -> bool:
    """Whether an input is a data set or a model of the hub."""
    model = key in MODELS and HUB_ID.fullmatch(source) and not Path(source).is_dir()
    return source.startswith(HUB) or bool(model)


def _data_is_here(source: str) -> bool:
    """Whether a data set of the hub lies in a folder of its name or in the cache of `datasets` or the hub."""
    from datasets.config import HF_DATASETS_CACHE  # a second to import, and most sources are files

    owner, _, rest = re.split("[:@]", source.removeprefix(HUB))[0].partition("/")
    name = rest.partition("/")[0]
    caches = (
        HF_DATASETS_CACHE / f"{owner}___{name}",
        Path(constants.HF_HUB_CACHE) / f"datasets--{owner}--{name}",
    )
    return any(map(Path.is_dir, (Path(owner, name), *caches)))


def _trained(graph: Graph, node: Instance) -> tuple[int, str] | None:
    """Get weights and precision of the model that an instance trains, where its shape is known."""
    if node.stage not in MODEL_STAGES or node.instance not in graph.config.models:
        return None
    try:
        return shape_of(graph.config, node.instance).parameters, node.section["precision"]
    except InputError:
        return None


def _disk(graph: Graph, nodes: list[Instance], machine: Machine) -> Iterator[str]:
    """Compare checkpoints and models of all trainings; each removes its checkpoints when it ends."""
    trained = [found for node in nodes if (found := _trained(graph, node))]
    models = sum(parameters * size_of(precision) for parameters, precision in trained)
    most = max((checkpoint_disk(*found) - found[0] * size_of(found[1]) for found in trained), default=0)
    if models + most > machine.disk:
        yield (
            f"{Path.cwd()}: models and checkpoints take {(models + most) / 1e9:.0f} GB, free are"
            f" {machine.disk / 1e9:.0f} GB: make room, or let `results` and `work` be links to a larger disk"
        )


def _devices(graph: Graph, nodes: list[Instance], gpus: Mapping[str, int], machine: Machine) -> Iterator[str]:
    """GPUs that the profile gives and this machine lacks, and models that do not fit into its memory."""
    wanting = [node for node in nodes if gpus[node.name]]
    if wanting and not machine.gpus:
        yield (
            f"{', '.join(node.name for node in wanting)}: the profile gives a GPU, and torch sees none here:"
            " run where `nvidia-smi` lists one, or a small model without `--profile`"
        )
        return
    for node in wanting:
        if node.stage in MODEL_STAGES and node.launch.ranks > len(machine.gpus):
            here = len(machine.gpus)
            yield f"{node.name}: launch.ranks is {node.launch.ranks}, GPUs here are {here}: set it to {here}"
    for node in nodes:
        if trained := _trained(graph, node):
            yield from _memory(node, trained, bool(gpus[node.name]), machine)


def _memory(node: Instance, trained: tuple[int, str], on_gpu: bool, machine: Machine) -> Iterator[str]:
    launch = node.launch
    state = training_state(*trained, launch.zero_stage, launch.ranks, launch.offload_optimizer)
    need = sum(size for part, size in state.items() if part != "buffers") * (1 if on_gpu else launch.ranks)
    have = min(machine.gpus) if on_gpu else machine.memory
    if need > have:
        place = "a GPU" if on_gpu else "main memory"
        remedy = "more ranks, a higher zero_stage or a smaller model" if on_gpu else "GPUs or a smaller model"
        yield (
            f"{node.name}: weights, gradients and optimiser take {need / 1e9:.0f} GB, {place} has"
            f" {have / 1e9:.0f} GB: take {remedy}; `dsm plan` shows what fits"
        )


def _programs(graph: Graph, nodes: list[Instance], machine: Machine) -> Iterator[str]:
    """Programs of the system that stages start, and the namespaces of the sandbox."""
    sampling = any(node.stage in ("rl", "reward", *EVALUATED) for node in nodes)
    if sampling and not machine.lists_cores:
        yield "lscpu: not found; vLLM asks it for the cores of this machine: install util-linux"
    asked = [node for node in nodes if node.stage in ("rl", *EVALUATED)]
    if any(node.kind(**node.section).runs_programs for node in asked):
        try:
            check(graph.config.sections["sandbox"].weak)
        except NoNamespaces as error:
            yield str(error)
