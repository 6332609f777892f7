"""The notebook docs/grpo.ipynb runs from its first cell to its last."""

import json
import os
import re
import subprocess
import sys

from conftest import ROOT, Checkout

NOTEBOOK = ROOT / "docs/grpo.ipynb"


def test_a_step_of_grpo_by_hand_moves_outputs_as_their_advantages_say(finished: Checkout) -> None:
    """The notebook's own assertion; `finished` has the model that it starts from."""
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"RUN": str(finished.folder / "results/small"), "STEPS": "2"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"KL 0.0000, ratio 1.0 to 1.0\n", done.stdout)
    assert re.findall(r"^step (\d+): mean reward \d\.\d\d$", done.stdout, re.MULTILINE) == ["1", "2"]


def test_the_notebook_is_stored_without_what_it_printed() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
