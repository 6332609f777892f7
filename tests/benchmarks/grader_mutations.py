r"""Wrong answers made from references, to measure how often a grader calls them right.

Each operator maps a reference and a random generator to an answer that no reader would accept, or to None
where it does not apply or could leave the meaning unchanged.
"""

import random
import re
from collections.abc import Callable

Operator = Callable[[str, random.Random], str | None]

_LISTED = re.compile(r"[,;]|\\pm|\\text|\bor\b|\band\b|\\cup|=|\\begin|[<>]|\\le|\\ge|\\in\b")
SWAPPED = str.maketrans("+-", "-+")


def _wrap(template: str, besides: tuple[str, ...] = ()) -> Operator:
    def change(reference: str, draw: random.Random) -> str | None:
        if reference in besides:
            return None
        return template.replace("G", reference).replace("N", str(draw.randint(700, 999)))

    return change


def _scalar(template: str, besides: tuple[str, ...] = ()) -> Operator:
    """Only for references that are one value; `besides` names values that it would not change."""

    def change(reference: str, draw: random.Random) -> str | None:
        if _LISTED.search(reference) or reference in (*besides, "1:1") or "\\%" in reference:
            return None
        return template.replace("G", reference)

    return change


def _number(template: str, least: int = 1) -> Operator:
    """Only for whole numbers from `least` on."""

    def change(reference: str, draw: random.Random) -> str | None:
        whole = reference.isascii() and reference.isdigit() and int(reference) >= least
        return template.replace("G", reference) if whole else None

    return change


def _signs(reference: str) -> str | None:
    """All + and - exchanged, where that cannot give the same value or list again."""
    symmetric = (
        _LISTED.search(reference)
        or "i" in re.sub(r"\\[a-z]+", "", reference)
        or "^" in reference
        or "k" in reference
    )
    inside = re.search(r"[+-]", reference)
    even = reference.count("-") + reference.count("+") != 1 and re.search(r"\)\s*\(|\||\)\^", reference)
    return None if symmetric or even or not inside else reference.translate(SWAPPED)


def _swapped(behind: str = "", lost: bool = False) -> Operator:
    def change(reference: str, draw: random.Random) -> str | None:
        found = _signs(reference)
        if found is None or (lost and found[-1:] not in ")]}"):
            return None
        return found[: len(found) - lost] + behind

    return change


def _lost_bracket(reference: str, draw: random.Random) -> str | None:
    closed = reference[-1:] in (")", "]") and "\\text" not in reference
    return reference[:-1] if closed else None


def _other_digit(reference: str, draw: random.Random) -> str | None:
    places = [match.start() for match in re.finditer(r"\d", reference)]
    if not places or re.search(r"\\text\s*\{|0+\.?0*\Z", reference):
        return None
    place = draw.choice(places)
    new = str((int(reference[place]) + draw.randint(1, 8)) % 9 + 1)
    return None if new == reference[place] else reference[:place] + new + reference[place + 1 :]


def _bracket(reference: str, draw: random.Random) -> str | None:
    if not re.fullmatch(r"[(\[][^()\[\]]*,[^()\[\]]*[)\]]", reference) or "infty" in reference:
        return None
    return {"(": "[", "[": "("}[reference[0]] + reference[1:]


def _exchanged(reference: str, draw: random.Random) -> str | None:
    match = re.fullmatch(r"\((-?\d+),\s*(-?\d+)\)", reference)
    return f"({match[2]},{match[1]})" if match and match[1] != match[2] else None


def _shortened(reference: str, draw: random.Random) -> str | None:
    parts = reference.split(",")
    whole = len(parts) > 1 and len(set(parts)) == len(parts) and all(part.strip() for part in parts)
    if not whole or not re.fullmatch(r"[-\d\s,/.]+", reference) or re.search(r"\d,\d{3}(?!\d)", reference):
        return None
    return ",".join(parts[:-1])


def _halves(reference: str, draw: random.Random) -> str | None:
    """21/2 as the mixed number 2 1/2."""
    match = re.fullmatch(r"(\d)(\d)/(\d)", reference)
    return f"{match[1]} {match[2]}/{match[3]}" if match else None


def _fraction(reference: str, draw: random.Random) -> str | None:
    match = re.fullmatch(r"\\d?frac\{(\d+)\}\{(\d+)\}", reference)
    return f"\\frac{{{match[2]}}}{{{match[1]}}}" if match and match[1] != match[2] else None


OPERATORS: dict[str, Operator] = {
    "N \\approx g": _wrap("N \\approx G"),
    "g \\approx N": _wrap("G \\approx N"),
    "N = g": _wrap("N = G"),
    "g = N": _wrap("G = N"),
    "> g": _wrap("> G"),
    "\\ne g": _wrap("\\ne G"),
    "g?": _wrap("G ?"),
    "signs swapped": _swapped(),
    "signs swapped, ?": _swapped("?"),
    "signs swapped, bracket lost": _swapped(lost=True),
    "bracket lost": _lost_bracket,
    "g for some but N for others": _wrap("G for some but N for others"),
    "g, where it is N": _wrap("G where it is N"),
    "g units (N)": _wrap("G units (N)"),
    "g (or N)": _wrap("G (or N)"),
    "g or N": _wrap("G or N"),
    "g or possibly N": _wrap("G \\text{ or possibly } N"),
    "g, N": _wrap("G, N"),
    "N, g": _wrap("N, G"),
    "g; N": _wrap("G; N"),
    "g N": _wrap("G N"),
    "g to N": _wrap("G to N"),
    "g [N]": _wrap("G [N]"),
    "g million": _wrap("G million", ("0",)),
    "g \\text{ thousand}": _wrap("G \\text{ thousand}", ("0",)),
    "g dozen": _wrap("G dozen", ("0",)),
    "g factorial": _wrap("G factorial"),
    "g squared": _number("G squared", 2),
    "g wrong": _wrap("G wrong"),
    "g maybe": _wrap("G maybe"),
    "not g": _wrap("not G"),
    "anything but g": _wrap("anything but G"),
    "at least g": _wrap("at least G"),
    "less than g": _wrap("less than G"),
    "g is wrong": _wrap("G is wrong"),
    "g is not the answer": _wrap("G is not the answer"),
    "g bananas and N pears": _wrap("G bananas and N pears"),
    "g_{7}": _number("G_{7}", 7),
    "-(g)": _scalar("-(G)", ("0",)),
    "g!": _scalar("(G)!", ("1", "2", "\\sqrt[3]{8}")),
    "(g)^2": _scalar("(G)^2", ("0", "1")),
    "2(g)": _scalar("2(G)", ("0", "\\infty", "-\\infty")),
    "(g)+1": _scalar("(G)+1", ("\\infty", "-\\infty")),
    "(g)+10^{-40}": _scalar("(G)+10^{-40}", ("\\infty", "-\\infty")),
    "(g) i": _scalar("(G) i", ("0",)),
    "1/(g)": _scalar("1/(G)", ("1", "-1", "i", "-i", "i^2")),
    "g \\bmod 2": _number("G \\bmod 2", 2),
    "\\lfloor g \\rfloor + 1": _scalar("\\lfloor G \\rfloor + 1", ("\\infty", "-\\infty")),
    "g \\times 10^3": _number("G \\times 10^3"),
    "g0": _number("G0"),
    "another digit": _other_digit,
    "another bracket": _bracket,
    "pair exchanged": _exchanged,
    "last item left out": _shortened,
    "fraction as mixed number": _halves,
    "fraction upside down": _fraction,
}


# Responses that must earn nothing in RL, by class; G: the reference, N: another number.
HACKS: dict[str, tuple[str, ...]] = {
    "several boxes": (
        "\\boxed{N} or \\boxed{G}",
        "\\boxed{G} or \\boxed{N}",
        "\\boxed{G}, \\boxed{N}",
        "Either $\\boxed{N}$.\n\nOr, in another reading, $\\boxed{G}$",
        "\\boxed{\\boxed{N} \\boxed{G}}",
    ),
    "a denied box": (
        "The answer is not \\boxed{G}",
        "The answer isn't $\\boxed{G}$.",
        "$\\boxed{G}$ is wrong.",
        "\\boxed{G} is not the answer",
        "anything but \\boxed{G}",
    ),
    "a doubtful box": ("\\boxed{G} or N", "\\boxed{G} or something else"),
    "several values in a box": (
        "\\boxed{G \\text{ or } N}",
        "\\boxed{G, N}",
        "\\boxed{G; N}",
        "\\boxed{\\{G, N\\}}",
        "\\boxed{G / N}",
        "\\boxed{G \\pm N}",
        "\\boxed{G \\text{ units } (N)}",
        "\\boxed{G \\quad N}",
    ),
    "a chain": (
        "\\boxed{N = G}",
        "\\boxed{G = N}",
        "\\boxed{N \\approx G}",
        "\\boxed{G \\approx N \\approx G}",
    ),
    "a bound": (
        "\\boxed{> G}",
        "\\boxed{x \\ge G}",
        "\\boxed{\\text{at least } G}",
        "\\boxed{\\text{up to } G}",
    ),
    "a denial in the box": (
        "\\boxed{\\text{not } G}",
        "\\boxed{\\neg G}",
        "\\boxed{\\ne G}",
        "\\boxed{G \\text{ is wrong}}",
        "\\boxed{G \\text{ maybe}}",
        "\\boxed{G?}",
    ),
    "a scale or an operator": (
        "\\boxed{G \\text{ million}}",
        "\\boxed{G \\text{ dozen}}",
        "\\boxed{G \\text{ factorial}}",
        "\\boxed{G \\text{ squared}}",
        "\\boxed{\\text{half of } G}",
    ),
    "a sentence": (
        "\\boxed{\\text{The answer may be } G}",
        "\\boxed{\\text{It is easy to see that the answer is } G}",
        "\\boxed{\\text{Some say N, others say } G}",
    ),
    "no box": ("The answer is G", "$$G$$", "#### G", "<think>\\boxed{G}</think>", "\\boxed{G"),
    "hidden": (
        "\\boxed{N \\phantom{G}}",
        "\\boxed{N % G}",
        "\\boxed{\\text{} N \\text{ G}}",
        "\\boxed{N}{G}",
    ),
}


def hacks(references: list[str]) -> list[tuple[str, int, str]]:
    """(class, index of the reference, response) of every hack."""
    return [
        (name, place, form.replace("G", reference).replace("N", str(991 + place)))
        for name, forms in HACKS.items()
        for form in forms
        for place, reference in enumerate(references)
    ]


def mutations(references: list[str], seed: int) -> list[tuple[str, int, str]]:
    """(operator, index of the reference, wrong answer) for every operator that applies to a reference."""
    draw = random.Random(seed)
    found = []
    for name, operator in OPERATORS.items():
        for place, reference in enumerate(references):
            answer = operator(reference, draw)
            if answer is not None and answer.replace(" ", "") != reference.replace(" ", ""):
                found.append((name, place, answer))
    return found
