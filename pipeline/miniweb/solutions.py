"""Solutions of word problems in styles of different reliability for a small model.

Step by step (`cot`), one joined sum (`brief`), the bare result (`direct`), a program, or one sum that a
program computes (`tool`). The mix leaves room for reinforcement learning, as in the paper's section 5.2.2: a
model that saw all styles can already solve a problem, and GRPO teaches it to prefer the style that does.
"""

from typing import Literal

from pipeline.miniweb.problems import Problem, languages

Style = Literal["cot", "brief", "direct", "program", "tool"]


def joined_sum(problem: Problem) -> str:
    """Write all operations as one equation, e.g. "5+3-2=6"."""
    first, *rest = problem.operations
    if problem.template.split("-")[1] == "compare":
        return f"{first.left}+{first.left}{first.sign}{first.right}={problem.answer}"
    changes = "".join(f"{operation.sign}{operation.right}" for operation in (first, *rest))
    return f"{first.left}{changes}={problem.answer}"


def program(problem: Problem) -> str:
    """Return a Python program that prints the answer, one statement per operation (the paper's PoT, section
    3.1).
    """
    lines = [f"x{i} = {o.left} {o.sign} {o.right}" for i, o in enumerate(problem.operations, start=1)]
    return "\n".join([*lines, f"print(x{len(lines)})"])


def render_solution(problem: Problem, style: Style, boxed: bool = True) -> str:
    """Return the solution in one style; `boxed` writes the answer as \\boxed{N}, as chat answers do.

    A `program` states no answer: running it prints it. `tool` runs one, reads its output and answers (the
    paper's tool-integrated reasoning, section 3.1).
    """
    if style == "program":
        return f"```python\n{program(problem)}\n```"
    answer = f"\\boxed{{{problem.answer}}}" if boxed else problem.answer
    conclusion = languages()[problem.lang].conclusion.format(answer=answer)
    total = joined_sum(problem)
    run = f"```python\nprint({total.partition('=')[0]})\n```\n```output\n{problem.answer}\n```"
    lines = {"cot": problem.steps, "brief": [total], "direct": [], "tool": [run]}[style]
    return "\n".join([*lines, conclusion])
