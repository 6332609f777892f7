"""Worked calculations with random numbers, free of any language, and tasks in plain words.

A calculation is a task, steps (each a reason and the formula that it leads to) and a result. Reasons are
symbols of the phrase books, with slots for numbers. A function of `TASKS` draws the numbers for the task of
its name in the phrase books `applied` (shopping and travelling) and `riddles`.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from pipeline.miniweb.phrases import Writer


class Line:
    """One step: `reason` names a phrase, `values` fill its slots; `tex` is the formula that it leads to."""

    def __init__(self, reason: str, tex: str, *values: int | str) -> None:
        self.reason, self.tex, self.values = reason, tex, values


@dataclass(frozen=True)
class Calculation:
    """`topic` names the kind of task; `task` is the TeX of what is given."""

    topic: str
    task: str
    steps: Sequence[Line]
    result: str

    def explained(self, write: Writer) -> list[str]:
        """Return a sentence per step, its formula included."""
        return [write(step.reason).format(*step.values, tex=step.tex) for step in self.steps]


def _integers(rng: random.Random, *ranges: tuple[int, int]) -> list[int]:
    """Draw an integer from each range (least, most)."""
    return [rng.randint(low, high) for low, high in ranges]


def _fraction(top: object, bottom: object) -> str:
    return rf"\frac{{{top}}}{{{bottom}}}"


def _matrix(*rows: Sequence[int]) -> str:
    body = r" \\ ".join(" & ".join(map(str, row)) for row in rows)
    return rf"\begin{{pmatrix}} {body} \end{{pmatrix}}"


def linear_equation(rng: random.Random) -> Calculation:
    a, x, b = _integers(rng, (2, 9), (1, 12), (1, 30))
    total = a * x + b
    steps = (
        Line("subtract_both", f"{a}x={a * x}", b),
        Line("divide_both", f"x={x}", a),
        Line("check", rf"{a}\cdot {x}+{b}={total}"),
    )
    return Calculation("linear", f"{a}x+{b}={total}", steps, f"x={x}")


def bracket_equation(rng: random.Random) -> Calculation:
    a, x, b = _integers(rng, (2, 6), (2, 12), (1, 9))
    total = a * (x + b)
    steps = (
        Line("expand", f"{a}x+{a * b}={total}"),
        Line("subtract_both", f"{a}x={a * x}", a * b),
        Line("divide_both", f"x={x}", a),
    )
    return Calculation("linear", f"{a}(x+{b})={total}", steps, f"x={x}")


def quadratic(rng: random.Random) -> Calculation:
    p, q = sorted(rng.sample(range(1, 12), 2))
    steps = (
        Line("factors", rf"{p}\cdot {q}={p * q}\quad {p}+{q}={p + q}", p * q, p + q),
        Line("factorise", f"(x-{p})(x-{q})=0"),
    )
    return Calculation("quadratic", f"x^2-{p + q}x+{p * q}=0", steps, rf"x={p}\text{{ , }}x={q}")


def fraction_sum(rng: random.Random) -> Calculation:
    b, d = rng.sample(range(2, 13), 2)
    a, c = _integers(rng, (1, b - 1), (1, d - 1))
    common = math.lcm(b, d)
    left, right = a * common // b, c * common // d
    total = Fraction(left + right, common)
    result = _fraction(total.numerator, total.denominator)
    steps = [
        Line("common_denominator", f"{_fraction(left, common)}+{_fraction(right, common)}", common),
        Line("add_numerators", _fraction(left + right, common)),
    ]
    if total.denominator != common:
        steps.append(Line("reduce", result))
    return Calculation("fractions", f"{_fraction(a, b)}+{_fraction(c, d)}", steps, result)


def determinant(rng: random.Random) -> Calculation:
    a, b, c, d = _integers(rng, *[(1, 9)] * 4)
    value = a * d - b * c
    steps = [Line("determinant_rule", rf"{a}\cdot {d}-{b}\cdot {c}={a * d}-{b * c}={value}")]
    return Calculation("determinant", _matrix((a, b), (c, d)), steps, rf"\det A={value}")


def matrix_vector(rng: random.Random) -> Calculation:
    a, b, c, d, x, y = _integers(rng, *[(1, 9)] * 6)
    top, bottom = a * x + b * y, c * x + d * y
    steps = (
        Line("row_times_column", rf"{a}\cdot {x}+{b}\cdot {y}={top}"),
        Line("row_times_column", rf"{c}\cdot {x}+{d}\cdot {y}={bottom}"),
    )
    task = _matrix((a, b), (c, d)) + _matrix([x], [y])
    return Calculation("matrix", task, steps, _matrix([top], [bottom]))


def euclid(rng: random.Random) -> Calculation:
    factor = rng.randint(1, 12)
    a, b = (factor * number for number in _integers(rng, (8, 40), (3, 30)))
    a, b = max(a, b) + factor, min(a, b)
    task, steps = rf"\gcd({a},{b})", []
    while b:
        steps.append(Line("divide_with_remainder", rf"{a}={a // b}\cdot {b}+{a % b}"))
        a, b = b, a % b
    return Calculation("gcd", task, steps, rf"{task}={a}")


def congruence(rng: random.Random) -> Calculation:
    base, exponent, modulus = _integers(rng, (2, 9), (3, 6), (5, 17))
    steps, power = [], base % modulus
    for k in range(2, exponent + 1):
        product, power = power * base, power * base % modulus
        steps.append(Line("multiply_reduce", rf"{base}^{k}\equiv {product}\equiv {power}", modulus))
    return Calculation("congruence", rf"{base}^{exponent}\mod {modulus}", steps, str(power))


def arithmetic_series(rng: random.Random) -> Calculation:
    first, difference, half = _integers(rng, (1, 12), (1, 9), (4, 15))
    n = 2 * half
    last = first + (n - 1) * difference
    total = half * (first + last)
    steps = (
        Line("last_term", rf"a_{{{n}}}={first}+{n - 1}\cdot {difference}={last}"),
        Line("pair_terms", rf"{_fraction(n, 2)}\cdot ({first}+{last})={total}"),
    )
    task = rf"{first}+{first + difference}+{first + 2 * difference}+\ldots +{last}"
    return Calculation("series", task, steps, str(total))


def derivative(rng: random.Random) -> Calculation:
    a, b, c, n, x = _integers(rng, (2, 9), (1, 9), (1, 9), (3, 5), (1, 3))
    value = rf"f^{{\prime}}({x})={a * n * x ** (n - 1) + 2 * b * x + c}"
    steps = (
        Line("power_rule", rf"f^{{\prime}}(x)={a * n}x^{n - 1}+{2 * b}x+{c}"),
        Line("substitute", value, x),
    )
    return Calculation("derivative", f"f(x)={a}x^{n}+{b}x^2+{c}x", steps, value)


def percentage(rng: random.Random) -> Calculation:
    part, base = 5 * rng.randint(1, 19), 20 * rng.randint(2, 40)
    value = str(part * base // 100)
    steps = [Line("percent_fraction", rf"{_fraction(part, 100)}\cdot {base}={value}")]
    return Calculation("percentage", rf"{part}\%\cdot {base}", steps, value)


def order_of_operations(rng: random.Random) -> Calculation:
    a, b, c, d = _integers(rng, (2, 20), (2, 9), (2, 9), (1, 9))
    value = str(a + b * (c + d))
    steps = (
        Line("brackets_first", rf"{a}+{b}\cdot {c + d}"),
        Line("multiply_first", f"{a}+{b * (c + d)}"),
        Line("add_last", value),
    )
    return Calculation("operations", rf"{a}+{b}\cdot ({c}+{d})", steps, value)


def mean_value(rng: random.Random) -> Calculation:
    numbers = _integers(rng, *[(1, 30)] * 4)
    numbers.append(5 * rng.randint(1, 5) + -sum(numbers) % 5)  # makes the sum divisible by 5
    total = sum(numbers)
    steps = (
        Line("sum_all", f"{'+'.join(map(str, numbers))}={total}"),
        Line("divide_count", f"{_fraction(total, 5)}={total // 5}", 5),
    )
    return Calculation("mean", ",".join(map(str, numbers)), steps, str(total // 5))


def limit(rng: random.Random) -> Calculation:
    a, b, c, d = _integers(rng, *[(2, 9)] * 4)
    result = _fraction(a, c)
    divided = _fraction(f"{a}+{_fraction(b, 'n')}", f"{c}+{_fraction(d, 'n')}")
    steps = (Line("divide_power", divided, "n"), Line("terms_vanish", result))
    return Calculation("limit", rf"\lim_{{n\to \infty}}{_fraction(f'{a}n+{b}', f'{c}n+{d}')}", steps, result)


Maker = Callable[[random.Random], Calculation]
Numbers = dict[str, int | str]

ADVANCED: tuple[Maker, ...] = (
    determinant, matrix_vector, euclid, congruence, limit, arithmetic_series, derivative,
)  # fmt: skip
SCHOOL: tuple[Maker, ...] = (
    linear_equation, bracket_equation, quadratic, fraction_sum, percentage, order_of_operations, mean_value,
)  # fmt: skip


def discount(rng: random.Random) -> Numbers:
    price, percent = 20 * rng.randint(2, 20), 5 * rng.randint(1, 12)
    off = price * percent // 100
    return {"price": price, "percent": percent, "off": off, "new": price - off}


def speed(rng: random.Random) -> Numbers:
    hours, speed = rng.randint(2, 9), 5 * rng.randint(3, 30)
    return {"hours": hours, "distance": hours * speed, "speed": speed}


def goals(rng: random.Random) -> Numbers:
    goals = [rng.randint(0, 5) for _ in range(4)]
    goals.append(rng.randint(0, 1) * 5 + -sum(goals) % 5)  # makes the sum divisible by 5
    listed, total = [str(number) for number in goals], sum(goals)
    first, joined = ", ".join(listed[:-1]), "+".join(listed)
    return {"first": first, "last": goals[-1], "sum": joined, "total": total, "mean": total // 5}


def bill(rng: random.Random) -> Numbers:
    count, price = rng.randint(2, 6), rng.randint(3, 30)
    cost = count * price
    paid = -(-cost // 50) * 50
    return {"count": count, "price": price, "cost": cost, "paid": paid, "change": paid - cost}


def digits(rng: random.Random) -> Numbers:
    ones = rng.randint(0, 6)
    tens = rng.randint(ones + 1, 9)
    return {"ones": ones, "tens": tens, "sum": tens + ones, "difference": tens - ones}


def ages(rng: random.Random) -> Numbers:
    age, factor = rng.randint(3, 15), rng.randint(2, 5)
    older, younger = ("The mother", "her child") if age * factor > age + 15 else ("The oak", "the birch")
    parts = factor + 1
    return {
        "older": older, "younger": younger, "age": age, "factor": factor, "parts": parts, "sum": age * parts,
    }  # fmt: skip


def sequence(rng: random.Random) -> Numbers:
    first, step = rng.randint(1, 30), rng.randint(2, 12)
    shown = ", ".join(str(first + step * k) for k in range(4))
    return {"shown": shown, "step": step, "next": first + 4 * step}


def thought(rng: random.Random) -> Numbers:
    number, factor, plus = rng.randint(2, 20), rng.randint(2, 6), rng.randint(1, 20)
    product = number * factor
    return {"number": number, "factor": factor, "plus": plus, "product": product, "result": product + plus}


TASKS: dict[str, tuple[Callable[[random.Random], Numbers], ...]] = {
    "applied": (discount, speed, goals, bill),
    "riddles": (digits, ages, sequence, thought),
}


def draw_task(write: Writer) -> tuple[str, str]:
    """Return a task of the page's genre: question, and solution (one line per step)."""
    numbers = write.rng.choice(TASKS[write.genre])
    values = numbers(write.rng)
    question, _, solution = write(numbers.__name__).format(**values).partition("\n")
    return question, solution
