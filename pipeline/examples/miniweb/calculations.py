"""Numbers that text cannot draw by itself: worked calculations, and tasks in plain words.

A calculation is a task, steps (each a reason and the formula that it leads to) and a result, free of any
language. Reasons are symbols of the phrase books, with slots for numbers. A task is the numbers of a text in
the phrase books `applied` (shopping and travelling) and `riddles`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline.examples.miniweb.phrases import Maker, Writer


@dataclass(frozen=True)
class Calculation:
    """`topic` names the kind of task; `task` is the TeX of the given.

    A step: the symbol of its reason, the formula that it leads to, and the numbers in the reason's slots.
    """

    topic: str
    task: str
    steps: list[tuple[Any, ...]]
    result: str


def _integers(rng: random.Random, *ranges: tuple[int, int]) -> list[int]:
    """Draw an integer from each range (least, most)."""
    return [rng.randint(low, high) for low, high in ranges]


def linear_equation(rng: random.Random) -> Calculation:
    a, x, b = _integers(rng, (2, 9), (1, 12), (1, 30))
    total = a * x + b
    steps = [
        ("subtract_both", f"{a}x={a * x}", b),
        ("divide_both", f"x={x}", a),
        ("check", rf"{a}\cdot {x}+{b}={total}"),
    ]
    return Calculation("linear", f"{a}x+{b}={total}", steps, f"x={x}")


def quadratic(rng: random.Random) -> Calculation:
    p, q = sorted(rng.sample(range(1, 12), 2))
    steps = [
        ("factors", rf"{p}\cdot {q}={p * q}\quad {p}+{q}={p + q}", p * q, p + q),
        ("factorise", f"(x-{p})(x-{q})=0"),
    ]
    return Calculation("quadratic", f"x^2-{p + q}x+{p * q}=0", steps, rf"x={p}\text{{ , }}x={q}")


def order_of_operations(rng: random.Random) -> Calculation:
    a, b, c, d = _integers(rng, (2, 20), (2, 9), (2, 9), (1, 9))
    value = str(a + b * (c + d))
    steps = [
        ("brackets_first", rf"{a}+{b}\cdot {c + d}"),
        ("multiply_first", f"{a}+{b * (c + d)}"),
        ("add_last", value),
    ]
    return Calculation("operations", rf"{a}+{b}\cdot ({c}+{d})", steps, value)


def determinant(rng: random.Random) -> Calculation:
    a, b, c, d = _integers(rng, *[(1, 9)] * 4)
    value = a * d - b * c
    steps = [("determinant_rule", rf"{a}\cdot {d}-{b}\cdot {c}={a * d}-{b * c}={value}")]
    matrix = rf"\begin{{pmatrix}} {a} & {b} \\ {c} & {d} \end{{pmatrix}}"
    return Calculation("determinant", matrix, steps, rf"\det A={value}")


def euclid(rng: random.Random) -> Calculation:
    factor = rng.randint(1, 12)
    a, b = (factor * number for number in _integers(rng, (8, 40), (3, 30)))
    a, b = max(a, b) + factor, min(a, b)
    task, steps = rf"\gcd({a},{b})", []
    while b:
        steps.append(("divide_with_remainder", rf"{a}={a // b}\cdot {b}+{a % b}"))
        a, b = b, a % b
    return Calculation("gcd", task, steps, rf"{task}={a}")


def arithmetic_series(rng: random.Random) -> Calculation:
    first, difference, half = _integers(rng, (1, 12), (1, 9), (4, 15))
    n = 2 * half
    last = first + (n - 1) * difference
    total = half * (first + last)
    steps = [
        ("last_term", rf"a_{{{n}}}={first}+{n - 1}\cdot {difference}={last}"),
        ("pair_terms", rf"\frac{{{n}}}{{2}}\cdot ({first}+{last})={total}"),
    ]
    task = rf"{first}+{first + difference}+{first + 2 * difference}+\ldots +{last}"
    return Calculation("series", task, steps, str(total))


def derivative(rng: random.Random) -> Calculation:
    a, b, c, n, x = _integers(rng, (2, 9), (1, 9), (1, 9), (3, 5), (1, 3))
    value = rf"f^{{\prime}}({x})={a * n * x ** (n - 1) + 2 * b * x + c}"
    steps = [
        ("power_rule", rf"f^{{\prime}}(x)={a * n}x^{n - 1}+{2 * b}x+{c}"),
        ("substitute", value, x),
    ]
    return Calculation("derivative", f"f(x)={a}x^{n}+{b}x^2+{c}x", steps, value)


Draw = Callable[[random.Random], Calculation]
ADVANCED: tuple[Draw, ...] = (determinant, euclid, arithmetic_series, derivative)
SCHOOL: tuple[Draw, ...] = (linear_equation, quadratic, order_of_operations)


def worked(*draws: Draw) -> Maker:
    """Make the values of a worked calculation: {task}, {given} (the task in words), {steps} (running text),
    {lines} (a step each) and {result}.
    """

    def values(write: Writer) -> dict[str, str]:
        calculation = write.deal(str(draws), draws)(write.rng)
        steps = [write(reason).format(*values, tex=tex) for reason, tex, *values in calculation.steps]
        given = f"given_{calculation.topic}"
        return {
            "task": calculation.task,
            "given": write(given).format(task=calculation.task) if given in write.book else "",
            "steps": " ".join(steps),
            "lines": "\n".join(steps),
            "result": calculation.result,
        }

    return values


def discount(write: Writer) -> dict[str, int]:
    price, percent = 20 * write.rng.randint(2, 20), 5 * write.rng.randint(1, 12)
    off = price * percent // 100
    return {"price": price, "percent": percent, "off": off, "new": price - off}


def speed(write: Writer) -> dict[str, int]:
    hours, speed = write.rng.randint(2, 9), 5 * write.rng.randint(3, 30)
    return {"hours": hours, "distance": hours * speed, "speed": speed}


def sequence(write: Writer) -> dict[str, int | str]:
    first, step = write.rng.randint(1, 30), write.rng.randint(2, 12)
    shown = ", ".join(str(first + step * k) for k in range(4))
    return {"shown": shown, "step": step, "next": first + 4 * step}


def thought(write: Writer) -> dict[str, int]:
    number, factor, plus = _integers(write.rng, (2, 20), (2, 6), (1, 20))
    product = number * factor
    return {"known": number, "factor": factor, "plus": plus, "product": product, "result": product + plus}
