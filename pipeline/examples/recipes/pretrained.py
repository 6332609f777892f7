"""Write the overlay of `make pretrained`: the model to start from, and local files instead of hub data sets.

The folder of benchmarks holds `mawps_asdiv_train.jsonl[.gz]` (rows with `question`, `answer`, `equation`),
`svamp_test.jsonl[.gz]` and `gsm8k_test.jsonl[.gz]` (bench format). Without it the data sets that
`configs/pretrained.yaml` names come from the hub.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

PROBLEMS = "mawps_asdiv_train"
BENCHMARKS = {"svamp": "svamp_test", "svamp-sampled": "svamp_test", "gsm8k-transfer": "gsm8k_test"}


def data_file(folder: Path, stem: str) -> str:
    """Find the file of that name in the folder, plain or packed."""
    for name in (f"{stem}.jsonl", f"{stem}.jsonl.gz"):
        if (folder / name).is_file():
            return str(folder / name)
    sys.exit(f"error: {folder / stem}.jsonl.gz: not found; it is read where BENCH is given")


def overlay(model: str, bench: Path | None) -> dict[str, Any]:
    """Get what differs from `configs/pretrained.yaml`."""
    values: dict[str, Any] = {"models": {"published": {"init": model}}}
    if bench is not None:
        values["problems"] = {"source": data_file(bench, PROBLEMS)}
        values["benchmarks"] = {name: {"source": data_file(bench, stem)} for name, stem in BENCHMARKS.items()}
    return values


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="folder or hub id of the model to start from")
    parser.add_argument("--bench", type=Path, help="folder of benchmark files; without it, the hub's")
    parser.add_argument("--output", type=Path, required=True, help="overlay to write")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(yaml.safe_dump(overlay(arguments.model, arguments.bench), sort_keys=False))


if __name__ == "__main__":
    main()
