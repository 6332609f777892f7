"""Tasks in plain words: shopping and travelling with numbers, and number riddles.

Each function draws the numbers for the task of its name in the phrase books `applied` and `riddles`.
"""

import random
from collections.abc import Callable

from pipeline.miniweb.phrases import Writer

Numbers = dict[str, int | str]


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
