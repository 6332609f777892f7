"""How many times `sbatch` is called: jobs of a rule wait for each other, and none is forgotten."""

import base64
import gzip
import hashlib
import heapq
import random
from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from conftest import ROOT

from pipeline.config.root import Config
from pipeline.core.overlays import DEFAULTS, read_config
from pipeline.core.stages import PROGRAMS
from workflow.arrays import with_arrays, without_others
from workflow.graph import Graph

PROFILE = yaml.safe_load((ROOT / "profiles/slurm/profile.yaml").read_text())
RULES = {program.module: program.rule for program in PROGRAMS}
RANKED = ("cpt_model", "sft_model", "reward_model", "rl_model", "evaluate_model", "trajectory_model")


# What Snakemake starts for a job, as seen on the test cluster.
COMMAND = (
    "/shared/deepseekmath/.venv/bin/python -m snakemake --snakefile '/shared/deepseekmath/Snakefile'"
    " --target-jobs '{rule}:key={key}' --allowed-rules {rule} --cores 'all' --attempt 1 --force-use-threads"
    " --wait-for-files '/shared/deepseekmath/.snakemake/tmp.ar2nm52x' {inputs} --force"
    " --target-files-omit-workdir-adjustment --max-inventory-time 0 --retries 0 --nocolor --no-hooks --nolock"
    " --ignore-incomplete --rerun-triggers mtime --conda-frontend 'conda' --shared-fs-usage"
    " software-deployment sources input-output source-cache software-deployment-cache persistence"
    " storage-local-copies --latency-wait 60 --scheduler 'ilp'"
    " --local-storage-prefix base64//LnNuYWtlbWFrZS9zdG9yYWdl"
    " --scheduler-solver-path '/shared/deepseekmath/.venv/bin'"
    " --runtime-source-cache-path '/home/user/.cache/snakemake/snakemake/source-cache/tmp8jf23f3t'"
    " --configfiles /shared/deepseekmath/configs/deepseekmath-7b.yaml {resources} --default-resources"
    " base64//dG1wZGlyPXN5c3RlbV90bXBkaXI= base64//bWVtX21iPTgwMDAgKiBhdHRlbXB0"
    " base64//c2x1cm1fcGFydGl0aW9uPW1haW4= base64//cnVudGltZT0yNDA= base64//dGFza3M9MQ=="
    " --executor slurm-jobstep --jobs 1 --mode 'remote'"
)


def encoded(flag: str, lines: list[str]) -> str:
    return " ".join([flag, *(f"base64//{base64.b64encode(line.encode()).decode()}" for line in lines)])


RESOURCES = [
    f"{rule}:{key}={value}" for rule, own in PROFILE["set-resources"].items() for key, value in own.items()
]
THREADS = [f"{rule}={cores}" for rule, cores in PROFILE["set-threads"].items()]
OF_ALL = f"{encoded('--set-resources', RESOURCES)} {encoded('--set-threads', THREADS)}"


class Plugin:
    """What Snakemake's plugin does with what it is told to submit."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        self.workflow, self.array_jobs, self.max_array_size = workflow, {"all"}, 1000
        self.calls: Counter[str] = Counter()
        self.submitted: list[Any] = []

    def format_job_exec(self, job: Any) -> str:
        keys = [hashlib.sha256(f"{job.name}{n}".encode()).hexdigest()[:16] for n in range(5)]
        inputs = " ".join(f"results/deepseekmath-7b/store/{job.name}/{key}/manifest.json" for key in keys)
        return COMMAND.format(rule=job.rule.name, key=keys[0], inputs=inputs, resources=OF_ALL)

    def _submit_job(self, job: Any) -> None:
        self._submit_array_jobs([job])

    def _submit_array_jobs(self, jobs: list[Any]) -> None:
        assert len({(job.rule.name, job.attempt) for job in jobs}) == 1, "tasks of an array ask for the same"
        self.calls[jobs[0].rule.name] += 1
        self.submitted += jobs

    async def check_active_jobs(self, active: list[Any]) -> Any:
        for job in active:
            yield job

    def handle_job_success(self, job: Any) -> None: ...

    def handle_job_error(self, job: Any) -> None: ...


class Cluster:
    """Snakemake's scheduler, and a cluster on which each job takes its time."""

    def __init__(self, graph: Graph, places: int, downloads: int) -> None:
        self.jobs = {name: self._job(name, RULES[node.module]) for name, node in graph.nodes.items()}
        self.dependencies = {
            job: {self.jobs[one] for one in graph.before(name)} for name, job in self.jobs.items()
        }
        self.after = defaultdict(list)
        for job, ones in self.dependencies.items():
            for one in ones:
                self.after[one].append(job)
        self.ready_jobs = {job for job, ones in self.dependencies.items() if not ones}
        self.handed_over: set[Any] = set()
        self.limits = {"places": places, "downloads": downloads}
        self.workflow = SimpleNamespace(
            dag=self,
            resource_settings=SimpleNamespace(nodes=places),
            rules=[job.rule for job in self.jobs.values()],
        )

    def _job(self, name: str, rule: str) -> Any:
        resources = {"mpi": ""} if rule in RANKED else {}
        return SimpleJob(rule=SimpleNamespace(name=rule), name=name, attempt=1, resources=resources)

    def needrun_jobs(self) -> list[Any]:
        return list(self.jobs.values())

    def run(self, seconds: Any, failing: str = "") -> Any:
        """Run all jobs; returns the executor. A job takes `seconds(job)`; that of name `failing` fails."""
        executor = with_arrays(Plugin)(self.workflow, None)
        chosen: set[Any] = set()
        left = {job: len(ones) for job, ones in self.dependencies.items()}
        queue: list[tuple[float, int, Any]] = []
        now, known, failed = 0.0, 0, False
        while chosen or self.ready_jobs:
            downloading = sum(job.rule.name == "crawl_extract" for job in chosen)
            now_chosen = []
            for job in [] if failed else sorted(self.ready_jobs, key=lambda job: job.name):
                loads = job.rule.name == "crawl_extract"
                if len(chosen) < self.limits["places"] and downloading + loads <= self.limits["downloads"]:
                    now_chosen.append(job)
                    chosen.add(job)
                    downloading += loads
            self.ready_jobs -= set(now_chosen)
            self.handed_over |= set(now_chosen)
            if now_chosen:
                executor.run_jobs(now_chosen)
            for job in executor.submitted[known:]:
                heapq.heappush(queue, (now + seconds(job), id(job), job))
            known = len(executor.submitted)
            if not queue:
                if failed and not chosen:
                    break
                assert look_twice(executor) and len(executor.submitted) > known, "jobs wait for nothing"
                continue
            now, _, job = heapq.heappop(queue)
            chosen.remove(job)
            if job.name == failing:
                failed = True
                executor.handle_job_error(job)
                continue
            executor.handle_job_success(job)
            for one in self.after[job]:
                left[one] -= 1
                if not left[one]:
                    self.ready_jobs.add(one)
        return executor


class SimpleJob(SimpleNamespace):
    """A job, as far as an executor looks at it."""

    __hash__ = object.__hash__
    restart_times, wildcards_dict = 0, {}

    def is_group(self) -> bool:
        return False


def look_twice(executor: Any) -> bool:
    """Slurm is asked for the states of jobs, twice."""
    for _ in range(2):
        looking = executor.check_active_jobs([])
        with pytest.raises((StopIteration, StopAsyncIteration)):
            looking.__anext__().send(None)
    return True


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """The paper's setting for one dump."""
    names = tmp_path_factory.mktemp("crawl") / "CC-MAIN-2023-50.paths.gz"
    names.write_bytes(gzip.compress("".join(f"crawl-data/{n:05d}.warc.gz\n" for n in range(90_000)).encode()))
    config = read_config([DEFAULTS, ROOT / "configs/deepseekmath-7b.yaml"])
    config["crawl"]["warc"] = [str(names)]
    return Graph(Config(config))


@pytest.mark.parametrize("seed", range(3))
def test_a_dump_is_at_most_200_calls_of_sbatch_whenever_its_jobs_end(dump: Graph, seed: int) -> None:
    """With the profile's limits: `jobs`, `downloads` and tasks of an array."""
    places, downloads = PROFILE["jobs"], int(PROFILE["resources"][0].partition("=")[2])
    chance = random.Random(seed)
    executor = Cluster(dump, places, downloads).run(lambda job: chance.expovariate(1 / 3600))
    assert len(executor.submitted) == len(dump.nodes) == len(set(executor.submitted)), "each job goes once"
    assert sum(executor.calls.values()) <= 200, executor.calls


def test_of_few_places_in_the_queue_only_a_quarter_waits_and_no_job_is_forgotten(
    dump: Graph,
) -> None:
    """The plugin itself forgets what it holds back, and all places are taken by jobs that never run."""
    executor = Cluster(dump, 40, 16).run(lambda job: 60)
    assert set(executor.submitted) == set(executor.workflow.dag.jobs.values())


def test_what_waits_when_a_job_fails_is_submitted(dump: Graph) -> None:
    """Snakemake ends when the jobs have ended that it has handed over; those that wait are some of them."""
    failing = max(name for name in dump.nodes if "/extract-" in name)
    cluster, chance = Cluster(dump, 5000, 5000), random.Random(0)
    executor = cluster.run(lambda job: 9000 if job.name == failing else chance.uniform(0, 9000), failing)
    signed = [job for job in executor.submitted if job.rule.name == "crawl_sign"]
    assert len(signed) == 999 and set(executor.submitted) == cluster.handed_over


def test_a_task_of_an_array_is_told_only_what_the_profile_sets_for_its_own_rule() -> None:
    rules = {*PROFILE["set-resources"], *PROFILE["set-threads"], "crawl_dedup"}
    said = encoded("--set-resources", RESOURCES), encoded("--set-threads", THREADS)
    command = f"snakemake --force {said[0]} {said[1]} --default-resources base64//bWVtX21iPTE= --mode remote"
    own = [line for line in RESOURCES if line.startswith("corpus_train:")]
    threads = [line for line in THREADS if line.startswith("corpus_train=")]
    assert own and threads
    train = f"{encoded('--set-resources', own)} {encoded('--set-threads', threads)}"
    rest = "--default-resources base64//bWVtX21iPTE= --mode remote"
    assert without_others(command, "corpus_train", rules) == f"snakemake --force {train} {rest}"
    assert without_others(command, "crawl_dedup", rules) == f"snakemake --force {rest}"
