r"""Compare single values: units, percent, degrees, bases, ratios, rounding, families such as \pi/6 + k\pi."""

from . import units
from .asked import Asked
from .prose import same_words
from .tree import Decision, Expression, make, number, symbols, walk
from .values import context, exact, linear, same, value

NOISE, NOISE_DENOMINATOR = 1e-12, 10**9
MEASURED = 2e-6  # relative
TINY = 1e-50
PARAMETERS = frozenset("knmlN")


def same_scalar(gold: Expression, given: Expression, asked: Asked) -> Decision:
    """Compare two single values with their units."""
    if "text" in (gold.kind, given.kind):
        return _text(gold, given)
    (gold, gold_unit), (given, given_unit) = _unit(gold), _unit(given)
    outcome = _plain(gold, given, asked)
    if units.agree(gold_unit, given_unit):
        return outcome
    return ("undecided", "units differ") if outcome[0] == "right" else ("wrong", "numbers and units")


def _text(gold: Expression, given: Expression) -> Decision:
    if gold.kind == given.kind:
        return ("right" if same_words(gold.value, given.value) else "wrong"), "words"
    words, other = (gold, given) if gold.kind == "text" else (given, gold)
    if other == Expression("constant", "infinity"):
        return ("right" if same_words(words.value, "infinity") else "wrong"), "words"
    if other == Expression("set"):
        return ("right" if same_words(words.value, "none") else "wrong"), "words"
    return "wrong", "words against a value"


def _unit(node: Expression) -> tuple[Expression, str]:
    if node.kind == "quantity":
        return node.args[0], node.value
    return node, ""


def _plain(gold: Expression, given: Expression, asked: Asked) -> Decision:
    for rule in (_bases, _degrees, _percent, _ratios):
        if (outcome := rule(gold, given, asked)) is not None:
            return outcome
    return _values(gold, given, asked)


def _bases(gold: Expression, given: Expression, asked: Asked) -> Decision | None:
    """Compare the digits of 204_5; only an answer may leave out its base, or have one that was asked for."""
    if "base" not in (gold.kind, given.kind):
        return None
    if gold.kind == given.kind:
        return ("right" if gold.value == given.value else "wrong"), "base"
    plain, other = (given, gold) if gold.kind == "base" else (gold, given)
    if given.kind == "base" and given.value[1] not in asked.bases:
        return "wrong", "a base that was not asked for"
    return ("right" if exact(plain) == other.value[0] else "wrong"), "digits in a base"


def _degrees(gold: Expression, given: Expression, asked: Asked) -> Decision | None:
    kinds = [node.kind == "degrees" for node in (gold, given)]
    if all(kinds):
        return _values(gold.args[0], given.args[0], asked)
    if not any(kinds):
        return None
    if kinds[1] and not kinds[0] and asked.known and not units.fits("°", asked.text):
        return "undecided", "degrees that the question does not name"
    angle, other = (gold, given) if kinds[0] else (given, gold)
    if Expression("constant", "pi") in walk(other):
        return _values(angle, other, asked)[0], "degrees as radians"
    outcome = _values(angle.args[0], other, asked)[0]
    if outcome == "right" and asked.radians and angle is given:
        return "wrong", "degrees where radians are asked for"
    return outcome, "degrees"


def _percent(gold: Expression, given: Expression, asked: Asked) -> Decision | None:
    kinds = [node.kind == "percent" for node in (gold, given)]
    if not any(kinds):
        return None
    bare = [node.args[0] if node.kind == "percent" else node for node in (gold, given)]
    written = bare[0].kind in ("number", "decimal", "neg")  # no 1/6 % for 1/6
    if same(*bare) and (kinds[0] or (written and (asked.percent or not (asked.known or asked.strict)))):
        return "right", "percent asked for"
    return _values(gold, given, asked)[0], "percent"


def _ratios(gold: Expression, given: Expression, asked: Asked) -> Decision | None:
    """Compare ratios: a : b is a/b; three parts and more are equal up to a factor."""
    kinds = [node.kind == "ratio" for node in (gold, given)]
    if not any(kinds):
        return None
    lengths = [len(node.args) for node in (gold, given) if node.kind == "ratio"]
    if all(kinds) and lengths[0] == lengths[1] > 2:
        crossed = (
            same(make("mul", gold.args[0], right), make("mul", given.args[0], left))
            for left, right in zip(gold.args[1:], given.args[1:], strict=True)
        )
        return ("right" if all(crossed) else "wrong"), "ratio"
    return None if set(lengths) == {2} else ("wrong", "ratio")


def _values(gold: Expression, given: Expression, asked: Asked) -> Decision:
    outcome = same(gold, given)
    if outcome:
        return "right", "numbers" if exact(gold) is not None and exact(given) is not None else "numeric"
    if outcome is False:
        if _float_noise(gold, given, asked.measured):
            return "right", "equal up to float noise"
        if asked.decimals is not None and gold.kind != "decimal" and is_rounding(gold, given, asked.decimals):
            return "right", "rounded as asked"
        if _same_family(gold, given):
            return "right", "same family"
        return "wrong", "numbers" if exact(gold) is not None and exact(given) is not None else "numeric"
    return "undecided", "no value to compare"


def _float_noise(gold: Expression, given: Expression, measured: bool) -> bool:
    """Whether `given` has the length of a binary float and equals `gold` up to the float's last digits.

    Of a measured quantity the seventh digit may differ.
    """
    noisy = exact(given) if _is_literal(given) else None
    if noisy is None or (not measured and noisy.denominator < NOISE_DENOMINATOR):
        return False
    known = value(gold)
    if known is None or known == 0 or context.im(known) != 0:
        return False
    error = abs(value(given) / known - 1)
    return (measured and error < MEASURED) or (noisy.denominator >= NOISE_DENOMINATOR and error < NOISE)


def _is_literal(node: Expression) -> bool:
    """Whether an expression is a numeral, perhaps with a sign or a power of ten, or a fraction of two."""
    if node.kind in ("neg", "mul", "div"):
        return all(map(_is_literal, node.args))
    return node.kind in ("number", "decimal") or (node.kind == "pow" and node.args[0] == number(10))


def is_rounding(exactly: Expression, numeral: Expression, places: int | None = None) -> bool:
    """Whether a numeral, also in percent, is `exactly` rounded to `places`, or to its own last digit."""
    written = numeral.args[0] if numeral.kind in ("neg", "percent", "quantity", "degrees") else numeral
    known, rounded = value(exactly), exact(numeral)
    if known is None or rounded is None or context.im(known) != 0 or not context.isfinite(known):
        return False
    if places is None and written.kind in ("number", "decimal"):
        places = next((place for place in range(30) if (rounded * 10**place).denominator == 1), None)
    if places is None or (rounded * 10**places).denominator != 1:
        return False
    if exact(exactly) == round(exact(exactly) or 0, places):
        return False
    return abs(value(numeral) - known) <= context.mpf(10) ** -places / 2 * (1 + context.mpf(10) ** -30)


def _same_family(gold: Expression, given: Expression) -> bool:
    r"""Whether a + b k over all whole k gives the same values: \pi/4 + k\pi and -3\pi/4 + k\pi."""
    names = symbols(gold)
    if names != symbols(given) or len(names) != 1 or not names <= PARAMETERS:
        return False
    if not any(part == Expression("constant", "pi") for part in walk(gold)):
        return False
    name = next(iter(names))
    ours, theirs = linear(gold, name), linear(given, name)
    if ours is None or theirs is None:
        return False
    steps = value(ours[1]), value(theirs[1])
    starts = value(ours[0]), value(theirs[0])
    if None in steps or None in starts or 0 in steps:
        return False
    if min(abs(steps[0] - steps[1]), abs(steps[0] + steps[1])) > TINY:
        return False
    shift = (starts[0] - starts[1]) / steps[0]
    return abs(shift - context.nint(shift)) < TINY
