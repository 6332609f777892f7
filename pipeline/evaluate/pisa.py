"""Check proofs in Isabelle through PISA (Portal to ISAbelle), as the paper does (section 8.6).

    python -m pipeline.evaluate.pisa --client PISA/src/main/python --isabelle ISABELLE --port 9000

reads proofs from standard input and writes verdicts, as `pipeline.evaluate.proofs` describes. The PISA server
has to run. The theory around each theorem is the official script's, so the row's own header is not used.
Every `sledgehammer` is tried as each of eleven tactics, then as Sledgehammer. A proof can run ML code: use a
machine that holds nothing else.
"""

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

TACTICS = (
    "by auto",
    "by simp",
    "by blast",
    "by fastforce",
    "by force",
    "by eval",
    "by presburger",
    "by sos",
    "by arith",
    "by linarith",
    "by (auto simp: field_simps)",
)
HAMMER = "normalhammer"  # what PISA takes for a call of Sledgehammer
ERRORS = ("error:", "Step error", "Unknown error")
THEORY = (
    'theory Interactive imports HOL.HOL Complex_Main "HOL-Library.Code_Target_Numeral"'
    ' "HOL-Library.Sum_of_Squares" "Symmetric_Polynomials.Vieta"'
    ' "HOL-Computational_Algebra.Computational_Algebra" "HOL-Number_Theory.Number_Theory" \n begin\n'
)


class Environment(Protocol):
    """What is used of PISA's client: one Isabelle process with named states."""

    def initialise(self) -> Any: ...

    def post(self, action: str) -> str: ...

    def step_to_top_level_state(
        self, action: str, tls_name: str, new_name: str
    ) -> tuple[str, float, bool, Any]: ...


def steps_of(environment: Environment, theorem: str) -> list[str]:
    """Return the steps of a theorem with its proof, as Isabelle parses them. `sorry` becomes a call of
    Sledgehammer too: it proves nothing by itself.
    """
    theory = f"{THEORY}{theorem}".replace("sledgehammer", "sorry").replace(HAMMER, "sorry")
    steps = environment.post(f"<parse text> ${theory}").split("<SEP>")
    return [step.replace("sorry", HAMMER) for step in steps if step.strip() not in ("", "$")]


def check(environment: Environment, statement: str, proof: str) -> tuple[bool, str]:
    """(proved, reason) of a proof; `environment` is fresh."""
    environment.initialise()
    state, done, reward = "default", False, 0.0
    for number, step in enumerate(steps_of(environment, f"{statement}\n{proof}")):
        tries = [step.replace(HAMMER, tactic) for tactic in TACTICS] if HAMMER in step else []
        for action in [*tries, step]:
            try:
                seen, reward, done, _ = environment.step_to_top_level_state(
                    action=action, tls_name=state, new_name=f"default_{number}"
                )
            except Exception as error:  # the client has no error of its own: a timeout ends the attempt
                return False, f"step {number + 1}: {type(error).__name__}"
            if not any(sign in seen for sign in ERRORS):
                break
        else:
            return False, f"step {number + 1}: {seen.strip().splitlines()[0]}"
        state = f"default_{number}"
    if done and reward == 1.0:
        return True, "proved"
    return False, "the proof is not finished"


def verdicts(lines: list[str], start: Callable[[], Environment]) -> list[dict[str, Any]]:
    """Return the verdicts on the proofs in `lines`; each gets an Isabelle of its own."""
    found = []
    for line in lines:
        row = json.loads(line)
        environment = start()
        proved, reason = check(environment, row["statement"], row["proof"])
        try:
            environment.post("exit")
        except Exception as error:  # as above; the process may have ended with the attempt
            print(f"{row['id']}: exit: {type(error).__name__}", file=sys.stderr)
        found.append({"id": row["id"], "proved": proved, "reason": reason})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--client", required=True, help="folder of pisa_client.py in Portal-to-ISAbelle")
    parser.add_argument("--isabelle", type=Path, required=True, help="folder of Isabelle2022")
    parser.add_argument("--port", type=int, default=9000, help="the PISA server's")
    arguments = parser.parse_args()
    sys.path.append(arguments.client)
    try:
        client = importlib.import_module("pisa_client")
    except ImportError as error:
        sys.exit(f"error: --client {arguments.client}: {error}")
    examples = arguments.isabelle / "src/HOL/Examples"
    if not (examples / "Interactive.thy").is_file():
        sys.exit(f"error: {examples / 'Interactive.thy'}: not found; PISA's README says how to make it")

    def start() -> Environment:
        return client.initialise_env(
            arguments.port,
            isa_path=str(arguments.isabelle),
            theory_file_path=str(examples / "Interactive.thy"),
            working_directory=str(examples),
        )

    for row in verdicts(sys.stdin.read().splitlines(), start):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
