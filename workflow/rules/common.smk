# What the rules share: the graph of the run, the key of each result, and what is done before the first job.

import os
import sys
from functools import cache
from pathlib import Path

sys.path.insert(0, workflow.basedir)

from pipeline.core import tries
from pipeline.core.errors import InputError
from pipeline.core.overlays import DEFAULTS, read_config
from pipeline.config.crawl import DOWNLOADS
from workflow.overridden import overridden_keys
from pipeline.config.root import Config, ConfigError
from workflow.forecast.refusals import refusals
from pipeline.core.stages import NAMES, PROGRAMS, STAGES, WILDCARDS
from pipeline.cli.status import other_code, summary
from snakemake.logging import logger
from workflow import arrays, preempted
from workflow.arguments import problem
from workflow.graph import Graph
from workflow.job import Job, light_when_linked, made_meanwhile
from workflow.keys import Keys
from workflow.links import file_of_run, forced, leave_stale_links, refusal
from workflow.preflight import Machine, faulty, held_back, missing, nothing_to_do, slow, unpinned
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
    if workflow.is_main_process:
        overlays = [os.path.relpath(file) for file in workflow.configfiles if Path(file) != DEFAULTS]
        for line in overridden_keys(overlays, workflow.config_settings.config):
            print(f"warning: {line}", file=sys.stderr)
except (ConfigError, InputError) as error:
    refuse(str(error))

if workflow.is_main_process:
    tries.begin()
    arrays.install()

RESULTS = str(KEYS.run)
if "downloads" not in workflow.global_resources:  # a profile or `--resources` says otherwise
    workflow.register_resource("downloads", DOWNLOADS)


@cache
def begin():
    """Do what the command line asks of the graph, when Snakemake asks for the first input; once."""
    settings = workflow.dag_settings
    if not workflow.is_main_process:
        if made := made_meanwhile(KEYS, settings.target_jobs):
            print(f"{made}: made meanwhile, by a job of an earlier start", file=sys.stderr, flush=True)
            os._exit(0)
        return
    try:
        KEYS.forced = forced(KEYS, [*settings.forcerun, *(["all"] if settings.forceall else [])])
        if workflow.dryrun and (empty := nothing_to_do(GRAPH)):
            raise ConfigError(empty)
        workflow.dag.forcefiles.update(KEYS.damaged(), (str(KEYS.entry(name).manifest) for name in KEYS.forced))
        lines = []
        if workflow.dryrun and not REMOTE:  # which results a storage has, Snakemake alone knows
            lines = summary(Reasons(KEYS))
        elif workflow.executor_plugin and not workflow.dryrun:
            lines = other_code(KEYS)
    except (ConfigError, InputError) as error:
        refuse(str(error))
    for line in lines:
        print(line, file=sys.stderr)


JOB = Job(KEYS, begin, REMOTE)


pathvars:
    store=f"{RESULTS}/store",
    logs=f"{RESULTS}/logs",


wildcard_constraints:
    **WILDCARDS,


def wanted(names):
    """Input function of a target that makes instances: of those that another one reads, that one is enough, but
    not where it is made and the one before it is gone. A dry run looks at the data that they read.
    """

    def files(wildcards):
        begin()
        if workflow.is_main_process and workflow.dryrun:
            before_first_job(faulty(GRAPH, filter(lambda name: not KEYS.settled(name), KEYS.needed(names))))
        last = dict.fromkeys([*GRAPH.last(names), *KEYS.unmade(names)])
        return [str(KEYS.entry(name).manifest) for name in last]

    return files


def linked(name):
    """Input function of the target that an instance's link is. Without a job nothing else would move the link."""

    def files(wildcards):
        manifests, entry = wanted([name])(wildcards), KEYS.entry(name)
        if workflow.executor_plugin and not (workflow.dryrun or entry.linked) and KEYS.settled(name):
            entry.make_current()
        return manifests

    return files


def before_first_job(lines):
    """Refuse to start if there are lines that say what is missing."""
    if lines:
        refuse("before the first job: " + (lines[0] if len(lines) == 1 else "\n- ".join(["", *lines])))


onstart:
    jobs = [one for one in workflow.dag.needrun_jobs() if "key" in one.wildcards_dict]
    names = {workflow.dag.jobid(one): KEYS.names[one.wildcards_dict["key"]] for one in jobs}
    gpus = {names[workflow.dag.jobid(one)]: one.resources.get("gpu", 0) for one in jobs}
    machine = Machine()
    slowly = slow(GRAPH, gpus, machine) if workflow.local_exec else []
    for line in [*held_back(GRAPH), *unpinned(GRAPH, gpus), *slowly]:
        print(line, file=sys.stderr)
    if kept := list(filter(KEYS.pinned, names.values())):
        refuse(refusal(KEYS, kept[0]))
    before_first_job(missing(GRAPH, gpus, workflow.local_exec, machine))
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
