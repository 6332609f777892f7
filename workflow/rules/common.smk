# What the rules share: the graph of the run, the key of each result, and what is done before the first job.

import os
import shlex
import sys
from pathlib import Path

sys.path.insert(0, workflow.basedir)

from pipeline.protocol import tries
from pipeline.protocol.errors import InputError
from pipeline.protocol.overlays import DEFAULTS, read_config
from pipeline.config.crawl import DOWNLOADS
from workflow.overridden import overridden_keys
from pipeline.config.root import Config, ConfigError
from pipeline.plan.refusals import refusals
from pipeline.stages import NAMES, PROGRAMS, STAGES, WILDCARDS
from pipeline.status import other_code, summary
from snakemake.logging import logger
from workflow import arrays, preempted
from workflow.arguments import forcerun, is_dry, problem
from workflow.graph import Graph
from workflow.job import Job, light_when_linked, made_meanwhile
from workflow.keys import Keys
from workflow.links import file_of_run, forced, instance_of, leave_stale_links, refusal
from workflow.lists import faulty_lists, needed_by
from workflow.preflight import Machine, held_back, missing, nothing_to_do, slow, unpinned
from workflow.reasons import Reasons
from workflow.terminal import Plan


def refuse(message):
    """End in one line; Snakemake would add its own place in this file."""
    if workflow.is_main_process:
        sys.exit(f"error: {message}")
    raise WorkflowError(message)


REMOTE = workflow.storage_settings.default_storage_provider is not None
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
    KEYS = Keys(GRAPH)
    KEYS.forced = forced(KEYS, forcerun(sys.argv[1:])) if workflow.is_main_process else set()
    if workflow.is_main_process:
        overlays = [os.path.relpath(file) for file in workflow.configfiles if Path(file) != DEFAULTS]
        for line in overridden_keys(overlays, workflow.config_settings.config):
            print(f"warning: {line}", file=sys.stderr)
    if workflow.is_main_process and is_dry(sys.argv[1:]):
        if empty := nothing_to_do(GRAPH):
            raise ConfigError(empty)
        if not REMOTE:  # which results a storage has, Snakemake alone knows
            print("\n".join(summary(Reasons(KEYS))), file=sys.stderr)
        unmade = [name for name in needed_by(GRAPH, sys.argv[1:]) if not KEYS.settled(name)]
        if faults := list(faulty_lists(GRAPH, unmade)):
            raise ConfigError("\nerror: ".join(faults))
    elif workflow.is_main_process:
        for line in other_code(KEYS):
            print(line, file=sys.stderr)
except (ConfigError, InputError) as error:
    refuse(str(error))

if workflow.is_main_process:
    tries.begin()
    arrays.install()

RESULTS = str(KEYS.run)
JOB = Job(KEYS, REMOTE)
if "downloads" not in workflow.global_resources:  # a profile or `--resources` says otherwise
    workflow.register_resource("downloads", DOWNLOADS)
if not workflow.is_main_process and (_made := made_meanwhile(KEYS, sys.argv)):
    print(f"{_made}: made meanwhile, by a job of an earlier start", file=sys.stderr, flush=True)
    os._exit(0)


pathvars:
    store=f"{RESULTS}/store",
    logs=f"{RESULTS}/logs",


wildcard_constraints:
    **WILDCARDS,


def wanted(names):
    """Input function of a target that makes instances: of those that another one reads, that one is enough, but
    not where it is made and the one before it is gone. A manifest that cannot be read is a file to Snakemake,
    so its job is forced, as are those that `--forcerun` asks for by names that no rule has.
    """

    def files(wildcards):
        if workflow.is_main_process:
            again = (str(KEYS.entry(name).manifest) for name in KEYS.forced)
            workflow.dag.forcefiles.update(KEYS.unreadable(), again)
        last = dict.fromkeys([*GRAPH.last(names), *KEYS.unmade(names)])
        return [str(KEYS.entry(name).manifest) for name in last]

    return files


onstart:
    jobs = [one for one in workflow.dag.needrun_jobs() if "key" in one.wildcards_dict]
    names = {workflow.dag.jobid(one): KEYS.names[one.wildcards_dict["key"]] for one in jobs}
    gpus = {names[workflow.dag.jobid(one)]: one.resources.get("gpu", 0) for one in jobs}
    machine = Machine()
    slowly = slow(GRAPH, gpus, machine) if workflow.local_exec else []
    for line in [*held_back(GRAPH), *unpinned(GRAPH, gpus), *slowly]:
        print(line, file=sys.stderr)
    if kept := list(filter(KEYS.pinned, names.values())):
        raise WorkflowError(refusal(KEYS, kept[0]))
    if lines := missing(GRAPH, gpus, workflow.local_exec, machine):
        raise WorkflowError("before the first job:\n" + "\n".join(f"- {line}" for line in lines))
    KEYS.save()
    for one in jobs:
        entry = KEYS.entry(names[workflow.dag.jobid(one)])
        forced_here = entry.name in KEYS.forced or not workflow.dag.forcefiles.isdisjoint(one.output)
        entry.step_aside(again=forced_here or not entry.made)
    leave_stale_links(KEYS)
    for one in jobs:
        JOB.keep(names[workflow.dag.jobid(one)], one.output)
    plan = Plan(KEYS, names, {name for name, count in gpus.items() if count})
    logger.info(None, extra={"plan": plan})  # for the logger plugin
    if workflow.executor_plugin.name == "slurm":
        preempted.watch(Path.cwd())
