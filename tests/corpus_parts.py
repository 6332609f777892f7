"""The programs before `wanted`, as jobs of their own."""

import json
from functools import partial
from importlib import import_module
from pathlib import Path

from killing import survives_loss_and_kills

from pipeline.config.corpus import CorpusSection
from pipeline.data.shards import read_table, write_table
from pipeline.protocol.stage import run_stage

Inputs = dict[str, Path | list[Path]]


def in_parts(
    tmp_path: Path, pool: Path, iteration: int, inputs: Inputs, lost: bool = False, **config: object
) -> Path:
    """What `wanted` writes where jobs of two parts have read the scores and the duplicates before; of each
    program the last job is `lost`, killed again and again, and made again alone.
    """

    def made(name: str, given: Inputs) -> Path:
        output, words = tmp_path / name, [f"--instance=iteration-{iteration}/{name}"]
        for key, paths in given.items():
            words += [f"--input={key}={path}" for path in (paths if isinstance(paths, list) else [paths])]
        program = import_module(f"pipeline.corpus.{name.partition('-')[0]}").run
        words += ["--config", json.dumps(config), "--output", str(output)]
        again = partial(run_stage, "corpus", CorpusSection, program, words)
        again()
        if lost and not name.endswith("-0000"):
            survives_loss_and_kills(again, output)
        return output

    def half(folder: Path, name: str, number: int) -> Path:
        table = read_table(folder / f"{name}.parquet")
        rows = [row for row in table.to_pylist() if sum(row["url"].encode()) % 2 == number]
        assert 0 < len(rows) < len(table) or name == "duplicates"
        write_table(tmp_path / f"{name}-{number}/{name}.parquet", rows, table.schema)
        return tmp_path / f"{name}-{number}/{name}.parquet"

    before = {key: inputs[key] for key in ("previous", "new_round") if key in inputs}
    urls = {key: inputs[key] for key in inputs if "urls" in key or key.startswith("out_of_distribution")}
    found: Inputs = {"learn": [], "listed": []}
    if "new_round" in inputs:
        given = before | {"annotations": inputs["annotations"]}
        for number in range(2):
            own = {"previous_score": half(inputs["previous_score"], "scores", number).parent}
            own["kept"] = half(inputs["previous"], "kept", number)
            found["learn"].append(made(f"learn-{number:04d}", given | own))
    given = before | urls | {"learn": found["learn"]}
    for number in range(2):
        own = {"duplicates": half(pool, "duplicates", number)}
        found["listed"].append(made(f"listed-{number:04d}", given | own))
    (tmp_path / "nothing").mkdir(exist_ok=True)  # neither scores nor all duplicates are read again
    left = {key: paths for key, paths in inputs.items() if key not in ("annotations", "previous_score")}
    return made("wanted", left | found | {"pool": tmp_path / "nothing"})
