"""Chinese numerals in digits: 三千五百, 3千5百, 百分之二十, 三分之一, 一天半."""

import re
from fractions import Fraction

_CHINESE_DIGITS = dict(zip("零〇一二两三四五六七八九", (0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9), strict=True))
_PLACES = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8}
_CHINESE_NUMBER = "(?:[零〇一二两三四五六七八九十百万亿]|千(?![米克瓦卡升])){1,40}"  # 千克 is a kilogram
_CHINESE = re.compile(
    rf"(?P<sign>负|-)?(?:(?P<percent>百分之)(?P<share>{_CHINESE_NUMBER}(?:点[零一二三四五六七八九]+)?|\d+(?:\.\d+)?)"
    rf"|(?P<bottom>{_CHINESE_NUMBER}|\d+)分之(?P<top>{_CHINESE_NUMBER}|\d+)"
    rf"|(?P<whole>{_CHINESE_NUMBER})(?:点(?P<decimals>[零一二三四五六七八九]+))?)(?P<half>[个倍年天时米]?半)?"
    r"(?P<unit>[\u4e00-\u9fff]{0,4})"
)
_AMOUNT = r"(?:\d{1,3}(?:,\d{3}){1,5}|\d{1,20})(?:\.\d{1,20})?|[一二两三四五六七八九]"
_PART = rf"(?:{_AMOUNT})\s*[十百千万亿]{{1,3}}"
_MIXED = re.compile(rf"(?<![\d.])(?<!\d,){_PART}(?:\s*零?(?:{_PART}))*(?:零?(?:{_AMOUNT})(?![\d.]))?")
_SIGN = re.compile(rf"{_AMOUNT}|[零十百千万亿]")
_NOT_A_PLACE = re.compile(r"千[米克瓦卡升伏帕焦]|百帕|分之")  # 千米 is a kilometre


class _Unclear(Exception):
    """A numeral that has no certain value."""


def _value(part: str) -> str:
    """Return a Chinese number, perhaps with decimals, in digits: 三十二点五 as 32.5."""
    if part[0].isascii():
        return part
    whole, _, decimals = part.partition("点")
    digits = "".join(str(_CHINESE_DIGITS[sign]) for sign in decimals)
    if _PLACES.keys().isdisjoint(whole):  # 二零二四
        number = int("".join(str(_CHINESE_DIGITS[sign]) for sign in whole))
    else:
        number = _with_places(list(whole))
    return f"{number}.{digits}" if digits else str(number)


def _chinese(text: str) -> str:
    """Return a Chinese number with its measure word in digits: 三十二个 as 32 个; other text unchanged."""
    if text in ("半", "一半"):
        return "1/2"
    match = _CHINESE.fullmatch(text.replace(" ", ""))
    if match is None:
        return text

    sign = "-" if match["sign"] else ""
    try:
        if match["percent"]:
            number = _value(match["share"]) + "%"
        elif match["bottom"]:
            number = f"{_value(match['top'])}/{_value(match['bottom'])}"
        else:
            number = _value(match["whole"] + (f"点{match['decimals']}" if match["decimals"] else ""))
            number += ".5" if match["half"] and "." not in number else ""
    except _Unclear:
        return text
    return f"{sign}{number} {match['unit']}".strip()


def _with_places(signs: list[str]) -> Fraction:
    """Value of the signs of a numeral such as 3千5百. Places fall, each amount fits below the one before."""
    total = section = Fraction(0)
    amount: Fraction | None = None
    place, myriad = Fraction(10**20), Fraction(10**20)
    for before, sign in zip(["", *signs], signs, strict=False):
        unit = Fraction(_PLACES.get(sign, 1))
        if sign in "十百千":
            amount = Fraction(1) if sign == "十" and amount is None else amount  # 十五
            if amount is None or unit >= place or amount * unit >= place:
                raise _Unclear
            section, place, amount = section + amount * unit, unit, None
        elif sign in "万亿":
            below = section + (amount or 0)
            if section and amount and before != "零" and amount < 10:  # 1百5万
                raise _Unclear
            if sign == "亿" and before == "万" and total < unit:
                total, myriad = total * unit, unit
            elif not below or unit >= myriad or below * unit >= myriad:
                raise _Unclear
            else:
                total, myriad = total + below * unit, unit
            section, place, amount = Fraction(0), unit, None
        elif sign not in "零〇":
            if amount is not None:
                raise _Unclear
            amount = Fraction(_CHINESE_DIGITS.get(sign) or sign.replace(",", ""))
    return total + section + _last(amount, signs, place)


def _last(amount: Fraction | None, signs: list[str], place: Fraction) -> Fraction:
    """Return what an amount without a place is worth: 3千5 is 3500, 3千零5 is 3005, 3千500 is 3500."""
    if amount is None:
        return Fraction(0)
    if amount >= place:
        raise _Unclear
    short = len(signs[-1]) == 1 and signs[-2] not in "零〇"
    return amount * max(1, place / 10) if short else amount


def _mixed(match: re.Match[str]) -> str:
    """Return a numeral of digits and places in digits; as it stands where it is none for certain."""
    text, end = match[0], match.end()
    signs = [sign[0] for sign in _SIGN.finditer(text)]
    digits = [sign for sign in signs if sign[0].isdigit() and sign.isascii()]
    if not digits or _NOT_A_PLACE.match(match.string, end - 1) or match.string.startswith("分之", end):
        return text
    if len(signs) == 2:
        return f"{signs[0]}*{_PLACES[signs[1]]}"
    try:
        if "." in text and len([sign for sign in signs if sign not in "零十百千万亿"]) > 1:
            raise _Unclear
        return str(_with_places(signs))
    except _Unclear:
        return text


def in_digits(text: str) -> str:
    """Return the text with its Chinese numerals in digits; a numeral without a certain value stays."""
    return _MIXED.sub(_mixed, _chinese(text))
