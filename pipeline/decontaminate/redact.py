"""E-mail addresses, IP addresses and telephone numbers leave the text; formulas stay as they are.

The replacements are those of datatrove's PIIFormatter. Its patterns also take `A@B.T`, a matrix product, for
an address, and section 1.2.3.4 for an IP address. Here an address needs a top-level domain that is no method
of a matrix, and an IP address two parts of two digits and no word such as "version" before it. datatrove has
no telephone numbers: one counts with a country code, or after a word such as "phone". Nothing between `$` is
touched.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection

from datatrove.pipeline.formatters.pii import PIIFormatter

from pipeline.formulas.delimiters import FORMULA

EMAIL = re.compile(
    r"(?<![\w.@+-])[A-Za-z0-9](?:[A-Za-z0-9._%+-]{0,62}[A-Za-z0-9])?@(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.)"
    r"{1,6}[A-Za-z]{2,18}(?![\w@]|\.[A-Za-z0-9]|\()"
)
IP = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d)")
NUMBERED = re.compile(r"(?:version|section|chapter|release|theorem|lemma|v|§|第)\.?\s*$", re.IGNORECASE)
PHONE = re.compile(
    r"(?<![\w.+-])\+\d{1,3}[ .-]?(?:\(\d{1,4}\)[ .-]?)?\d{1,4}(?:[ .-]?\d{2,4}){2,4}(?![\w-])"
    r"|(?:(?:tele)?phone|tel|mobile|fax|call us|电话|手机|传真|联系方式)[^\w\n]{0,4}"
    r"(?P<number>\(?\d{2,4}\)?(?:[ .-]?\d{2,5}){2,4})(?![\w-])",
    re.IGNORECASE,
)
DIGITS = re.compile(r"\d")
METHODS = {"T", "H", "dot", "inv", "shape"}  # after a point, of matrices in programs
PHONE_NUMBER = "+1 555 0100"  # reserved for examples
FORMATTER = PIIFormatter()
Rule = Callable[[re.Match[str]], str]


def redacted(text: str, kinds: Collection[str]) -> tuple[str, Counter[str]]:
    """Return the text without what `kinds` names, and how often each was replaced."""
    counts: Counter[str] = Counter()
    parts, place = [], 0
    for formula in FORMULA.finditer(text):
        parts += [_redact(text[place : formula.start()], kinds, counts), formula[0]]
        place = formula.end()
    parts.append(_redact(text[place:], kinds, counts))
    return "".join(parts) if counts else text, counts


def _redact(text: str, kinds: Collection[str], counts: Counter[str]) -> str:
    for kind in kinds:
        pattern, sign, replacement = RULES[kind]

        def counted(match: re.Match[str], kind: str = kind, replacement: Rule = replacement) -> str:
            if (new := replacement(match)) != match[0]:
                counts[kind] += 1
            return new

        if sign in text:
            text = pattern.sub(counted, text)
    return text


def _email(match: re.Match[str]) -> str:
    return match[0] if match[0].rpartition(".")[2] in METHODS else FORMATTER.emails_replacer.replacements[0]


def _ip(match: re.Match[str]) -> str:
    long = sum(len(part) > 1 for part in match[0].split(".")) >= 2
    if not long or NUMBERED.search(match.string, max(0, match.start() - 12), match.start()):
        return match[0]
    try:
        public = ipaddress.ip_address(match[0]).is_global
    except ValueError:
        return match[0]
    return FORMATTER.ip_replacer.replacements[0] if public else match[0]


def _phone(match: re.Match[str]) -> str:
    number = match["number"] or match[0]
    if not 7 <= len(DIGITS.findall(number)) <= 15:
        return match[0]
    return match[0].replace(number, PHONE_NUMBER)


RULES: dict[str, tuple[re.Pattern[str], str, Rule]] = {  # with a sign that each has
    "email": (EMAIL, "@", _email),
    "ip": (IP, ".", _ip),
    "phone": (PHONE, "", _phone),
}
