# What the rules share: the graph of the run, what of it is current, and functions that ask for inputs and arguments.

import json
import shlex
import sys

sys.path.insert(0, workflow.basedir)

from pipeline.common.arguments import pack
from pipeline.common.errors import InputError
from pipeline.common.overlays import read_config
from pipeline.config.root import Config, ConfigError
from pipeline.stages import NAMES, STAGES
from pipeline.status import summary
from workflow.graph import Graph, Result
from workflow.state import Run, mark, tell_snakemake

try:
    if workflow.is_main_process:
        read_config(workflow.configfiles)  # it refuses keys that stand twice, which Snakemake does not see
    GRAPH = Graph(Config({key: value for key, value in config.items() if key != "paths"}))
    if workflow.is_main_process:
        found = Run(GRAPH)
        tell_snakemake(found)
        if workflow.dryrun:
            print("\n".join(summary(found)), file=sys.stderr)
except (ConfigError, InputError) as error:
    raise WorkflowError(str(error))


onstart:
    if GRAPH.missing:
        raise WorkflowError(f"bring these files first, or change the keys: {'; '.join(dict.fromkeys(GRAPH.missing))}")


RESULTS = f"results/{GRAPH.config.run}"
LAUNCH = GRAPH.config.sections["launch"]


def marks(*stages):
    """The marks of all instances of the stages."""
    return [str(mark(GRAPH.config.run, name)) for stage in stages for name in GRAPH.names(stage)]


def needs(pattern):
    """Input function: the marks of the instances before this one. `ancient`: what changed is told by missing marks."""

    def inputs(wildcards):
        node = GRAPH.nodes[pattern.format(**wildcards)]
        names = dict.fromkeys(source.node for _, source in node.inputs if isinstance(source, Result))
        return [ancient(str(mark(GRAPH.config.run, name))) for name in names]

    return inputs


def ranks_of(stage):
    """Processes of the stage's programs on one machine."""
    return LAUNCH.ranks if stage.makes != "nothing" else 1


def threads_of(stage):
    """Cores of the stage's programs on one machine."""
    parallel = stage.makes != "nothing" or stage.name in ("tokens", "evaluate")
    return LAUNCH.threads * ranks_of(stage) if parallel else 1


def arguments(pattern, ranks):
    """Params function: what the instance is. It takes `threads`, so that Snakemake never reruns anything for it."""

    def params(wildcards, threads):
        node = GRAPH.nodes[pattern.format(**wildcards)]
        words = ["--instance", node.instance, "--run", RESULTS]
        words += ["--config", json.dumps(node.section, sort_keys=True, ensure_ascii=False)]
        for word in pack([(key, path_of(source)) for key, source in node.inputs]):
            words += ["--input", word]
        return shlex.join([*words, "--launch", launch(max(1, threads // ranks))])

    return params


def path_of(source):
    return f"{RESULTS}/{source.node}/data/{source.path}".rstrip("/") if isinstance(source, Result) else source


def launch(threads):
    """How a program runs: no part of what it makes."""
    return json.dumps(LAUNCH.model_dump(mode="json") | {"threads": threads})
