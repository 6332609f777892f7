"""`make bench-harness`: our few-shot evaluation beside lm-evaluation-harness on equal weights and questions.

Both answer GSM8K (5 exemplars) and MATH-500 (4) greedily in fp32: ours by stage `evaluate` with vLLM, the
harness by transformers. The harness's tasks `gsm8k` and `minerva_math500` are taken as they are, but for
three things: questions come from local files; the exemplars of GSM8K are the first of its training file, the
same for all questions, and not drawn anew for each; and the model's tokenizer puts the begin-of-sequence
token in front, as our prompts always do. Our layouts repeat the harness's form.

The harness then scores both sides' answers by its own rule, and our grader does too. The harness is told our
answers by the text of the prompt, so a prompt that differs in one character ends the run.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from given.lines import write_lines
from programs import words_of
from table import ROOT, Row, publish, row_of

from pipeline.config.evaluate import BenchmarkNode
from pipeline.data.rows import read_rows
from pipeline.evaluate.benchmarks import Item, load
from pipeline.evaluate.prompts import few_shot_text, read_layout

TOKENS = 256  # longest answer
GSM8K, MATH = "gsm8k", "math500"
TASKS = {GSM8K: ("gsm8k/gsm8k.yaml", 5), MATH: ("minerva_math/minerva_math500.yaml", 4)}
METRICS = {GSM8K: "exact_match,strict-match", MATH: "exact_match,none"}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [row for _, row in read_rows(str(path))]


def copy_model(model: Path, folder: Path) -> Path:
    """The model in fp32, whose tokenizer puts the begin-of-sequence token in front."""
    import torch
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoModelForCausalLM

    from pipeline.training.tokenizer import load_tokenizer

    AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).save_pretrained(folder)
    tokenizer = load_tokenizer(model)
    start = (tokenizer.bos_token, tokenizer.bos_token_id)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{start[0]} $A", special_tokens=[start]
    )
    tokenizer.save_pretrained(folder)
    return folder


def harness_tasks(bench: Path, folder: Path) -> dict[str, str]:
    """Files of the harness's tasks with local data, by our names."""
    import lm_eval

    def data(name: str, questions: str, exemplars: str | None = None) -> dict[str, str]:
        files = {"test": f"{questions}.jsonl.gz"} | ({"train": f"{exemplars}.jsonl.gz"} if exemplars else {})
        return {
            split: str(write_lines(folder / f"{name}-{split}.jsonl", map(published, rows_of(bench / file))))
            for split, file in files.items()
        }

    def published(row: dict[str, Any]) -> dict[str, Any]:
        """A row as the hub's data sets have it."""
        if row["benchmark"] == GSM8K:
            return {"question": row["question"], "answer": f"{row['solution']}\n#### {row['answer_raw']}"}
        return {"problem": row["question"], "solution": row["solution"], "answer": row["answer"]}

    files = {GSM8K: data(GSM8K, "gsm8k_test", "gsm8k_train"), MATH: data(MATH, "math500")}
    tasks = {}
    for name, (file, shots) in TASKS.items():
        task = {"include": str(Path(lm_eval.__file__).parent / "tasks" / file), "task": f"local_{name}"}
        task |= {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": {"data_files": files[name]}}
        task |= {"num_fewshot": shots} | ({"fewshot_config": {"sampler": "first_n"}} if name == GSM8K else {})
        tasks[name] = str(folder / f"{name}-task.yaml")
        Path(tasks[name]).write_text(yaml.safe_dump(task))
    return tasks


def layouts(bench: Path, folder: Path) -> dict[str, Path]:
    """Our few-shot layouts in the harness's form, with its exemplars."""
    from lm_eval.tasks.minerva_math.utils import list_fewshot_samples

    gsm8k = [
        {"question": row["question"], "solution": row["solution"], "answer": row["answer_raw"]}
        for row in rows_of(bench / "gsm8k_train.jsonl.gz")[: TASKS[GSM8K][1]]
    ]
    math = [{"question": row["problem"], "solution": row["solution"]} for row in list_fewshot_samples()]
    forms = {
        GSM8K: {
            "question": "Question: {question}\nAnswer:",
            "solution": " {solution}",
            "answer": "\n#### {answer}",
            "stop": ["Question:"],
            "exemplars": gsm8k,
        },
        MATH: {
            "question": "Problem:\n{question}\n\nSolution:",
            "solution": " {solution}",
            "stop": ["Problem:"],
            "exemplars": math,
        },
    }
    found = {name: folder / f"{name}-layout.yaml" for name in forms}
    for name, path in found.items():
        path.write_text(yaml.safe_dump(forms[name], allow_unicode=True))
    return found


def our_answers(
    model: Path, bench: Path, forms: dict[str, Path], questions: int | None, folder: Path
) -> tuple[dict[str, dict[str, str]], dict[str, list[Item]]]:
    """What stage `evaluate` writes, by the text of the prompt; and the questions."""
    sources = {GSM8K: bench / "gsm8k_test.jsonl.gz", MATH: bench / "math500.jsonl.gz"}
    nodes = {
        name: {"source": str(path), "limit": questions, "modes": ["few_shot_cot"], "shots": TASKS[name][1]}
        for name, path in sources.items()
    }
    section = {"benchmarks": nodes, "max_tokens": TOKENS, "samples": 0}
    inputs = {"model": model} | {f"benchmark.{name}": path for name, path in sources.items()}
    words = words_of(folder, section, {}, inputs | {f"prompt.{name}": forms[name] for name in sources})
    subprocess.run([sys.executable, "-m", "pipeline.evaluate", *words], cwd=ROOT, check=True)
    answers, items = {}, {}
    for name, path in sources.items():
        items[name] = load(name, BenchmarkNode(**nodes[name]), [str(path)])
        layout = read_layout(forms[name])
        shown = [Item("", row.question, row.answer, solution=row.solution) for row in layout.exemplars]
        rows = rows_of(folder / f"data/{name}.few_shot_cot.jsonl")
        answers[name] = {
            few_shot_text(layout, shown, item): row["greedy"]["text"]
            for item, row in zip(items[name], rows, strict=True)
        }
    return answers, items


def compare(model: Path, bench: Path, questions: int | None, batch: int) -> dict[str, dict[str, float]]:
    """For each benchmark: questions, equal answers, and the scores of both sides by both rules."""
    import lm_eval
    from lm_eval.api.model import LM
    from lm_eval.models.huggingface import HFLM

    class Told(LM):
        """A model that answers what it was told, by the text of the prompt."""

        def __init__(self, answers: dict[str, str]) -> None:
            super().__init__()
            self.answers = answers

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            return [self.answers[request.args[0]] for request in requests]

        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[Any]:
            raise LookupError("GSM8K and MATH-500 are scored by answers, and nobody was told likelihoods")

        loglikelihood_rolling = loglikelihood

    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        copy = copy_model(model, folder / "model")
        forms, tasks = layouts(bench, folder), harness_tasks(bench, folder)
        answers, items = our_answers(copy, bench, forms, questions, folder / "ours")
        peer = HFLM(pretrained=str(copy), dtype="float32", device="cpu", batch_size=batch, add_bos_token=True)
        options = {"limit": questions, "bootstrap_iters": 0, "gen_kwargs": {"max_gen_toks": TOKENS}}
        for name, file in tasks.items():
            theirs = lm_eval.simple_evaluate(model=peer, tasks=[file], **options)
            told = lm_eval.simple_evaluate(model=Told(answers[name]), tasks=[file], **options)
            task, metric = f"local_{name}", METRICS[name]
            texts = {sample["doc_id"]: sample["resps"][0][0] for sample in theirs["samples"][task]}
            pairs = list(zip(items[name], (texts[key] for key in sorted(texts)), strict=True))
            ours = list(answers[name].values())
            found[name] = {
                "questions": len(pairs),
                "equal": sum(text == own for (_, text), own in zip(pairs, ours, strict=True)),
                "harness_rule_ours": told["results"][task][metric],
                "harness_rule_theirs": theirs["results"][task][metric],
                "our_rule_ours": sum(
                    item.grade(own).right for (item, _), own in zip(pairs, ours, strict=True)
                )
                / len(pairs),
                "our_rule_theirs": sum(item.grade(text).right for item, text in pairs) / len(pairs),
            }
            print(f"{name}: {found[name]}", flush=True)
            for (item, text), own in zip(pairs, ours, strict=True):
                if text != own:
                    place = next((i for i, (a, b) in enumerate(zip(text, own, strict=False)) if a != b), -1)
                    print(f"{item.id}: from character {place}: {own[place:][:60]!r}, {text[place:][:60]!r}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True, help="model folder")
    parser.add_argument("--bench", type=Path, required=True, help="folder of benchmark files")
    parser.add_argument("--questions", type=int, help="first questions of each only")
    parser.add_argument("--batch", type=int, default=16, help="questions that transformers answers at once")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for name, found in compare(
        arguments.model, arguments.bench, arguments.questions, arguments.batch
    ).items():
        data = f"{found['questions']} questions of {name}"
        pairs = {
            "answers equal, character for character": (found["equal"] / found["questions"], None),
            "score by the harness's rule": (found["harness_rule_ours"], found["harness_rule_theirs"]),
            "score by our grader": (found["our_rule_ours"], found["our_rule_theirs"]),
        }
        for what, shares in pairs.items():
            sides = (share and 100 * share for share in shares)
            rows.append(row_of(f"{name}: {what}", "%", *sides, "lm-evaluation-harness", data, rate=True))
    publish("harness", rows, "fp32, greedy")


if __name__ == "__main__":
    main()
