"""Programs in model output: which to run, and how the model sees the result (paper section 8.2).

Only text is handled here; `sealedpy` runs the programs.
"""

import re

from sealedpy.pool import Outcome

OUTPUT_FENCE = "```output"
_BLOCK = re.compile(r"```(?:python|py)[ \t]*\n(.*?)(?:\n```|```|\Z)", re.DOTALL)
_ANSWER_NAMES = ("answer", "ans", "result")


def pal_program(text: str) -> str | None:
    """Return the program of a response that is one: its Python blocks joined, or all of a text without
    fences.

    If it prints nothing itself, what `solution()` returns is printed, or else `answer`, `ans` or `result`.
    """
    blocks, parts = _BLOCK.findall(text), text.split("```")
    code = "\n".join(blocks) if blocks else parts[0]
    if not blocks and len(parts) == 5 and all(part.startswith("\n") for part in (parts[1], parts[3])):
        code = f"{parts[3]}\n\n{parts[1]}"  # two plain fences: the program, then its imports (paper 8.3)
    if not code.strip():
        return None
    if not re.search(r"^print\(|^\s+print\(", code, re.MULTILINE):
        if re.search(r"^def solution\(", code, re.MULTILINE):
            return f"{code}\nprint(solution())"
        indent = "" if "def " in code else "[ \t]*"  # indented in a loop, it is still a global variable
        for name in _ANSWER_NAMES:
            if re.search(rf"^{indent}{name}\s*=", code, re.MULTILINE):
                return f"{code}\nprint({name})"
    return code


def tool_program(text: str) -> str | None:
    """Return what a tool-integrated response asks to run: all its Python blocks so far, as one program.

    Blocks share no interpreter: earlier ones run again without their unindented print lines, so that only the
    last block prints. None if the text does not end in a closed Python block.
    """
    if not text.rstrip().endswith("```"):
        return None
    blocks = _BLOCK.findall(text)
    if not blocks or not text.rstrip().endswith((f"{blocks[-1]}\n```", f"{blocks[-1]}```")):
        return None
    earlier = [
        "\n".join(line for line in block.splitlines() if not line.startswith("print(")) for block in blocks
    ]
    return "\n".join([*earlier[:-1], blocks[-1]])


def _cut(text: str, limit: int) -> str:
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}...{text[-half:]}"


def show_result(outcome: Outcome, limit: int) -> str:
    """Return what the model sees of a run: its output or the last line of its error, its middle cut to
    `limit` characters.

    Departure: the paper limits the tokens of an error, not its characters.
    """
    output = outcome.stdout.strip()
    if output:
        return _cut(output, limit)
    if outcome.status == "ok":
        return ""
    lines = outcome.stderr.strip().splitlines()
    what = lines[-1] if lines and outcome.status == "error" else outcome.status
    return f"Runtime errors: {_cut(what, limit)}"


def printed_answer(outcome: Outcome) -> str | None:
    """Return the answer of a program: its last printed line; None if it failed or printed nothing."""
    lines = outcome.stdout.strip().splitlines() if outcome.status == "ok" else []
    return lines[-1].strip() or None if lines else None
