"""Worked calculations with random numbers, free of any language.

A calculation is a task, steps (each a reason and the formula that it leads to) and a result. Reasons are keys
of the phrase books of the languages, with numbers to fill in.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pipeline.miniweb.grammar import Writer
from pipeline.miniweb.pages import Block, Paragraph


@dataclass(frozen=True)
class Step:
    """`reason` names a phrase, `values` fill its slots; `tex` is the formula after the step."""

    reason: str
    tex: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Calculation:
    """`topic` names the kind of task; `task` is the TeX of what is given."""

    topic: str
    task: str
    steps: tuple[Step, ...]
    result: str


def _signed(number: int) -> str:
    return f"+{number}" if number >= 0 else str(number)


def linear_equation(rng: random.Random) -> Calculation:
    a, x, b = rng.randint(2, 9), rng.randint(1, 12), rng.randint(1, 30)
    total = a * x + b
    steps = (
        Step("subtract_both", f"{a}x={total - b}", (str(b),)),
        Step("divide_both", f"x={x}", (str(a),)),
        Step("check", rf"{a}\cdot {x}+{b}={total}"),
    )
    return Calculation("linear", f"{a}x+{b}={total}", steps, f"x={x}")


def bracket_equation(rng: random.Random) -> Calculation:
    a, x, b = rng.randint(2, 6), rng.randint(2, 12), rng.randint(1, 9)
    total = a * (x + b)
    steps = (
        Step("expand", f"{a}x+{a * b}={total}"),
        Step("subtract_both", f"{a}x={a * x}", (str(a * b),)),
        Step("divide_both", f"x={x}", (str(a),)),
    )
    return Calculation("linear", f"{a}(x+{b})={total}", steps, f"x={x}")


def quadratic(rng: random.Random) -> Calculation:
    p, q = sorted(rng.sample(range(1, 12), 2))
    steps = (
        Step("factors", rf"{p}\cdot {q}={p * q}\quad {p}+{q}={p + q}", (str(p * q), str(p + q))),
        Step("factorise", f"(x-{p})(x-{q})=0"),
    )
    return Calculation("quadratic", f"x^2-{p + q}x+{p * q}=0", steps, rf"x={p}\text{{ , }}x={q}")


def fraction_sum(rng: random.Random) -> Calculation:
    b, d = rng.sample(range(2, 13), 2)
    a, c = rng.randint(1, b - 1), rng.randint(1, d - 1)
    common = math.lcm(b, d)
    left, right = a * common // b, c * common // d
    total = Fraction(left + right, common)
    steps = [
        Step(
            "common_denominator", rf"\frac{{{left}}}{{{common}}}+\frac{{{right}}}{{{common}}}", (str(common),)
        ),
        Step("add_numerators", rf"\frac{{{left + right}}}{{{common}}}"),
    ]
    result = rf"\frac{{{total.numerator}}}{{{total.denominator}}}"
    if total.denominator != common:
        steps.append(Step("reduce", result))
    return Calculation("fractions", rf"\frac{{{a}}}{{{b}}}+\frac{{{c}}}{{{d}}}", tuple(steps), result)


def determinant(rng: random.Random) -> Calculation:
    a, b, c, d = (rng.randint(1, 9) for _ in range(4))
    value = a * d - b * c
    matrix = rf"\begin{{pmatrix}} {a} & {b} \\ {c} & {d} \end{{pmatrix}}"
    steps = (Step("determinant_rule", rf"{a}\cdot {d}-{b}\cdot {c}={a * d}-{b * c}={value}"),)
    return Calculation("determinant", matrix, steps, rf"\det A={value}")


def matrix_vector(rng: random.Random) -> Calculation:
    a, b, c, d, x, y = (rng.randint(1, 9) for _ in range(6))
    top, bottom = a * x + b * y, c * x + d * y
    matrix = rf"\begin{{pmatrix}} {a} & {b} \\ {c} & {d} \end{{pmatrix}}"
    task = rf"{matrix}\begin{{pmatrix}} {x} \\ {y} \end{{pmatrix}}"
    steps = (
        Step("row_times_column", rf"{a}\cdot {x}+{b}\cdot {y}={top}"),
        Step("row_times_column", rf"{c}\cdot {x}+{d}\cdot {y}={bottom}"),
    )
    return Calculation("matrix", task, steps, rf"\begin{{pmatrix}} {top} \\ {bottom} \end{{pmatrix}}")


def euclid(rng: random.Random) -> Calculation:
    factor = rng.randint(1, 12)
    a, b = factor * rng.randint(8, 40), factor * rng.randint(3, 30)
    a, b = max(a, b) + factor, min(a, b)
    task, steps = rf"\gcd({a},{b})", []
    while b:
        steps.append(Step("divide_with_remainder", rf"{a}={a // b}\cdot {b}+{a % b}"))
        a, b = b, a % b
    return Calculation("gcd", task, tuple(steps), rf"{task}={a}")


def congruence(rng: random.Random) -> Calculation:
    base, exponent, modulus = rng.randint(2, 9), rng.randint(3, 6), rng.randint(5, 17)
    steps, power = [], base % modulus
    for k in range(2, exponent + 1):
        product = power * base
        steps.append(
            Step("multiply_reduce", rf"{base}^{k}\equiv {product}\equiv {product % modulus}", (str(modulus),))
        )
        power = product % modulus
    return Calculation("congruence", rf"{base}^{exponent}\mod {modulus}", tuple(steps), str(power))


def arithmetic_series(rng: random.Random) -> Calculation:
    first, difference, n = rng.randint(1, 12), rng.randint(1, 9), 2 * rng.randint(4, 15)
    last = first + (n - 1) * difference
    total = n // 2 * (first + last)
    steps = (
        Step("last_term", rf"a_{{{n}}}={first}+{n - 1}\cdot {difference}={last}"),
        Step("pair_terms", rf"\frac{{{n}}}{{2}}\cdot ({first}+{last})={total}"),
    )
    return Calculation(
        "series", rf"{first}+{first + difference}+{first + 2 * difference}+\ldots +{last}", steps, str(total)
    )


def derivative(rng: random.Random) -> Calculation:
    a, b, c, n, x = (
        rng.randint(2, 9),
        rng.randint(1, 9),
        rng.randint(1, 9),
        rng.randint(3, 5),
        rng.randint(1, 3),
    )
    value = a * n * x ** (n - 1) + 2 * b * x + c
    prime = f"{a * n}x^{n - 1}+{2 * b}x+{c}"
    steps = (
        Step("power_rule", rf"f^{{\prime}}(x)={prime}"),
        Step("substitute", rf"f^{{\prime}}({x})={value}", (str(x),)),
    )
    return Calculation("derivative", f"f(x)={a}x^{n}+{b}x^2+{c}x", steps, rf"f^{{\prime}}({x})={value}")


def percentage(rng: random.Random) -> Calculation:
    part, base = 5 * rng.randint(1, 19), 20 * rng.randint(2, 40)
    steps = (Step("percent_fraction", rf"\frac{{{part}}}{{100}}\cdot {base}={part * base // 100}"),)
    return Calculation("percentage", rf"{part}\%\cdot {base}", steps, str(part * base // 100))


def order_of_operations(rng: random.Random) -> Calculation:
    a, b, c, d = rng.randint(2, 20), rng.randint(2, 9), rng.randint(2, 9), rng.randint(1, 9)
    value = a + b * (c + d)
    steps = (
        Step("brackets_first", rf"{a}+{b}\cdot {c + d}"),
        Step("multiply_first", f"{a}+{b * (c + d)}"),
        Step("add_last", str(value)),
    )
    return Calculation("operations", rf"{a}+{b}\cdot ({c}+{d})", steps, str(value))


def mean_value(rng: random.Random) -> Calculation:
    numbers = [rng.randint(1, 30) for _ in range(4)]
    numbers.append(5 * rng.randint(1, 5) + -sum(numbers) % 5)  # makes the sum divisible by 5
    total = sum(numbers)
    steps = (
        Step("sum_all", "+".join(map(str, numbers)) + f"={total}"),
        Step("divide_count", rf"\frac{{{total}}}{{5}}={total // 5}", ("5",)),
    )
    return Calculation("mean", ",".join(map(str, numbers)), steps, str(total // 5))


def limit(rng: random.Random) -> Calculation:
    a, b, c, d = (rng.randint(2, 9) for _ in range(4))
    steps = (
        Step("divide_power", rf"\frac{{{a}+\frac{{{b}}}{{n}}}}{{{c}+\frac{{{d}}}{{n}}}}", ("n",)),
        Step("terms_vanish", rf"\frac{{{a}}}{{{c}}}"),
    )
    return Calculation(
        "limit", rf"\lim_{{n\to \infty}}\frac{{{a}n+{b}}}{{{c}n+{d}}}", steps, rf"\frac{{{a}}}{{{c}}}"
    )


Maker = Callable[[random.Random], Calculation]

ADVANCED: Sequence[Maker] = (
    determinant,
    matrix_vector,
    euclid,
    congruence,
    limit,
    arithmetic_series,
    derivative,
)
SCHOOL: Sequence[Maker] = (
    linear_equation,
    bracket_equation,
    quadratic,
    fraction_sum,
    percentage,
    order_of_operations,
    mean_value,
)


def explained(write: Writer, calculation: Calculation) -> list[str]:
    """A sentence per step of the calculation, its formula included."""
    return [write(step.reason).format(*step.values, tex=step.tex) for step in calculation.steps]


def worked(write: Writer, calculation: Calculation, task: str, result: str) -> list[Block]:
    """Task, steps and result as paragraphs; `task` and `result` are symbols of the phrase book."""
    return [
        Paragraph(write(task).format(task=calculation.task)),
        Paragraph(" ".join(explained(write, calculation))),
        Paragraph(write(result).format(result=calculation.result)),
    ]
