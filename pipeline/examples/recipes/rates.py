"""The learning rates of `make compare`: the same few for each method, chosen on development questions.

Without `--results` it writes an overlay that tries each rate once for each method of the first round, at full
length and with a seed of its own. With the results of that run it writes an overlay with the
rate of each method that answered most development questions; of equals the smaller. Later rounds take the
rate of their first.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

from pipeline.core.overlays import read_config

SEED = 100
MODE = "chat_cot"


def methods(config: dict[str, Any]) -> dict[str, list[str]]:
    """Group the names of the RL models by method, a first round in front: `grpo-os-0` is of `grpo-os`."""
    models, found = config["models"], {}
    for name, node in models.items():
        if node["stage"] == "rl" and models[node["parent"]]["stage"] != "rl":
            found.setdefault(re.sub(r"-\d+$", "", name), []).append(name)
    firsts = {name: method for method, names in found.items() for name in names}
    for name, node in models.items():
        if node["stage"] == "rl" and name not in firsts:
            found[firsts[node["parent"]]].append(name)
    return found


def trials(config: dict[str, Any], grid: list[float], dev: str) -> dict[str, Any]:
    """Build the overlay that tries every rate of `grid` with every method."""
    models = {name: None for name, node in config["models"].items() if node["stage"] == "rl"}
    models |= {name: None for name, node in config["models"].items() if node.get("policy") in models}
    models["instruct"] = {"benchmarks": ["dev"]}
    for method, (first, *_) in methods(config).items():
        node = config["models"][first]
        for rate in grid:
            own = {"learning_rate": rate, "seed": SEED, "benchmarks": ["dev"]}
            models[f"{method}-at-{rate:g}"] = node | own
    nodes = dict.fromkeys(config["benchmarks"]) | {"dev": {"source": dev, "samples": 0}}
    return {"run": f"{config['run']}-rates", "benchmarks": nodes, "models": models}


def chosen(config: dict[str, Any], grid: list[float], results: Path) -> dict[str, Any]:
    """Build the overlay with the best rate of each method; results/evaluate/METHOD-at-RATE has the scores."""
    models: dict[str, Any] = {}
    for method, names in methods(config).items():
        scores = {}
        for rate in grid:
            path = results / f"evaluate/{method}-at-{rate:g}/data/scores.json"
            if not path.is_file():
                sys.exit(f"error: {path}: not found; the run that tries the learning rates is not complete")
            scores[rate] = json.loads(path.read_text())["dev"][MODE]["accuracy"]
        best = max(sorted(grid), key=lambda rate: scores[rate])
        tried = ", ".join(f"{rate:g}: {100 * score:.1f} %" for rate, score in scores.items())
        print(f"{method}: {tried}; takes {best:g}")
        models |= {name: {"learning_rate": best} for name in names}
    return {"models": models}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", type=Path, required=True, help="the comparison: configs/compare.yaml")
    parser.add_argument("--grid", type=float, nargs="+", required=True, help="learning rates")
    parser.add_argument("--dev", help="development questions: a bench-format file, or miniweb:dev.jsonl")
    parser.add_argument("--results", type=Path, help="results of the run that tried the rates")
    parser.add_argument("--output", type=Path, required=True, help="overlay to write")
    arguments = parser.parse_args()
    if (arguments.dev is None) == (arguments.results is None):
        parser.error("give either --dev, to try the rates, or --results, to choose among them")
    config = read_config([arguments.config])
    if arguments.dev:
        overlay = trials(config, arguments.grid, arguments.dev)
    else:
        overlay = chosen(config, arguments.grid, arguments.results)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(yaml.safe_dump(overlay, sort_keys=False))


if __name__ == "__main__":
    main()
