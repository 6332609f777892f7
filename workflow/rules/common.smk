# What the rules share: the graph of the run, and functions that ask it for inputs, arguments and manifests.

import json
import shlex
import sys
from pathlib import Path

sys.path.insert(0, workflow.basedir)

from pipeline.common.manifest import code_files
from pipeline.common.stage import pack
from pipeline.config.graph import Graph, Result
from pipeline.config.root import Config, ConfigError

try:
    GRAPH = Graph(Config({key: value for key, value in config.items() if key != "paths"}))
except ConfigError as error:
    raise WorkflowError(str(error))


onstart:
    if GRAPH.missing:
        raise WorkflowError(f"bring these files first, or change the keys: {'; '.join(dict.fromkeys(GRAPH.missing))}")


STAGES = ("miniweb", "crawl", "corpus", "decontaminate", "tokens", "cpt", "sft", "reward", "rl", "evaluate", "report")
RESULTS = f"results/{GRAPH.config.run}"
LAUNCH = GRAPH.config.sections["launch"]


def manifest(name):
    return f"{RESULTS}/{name}/manifest.json"


def manifests(*stages):
    """Manifests of all instances of the stages."""
    return [manifest(name) for stage in stages for name in GRAPH.names(stage)]


def path_of(source):
    return f"{RESULTS}/{source.node}/data/{source.path}".rstrip("/") if isinstance(source, Result) else source


def node_of(name, wildcards):
    return GRAPH.nodes[name.format(**wildcards)]


def needs(name, code=True):
    """Input function: upstream manifests, local files and, for cheap stages, the modules whose change should rerun them."""

    def inputs(wildcards):
        node = node_of(name, wildcards)
        found = [manifest(source.node) if isinstance(source, Result) else source for _, source in node.inputs]
        # Hub ids, URLs and what is yet to be brought are no files here; the graph has looked for all others.
        made = {manifest(source.node) for _, source in node.inputs if isinstance(source, Result)}
        files = [path for path in dict.fromkeys(found) if path in made or Path(path).exists()]
        return files + [str(path) for path in code_files(node.module) if code]

    return inputs


def arguments(name):
    """Params function: what the instance is. It changes exactly when the section or anything upstream changes."""

    def params(wildcards):
        node = node_of(name, wildcards)
        identity = GRAPH.fingerprint(node.name)
        words = ["--instance", node.instance, "--fingerprint", identity, "--work", f"work/{node.stage}/{identity}"]
        words += ["--config", json.dumps(node.section, sort_keys=True, ensure_ascii=False)]
        for word in pack([(key, path_of(source)) for key, source in node.inputs]):
            words += ["--input", word]
        return shlex.join(words)

    return params


def launch(wildcards, threads):
    """Params function: how it runs. It takes `threads`, so Snakemake never reruns anything for it."""
    return shlex.quote(json.dumps(LAUNCH.model_dump(mode="json") | {"threads": threads}))


