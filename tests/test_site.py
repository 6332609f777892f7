"""The profile that `pipeline.cluster` writes for a site."""

import pytest
import yaml
from conftest import ROOT

from pipeline.cluster import chosen, minutes_of, partitions, profile

SINFO = """\
debug|30:00|2|16|64000|(null)
batch*|2-00:00:00|200|64|256000|(null)
gpu|1-00:00:00|30|96|1000000+|gpu:h100:4(S:0-1)
gpu|1-00:00:00|2|96|500000|gpu:h100:4
"""


@pytest.mark.parametrize(
    ("limit", "minutes"), [("infinite", 0), ("30:00", 30), ("4:00:00", 240), ("2-00:00:00", 2880)]
)
def test_time_limits_are_minutes(limit: str, minutes: int) -> None:
    assert minutes_of(limit) == minutes


def test_programs_get_the_partition_memory_gpus_and_time_of_the_site() -> None:
    cpu, gpu = chosen(partitions(SINFO))
    assert (cpu.name, gpu.name, gpu.gpus, gpu.nodes, gpu.memory) == ("batch", "gpu", 4, 32, 500000)
    found = yaml.safe_load(profile(cpu, gpu, accounting=False))
    node = found["set-resources"]["rl_model"]
    assert found["default-resources"]["slurm_partition"] == "batch" and node["slurm_partition"] == "gpu"
    assert (node["gpu"], node["mem_mb"], node["runtime"]) == (4, 475000, 1440)
    assert "--gpus-per-node=4" in node["slurm_extra"]
    assert found["slurm-status-command"] == "squeue"


def test_a_site_like_the_shipped_profile_gets_it_unchanged() -> None:
    cpu, gpu = chosen(partitions("main*|infinite|2|128|2000000|gpu:8\n"))
    assert profile(cpu, gpu, accounting=True) == (ROOT / "profiles/slurm/profile.yaml").read_text()


def test_jobs_ask_for_no_more_cores_and_memory_than_the_smallest_node_has() -> None:
    cpu, gpu = chosen(partitions("main*|infinite|2|16|48000|(null)\n"))
    found = yaml.safe_load(profile(cpu, gpu, accounting=True))
    assert set(found["set-threads"].values()) == {4, 16}
    asked = {name: words["mem_mb"] for name, words in found["set-resources"].items() if name != "rl_model"}
    assert [eval(str(asked["corpus_train"]), {"attempt": attempt}) for attempt in (1, 4)] == [45600, 45600]
    assert [eval(str(asked["crawl_sign"]), {"attempt": attempt}) for attempt in (1, 4)] == [4000, 16000]
    assert found["default-resources"]["mem_mb"] == "8000 * attempt"


def test_jobs_ask_for_no_more_time_than_their_partition_allows() -> None:
    cpu, gpu = chosen(partitions("main*|8:00:00|2|128|2000000|(null)\n"))
    assert gpu is None
    found = yaml.safe_load(profile(cpu, gpu, accounting=True))
    assert found["default-resources"]["runtime"] == 240
    assert found["set-resources"]["crawl_extract"]["runtime"] == 480
