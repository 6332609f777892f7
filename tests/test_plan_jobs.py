"""What a run is refused for before it starts, and its jobs beside what a profile gives them."""

import os
import re
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, copy_checkout
from given.plans import H100, PAPER_7B, config_of
from given.texts import write

from pipeline.cli.plan.__main__ import main
from pipeline.cli.plan.jobs import Job, Profile, _warc_files, data_jobs, downloads, orders, text_rows
from pipeline.config.crawl import CrawlSection

SLURM = Profile(ROOT / "profiles/slurm")


def test_crawl_and_corpus_are_the_hand_worked_ones() -> None:
    """A dump of 90,000 files: 6,361 core-hours at 131 pages/s, of which each iteration's scoring is 12 %."""
    config = config_of(PAPER_7B)
    jobs = {job.rule: job for job in data_jobs(config, H100)}
    hours = {rule: job.number * job.hours for rule, job in jobs.items()}
    assert hours["crawl_extract"] + hours["corpus_score"] / 4 == pytest.approx(6361, rel=0.02)
    assert hours["corpus_score"] / 4 == pytest.approx(0.12 * 6361, rel=0.02)
    assert hours["crawl_sign"] == pytest.approx(172, rel=0.02)
    assert hours["crawl_buckets"] == pytest.approx(25.4, rel=0.02)
    assert jobs["crawl_extract"].number == 1000 and jobs["corpus_score"].number == 800
    assert (jobs["crawl_buckets"].number, jobs["crawl_filter"].number) == (100, 200)
    assert jobs["crawl_survivors"].number == 1
    assert jobs["crawl_survivors"].main_memory == pytest.approx(2.4e9, rel=0.02)
    assert jobs["crawl_dedup"].hours < 0.02, "it makes links and does not read pages"
    profile = SLURM
    crawled = {rule: job.notes(profile) for rule, job in jobs.items() if rule.startswith("crawl_")}
    assert len(crawled) == 7 and not any(crawled.values()), crawled
    exact = jobs["crawl_exact"]
    assert exact.number == 1 and exact.hours == pytest.approx(2.97e9 / 352_000 / 3600)
    assert exact.hours / profile.threads(exact.rule) < 0.2 and exact.main_memory == 8e9 + 2.97e9 / 8
    train, select = jobs["corpus_train"], jobs["corpus_select"]
    assert train.number == select.number == 4 and train.main_memory == select.main_memory == 48.5e9
    asked = 2.97e9 / 195_000 + 2.97e9 / 51_000 + 1e6 / 50_000
    assert train.hours == pytest.approx(asked / 3600), "reads the duplicates, the pool and what it asks for"
    assert select.hours == pytest.approx(6.6, rel=0.02)
    for job in (train, select):
        assert job.hours / profile.threads(job.rule) < 1.5 and not job.notes(profile)
    rounds = config_of(PAPER_7B, {"corpus": {"annotations": ["1.tsv", "2.tsv", "3.tsv"]}})
    taught = {job.rule: job for job in data_jobs(rounds, H100)}["corpus_train"]
    assert 4 * (taught.hours - train.hours) == pytest.approx(2 * 2.97e9 / 175_000 / 3600), "two new rounds"
    page, together = (job for job in data_jobs(config, H100) if job.rule == "decontaminate_pages")
    assert (page.number, page.main_memory, together.number) == (20, 6.5e9, 1)
    assert 20 * page.hours == pytest.approx(2.97e9 / 263_000 / 3600) and together.hours < 0.1
    assert not page.notes(profile) and not together.notes(profile)
    small = config_of(PAPER_7B, {"crawl": {"pool_shards": 1}})
    alone = {job.rule: job for job in data_jobs(small, H100)}
    page = alone["decontaminate_pages"]
    assert page.number == 1 and page.hours == pytest.approx(3.1, rel=0.02)
    assert jobs["decontaminate_clean"].number == jobs["corpus_score"].number / 4
    assert hours["decontaminate_clean"] == pytest.approx(2.7, rel=0.02)


def test_a_job_of_a_dump_takes_five_minutes_or_more_where_a_rule_has_many() -> None:
    """But for a program that touches only what is kept, a hundredth of the pages."""
    config, profile = config_of(PAPER_7B), SLURM
    jobs = [job for job in data_jobs(config, H100) if job.number > 4]
    short = {job.rule for job in jobs if job.hours * 60 / profile.threads(job.rule) < 5}
    assert short == {"decontaminate_clean"}


def test_math_first_hashes_a_23rd_of_the_pages_of_each_dump_and_then_what_is_left(tmp_path: Path) -> None:
    """90,000 files: 5,500 pages/s and core to look for mathematics, of which 4.4 % pass."""
    config = config_of(PAPER_7B)
    assumed = H100
    paper, math = (data_jobs(config, assumed, order) for order in ("paper", "math_first"))
    assert paper == data_jobs(config, assumed)
    hours = [{job.rule: job.number * job.hours for job in jobs} for jobs in (paper, math)]
    filtering = 90_000 * 33_000 / 5_500 / 3600
    assert hours[1]["crawl_extract"] == pytest.approx(hours[0]["crawl_extract"] + filtering)
    for rule in ("crawl_sign", "crawl_exact", "crawl_buckets", "corpus_score"):
        assert hours[1][rule] == pytest.approx(0.044 * hours[0][rule]), rule
    assert hours[1]["decontaminate_clean"] == hours[0]["decontaminate_clean"]
    two = [tmp_path / f"{name}.paths" for name in "ab"]
    for path in two:
        path.write_text(f"crawl/{path.stem}.warc.gz\n" * 45_000)
    config = config_of(PAPER_7B, {"crawl": {"warc": [str(path) for path in two]}})
    jobs = data_jobs(config, assumed, "math_first")
    (dedup,) = [job for job in jobs if job.rule == "crawl_dedup"]
    assert 0.05 < dedup.hours < 0.1 and dedup.main_memory == 6.5e9 and not dedup.notes(SLURM)
    signed = [job for job in jobs if job.rule == "crawl_sign"]
    assert [job.number for job in signed] == [1000, 334]
    assert signed[1].number * signed[1].hours == pytest.approx(0.55 * 1000 * signed[0].hours)
    said = orders(config, assumed).splitlines()
    assert said[0].startswith("crawl.order paper: core-hours of extraction 5,5") and len(said) == 2


@pytest.mark.slow
def test_rows_of_texts_are_pages_whose_number_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"text": os.urandom(90).hex(), "url": f"https://a.example/{number}"} for number in range(30_000)]
    for name in ("a.parquet", "b.jsonl", "c.jsonl.zst", "d.jsonl.gz"):
        write(tmp_path / name, rows)
    section = CrawlSection(
        texts={"one": {"data": f"{tmp_path}/*.jsonl*"}, "two": {"data": [f"{tmp_path}/a.parquet"]}}
    )
    found = list(text_rows(section))
    assert found == pytest.approx([30_000] * 4, rel=0.1) and found[-1] == 30_000
    config = config_of(PAPER_7B, {"crawl": {"warc": None, "texts": f"{tmp_path}/a.parquet"}})
    jobs = {job.rule: job for job in data_jobs(config, H100)}
    assert (
        jobs["crawl_sign"].hours * 4_800 * 3600 == pytest.approx(30_000) and jobs["crawl_extract"].number == 1
    )


@pytest.mark.parametrize("name", ["a.parquet", "b.jsonl.zst", "c.jsonl.gz", "d.paths.gz"])
def test_a_damaged_file_of_the_crawl_is_one_line_that_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x1f\x8b\x08 no such file")
    key = "warc" if "paths" in name else "texts"
    (tmp_path / "overlay.yaml").write_text(f"crawl: {{{key}: '{tmp_path / name}'}}\n")
    with pytest.raises(SystemExit, match=f"^error: {re.escape(str(tmp_path / name))}: cannot be read"):
        main(["--configfile", str(tmp_path / "overlay.yaml"), "--profile", str(ROOT / "profiles/slurm")])


def test_a_file_of_a_server_is_one_file_and_a_list_of_it_is_many() -> None:
    server = "https://data.example/one.warc.gz"
    assert list(_warc_files([server, "CC-MAIN-2024-10"], 90_000)) == [
        (server, 1),
        ("CC-MAIN-2024-10", 90_000),
    ]


def test_a_limit_on_downloads_bounds_the_time_of_extraction() -> None:
    """5,542 core-hours of a dump by 64 jobs at a time; each loads a file of 1 GB in 252 seconds."""
    config = config_of(PAPER_7B)
    jobs, profile = data_jobs(config, H100), SLURM
    said = downloads(config, jobs, profile)
    assert "64 jobs" in said and "take 87 hours or more" in said and "254 MB/s" in said
    assert "8 jobs" in downloads(config, jobs, Profile(ROOT / "profiles/gpu")), "it sets no other limit"
    here = config_of([], {"crawl": {"warc": str(ROOT / "README.md")}})
    assert downloads(here, data_jobs(here, H100), profile) == ""


def test_a_job_beyond_its_profile_is_named(tmp_path: Path) -> None:
    (tmp_path / "profile.yaml").write_text(
        yaml.safe_dump(
            {
                "default-resources": {"mem_mb": 8000, "runtime": 240},
                "set-threads": {"crawl_extract": 2},
                "set-resources": {"cpt_model": {"gpu": 8, "mem_mb": 100000, "runtime": 1440}},
            }
        )
    )
    profile = Profile(tmp_path)
    assert Job("x", "crawl_extract", 1, 7.9).notes(profile) == []  # on two cores
    assert Job("x", "crawl_dedup", 1, 4.5, main_memory=9e9).notes(profile) == [
        "4.5 hours, the profile gives 4",
        "9 GB of main memory, the profile gives 8",
    ]
    assert Job("x", "cpt_model", 1, 1000.0, gpus=8, main_memory=99e9).notes(profile) == []
    assert Job("x", "cpt_model", 1, 1.0, gpus=16).notes(profile) == [
        "starts on 16 GPUs, the profile reserves 8"
    ]


@pytest.mark.slow
def test_snakemake_refuses_before_any_job_what_the_plan_names(tmp_path: Path) -> None:
    checkout = copy_checkout(tmp_path)
    (tmp_path / "few.yaml").write_text(
        "crawl: {pool_shards: 2}\nmodels: {base: {batch_tokens: 4095}, rl: {launch: {tensor_parallel: 3}}}\n"
    )
    done = checkout.snakemake("--dry-run", overlays=["configs/deepseekmath-7b.yaml", "few.yaml"])
    assert done.returncode != 0 and "config key models.base.batch_tokens: 4095" in done.stdout
    assert "models.rl.launch.tensor_parallel: 3 does not divide 8 ranks" in done.stdout
