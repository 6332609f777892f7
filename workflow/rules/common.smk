# What the rules share: the graph of the run, what of it is current, and functions that ask for inputs and arguments.

import json
import shlex
import sys
from pathlib import Path

sys.path.insert(0, workflow.basedir)

from pipeline.common.addresses import kept
from pipeline.common.arguments import pack, shortened
from pipeline.common.errors import InputError
from pipeline.common.overlays import read_config
from pipeline.common.stage import WORK
from pipeline.config.root import Config, ConfigError
from pipeline.plan.refusals import refusals
from pipeline.stages import NAMES, STAGES
from pipeline.status import summary
from snakemake.exceptions import LockException
from snakemake.logging import logger
from workflow import preempted
from workflow.arguments import is_dry, problem
from workflow.graph import Graph, Result
from workflow.instances import is_downloading
from workflow.preflight import Machine, missing, nothing_to_do, slow
from workflow.state import Run, mark, tell_snakemake
from workflow.terminal import Terminal


def refuse(message):
    """End in one line; Snakemake would add its own place in this file."""
    if workflow.is_main_process:
        sys.exit(f"error: {message}")
    raise WorkflowError(message)


if Path.cwd() != Path(workflow.basedir).resolve():
    refuse(f"run snakemake in {workflow.basedir}: programs and configurations are found from there")
if workflow.is_main_process and (told := problem(sys.argv[1:])):
    refuse(told)

try:
    if workflow.is_main_process:
        read_config(workflow.configfiles)  # it refuses keys that stand twice, which Snakemake does not see
    GRAPH = Graph(Config({key: value for key, value in config.items() if key != "paths"}))
    if refused := refusals(GRAPH.config):
        raise ConfigError(f"config key {'; '.join(refused)}")
    if workflow.is_main_process:
        found = Run(GRAPH)
        tell_snakemake(found)
        if is_dry(sys.argv[1:]):
            if empty := nothing_to_do(GRAPH):
                raise ConfigError(empty)
            print("\n".join(summary(found)), file=sys.stderr)
except (ConfigError, InputError) as error:
    refuse(str(error))


def locked(self):
    """Snakemake's own message has six lines and no command."""
    unlock = shlex.join([sys.executable, "-m", "snakemake", "--unlock"])
    WorkflowError.__init__(
        self,
        f"{Path.cwd()} is locked: another Snakemake makes the same results, or one was killed. If none runs"
        f" on any machine: {unlock}",
    )


LockException.__init__ = locked


onstart:
    folder, machine = mark(GRAPH.config.run, ""), Machine()
    names = {
        job: str(Path(job.output.mark).relative_to(folder))
        for job in workflow.dag.needrun_jobs()
        if "mark" in job.output.keys()
    }
    gpus = {name: job.resources.get("gpu", 0) for job, name in names.items()}
    jobs = {node.name: count for name, count in gpus.items() for node in GRAPH.jobs[name]}
    for line in slow(GRAPH, jobs, machine) if workflow.local_exec else []:
        print(line, file=sys.stderr)
    if lines := missing(GRAPH, jobs, workflow.local_exec, machine):
        raise WorkflowError("before the first job:\n" + "\n".join(f"- {line}" for line in lines))
    numbers = {workflow.dag.jobid(job): name for job, name in names.items()}
    terminal = Terminal(GRAPH, numbers, {name for name, count in gpus.items() if count})
    wanted = workflow.output_settings.verbose or workflow.output_settings.printshellcmds
    for handler in logger.handlers:
        if handler.name == "DefaultStreamHandler" and not wanted:
            terminal.install(handler)
    if workflow.executor_plugin.name == "slurm":
        preempted.watch(Path.cwd())


RESULTS = f"results/{GRAPH.config.run}"
ADDRESSES = WORK / "addresses"
SANDBOX = GRAPH.config.sections["sandbox"]


def marks(*stages):
    """The marks of all instances of the stages."""
    names = GRAPH.last(GRAPH.job_of[name] for stage in stages for name in GRAPH.names(stage))
    return [str(mark(GRAPH.config.run, name)) for name in names]


def needs(pattern):
    """Input function: the marks of the instances before this one. `ancient`: what changed is told by missing marks."""

    def inputs(wildcards):
        names = GRAPH.last(GRAPH.before(pattern.format(**wildcards)))
        return [ancient(str(mark(GRAPH.config.run, name))) for name in names]

    return inputs


def ranks_of(stage, launch):
    """Processes of a program of the stage on one machine."""
    return launch.ranks if stage.section.has_ranks() else 1


def threads_of(stage, pattern):
    """Cores of the instance's program on one machine, or a threads function."""

    def threads(wildcards):
        launch = GRAPH.jobs[pattern.format(**wildcards)][0].launch
        return launch.threads * ranks_of(stage, launch)

    return threads if stage.section.has_ranks() or stage.name == "tokens" else 1


def downloads_of(stage, pattern):
    """1 for a job that reads files of a server, or a resources function. A profile says how many do at a time."""

    def downloads(wildcards):
        return int(any(map(is_downloading, GRAPH.jobs[pattern.format(**wildcards)])))

    return downloads if stage.name == "crawl" else 0


def arguments(stage, pattern):
    """Params function: what the instances are, each but the first with its command before it. It takes `threads`, so
    that Snakemake never reruns anything for it.
    """

    def of_one(node, threads):
        words = ["--instance", node.instance, "--run", RESULTS]
        words += ["--config", json.dumps(node.section, sort_keys=True, ensure_ascii=False)]
        inputs = pack([(key, path_of(source)) for key, source in node.inputs])
        for word in shortened(inputs, WORK / "inputs"):
            words += ["--input", word]
        return shlex.join([*words, "--launch", launch(node, max(1, threads // ranks_of(stage, node.launch)))])

    def params(wildcards, threads):
        nodes = GRAPH.jobs[pattern.format(**wildcards)]
        return f" && python -m pipeline.start {nodes[0].module} ".join(of_one(node, threads) for node in nodes)

    return params


def path_of(source):
    if isinstance(source, Result):
        return f"{RESULTS}/{source.node}/data/{source.path}".rstrip("/")
    return kept(source, ADDRESSES)  # no command line and no message of Snakemake shows a signature


def launch(node, threads):
    """How a program runs: no part of what it makes."""
    sandbox = {"weak_sandbox": SANDBOX.weak} if node.stage in ("evaluate", "trajectory") else {}
    return json.dumps(node.launch.model_dump(mode="json") | {"threads": threads} | sandbox)
