"""`make bench-variants`: benchmark questions in other forms, found by decontamination and by its peer.

Each question is changed in every way that applies to it, put into a page, and looked for. The peer is
datatrove's NGramsDecontFilter with 10-grams. Pages without a question must not be taken for one: those into
which, as `labels.jsonl` says, none was put, whatever either check makes of them. A translation needs `DATA=`:
MGSM's Chinese for GSM8K's English.
"""

import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from after_extraction import Page, page_texts, stock_decontamination
from given.cases import cases
from sources import find_sources
from table import Row, data_folder, larger_set, publish, row_of

from pipeline.crawl.grams import CJK_CHARACTER
from pipeline.data.rows import read_rows
from pipeline.decontaminate.ngrams import BenchmarkIndex

TABLES = cases("variants")
LABELS = "labels.jsonl"
QUESTIONS = 40  # varied, drawn evenly from all
OWN = TABLES["questions"]
UNICODE = TABLES["unicode"]
SYNONYMS = TABLES["synonyms"]
WORDS = dict(zip("23456789", ("two", "three", "four", "five", "six", "seven", "eight", "nine"), strict=True))
CHINESE = dict(zip("23456789", "二三四五六七八九", strict=True))
TRADITIONAL = str.maketrans(
    "图书馆还剩没这个几时两车后开树总数个万与为买钱长宽圆",
    "圖書館還剩沒這個幾時兩車後開樹總數個萬與為買錢長寬圓",
)
Variant = Callable[[str, random.Random], str]


def is_chinese(text: str) -> bool:
    return bool(CJK_CHARACTER.search(text))


def replaced(patterns: dict[str, str]) -> Variant:
    def variant(text: str, draw: random.Random) -> str:
        for pattern, other in patterns.items():
            text = re.sub(pattern, other, text)
        return text

    return variant


def renamed(text: str, draw: random.Random) -> str:
    """Each variable under another name, in the formulas."""
    names = dict(zip("xyzabcnkpqrtf", "uvwghsmjtrqpx", strict=True))
    letter = re.compile(r"(?<![\\A-Za-z])([a-z])(?![A-Za-z])")
    return re.sub(r"\$[^$]+\$", lambda formula: letter.sub(lambda m: names.get(m[1], m[1]), formula[0]), text)


def typos(text: str, draw: random.Random) -> str:
    """Two letters swapped in one long word of ten; in Chinese one character of thirty is lost."""
    if is_chinese(text):
        places = [place for place, letter in enumerate(text) if CJK_CHARACTER.match(letter)]
        lost = set(draw.sample(places, max(1, len(places) // 30)))
        return "".join(letter for place, letter in enumerate(text) if place not in lost)
    words = text.split(" ")
    long = [place for place, word in enumerate(words) if len(word) > 4 and word.isalpha()]
    for place in draw.sample(long, max(1, len(long) // 5)) if long else ():
        word, cut = words[place], draw.randrange(1, len(words[place]) - 2)
        words[place] = word[:cut] + word[cut + 1] + word[cut] + word[cut + 2 :]
    return " ".join(words)


def inserted(what: str, every: int) -> Variant:
    """`what` after each few words, or three times as many Chinese characters."""

    def variant(text: str, draw: random.Random) -> str:
        if is_chinese(text):
            parts = re.split(r"(?<=[，。,])", text)
            return what.join(part for part in parts if part) if len(parts) > 1 else text
        words = text.split(" ")
        return " ".join(
            word + (what if place % every == every - 1 else "") for place, word in enumerate(words)
        )

    return variant


def sentences(text: str, draw: random.Random) -> str:
    """The statements in reverse order; the question stays last."""
    parts = [part for part in re.split(r"(?<=[.。?？!])\s*(?![\d])", text) if part]
    gap = "" if is_chinese(text) else " "
    return gap.join([*parts[-2::-1], parts[-1]]) if len(parts) > 2 else text


def number_words(text: str, draw: random.Random) -> str:
    names = CHINESE if is_chinese(text) else WORDS
    return re.sub(r"(?<![\d.$\\{^])([2-9])(?![\d.}])", lambda m: names[m[1]], text)


def reworded(text: str, draw: random.Random) -> str:
    for word, other in SYNONYMS.items():
        text = re.sub(rf"\b{word}\b" if word.isascii() else word, other, text)
    return text


def full_width(text: str, draw: random.Random) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if c.isascii() and c.isdigit() else c for c in text).upper()


KINDS: dict[str, Variant] = {
    r"\dfrac, \tfrac": replaced({r"\\frac": r"\\dfrac"}),
    r"\left, spaces, fonts": replaced(
        {
            r"(?<![a-z])\(": r"\\left(\\,",
            r"\)": r"\\,\\right)",
            r"(?<=\$)(?=\w)": r"\\displaystyle ",
            "=": r"\\; = \\;",
        }
    ),
    "Unicode formulas": replaced(UNICODE),
    "other variables": renamed,
    "typing errors": typos,
    "footnotes between words": inserted("[12]", 5),
    "remarks between words": inserted(" (see above)", 7),
    "words changed": reworded,
    "sentences in another order": sentences,
    "numbers in words": number_words,
    "HTML and Markdown": replaced({r" (\w{5,}) ": r" **\1**<br>\n", "，": "，<br>"}),
    "width and case": full_width,
    "traditional characters": lambda text, draw: text.translate(TRADITIONAL),
}


def variants(questions: list[str]) -> list[tuple[str, str]]:
    """(kind, changed question) for each question and each kind that changes it."""
    draw = random.Random(0)
    found = [(kind, vary(question, draw), question) for question in questions for kind, vary in KINDS.items()]
    return [(kind, text) for kind, text, question in found if text != question]


def in_page(text: str) -> str:
    return f"Exercises of the week, with hints below.\n{text}\nHint: draw a picture first. 提示：先画图。"


def table(items: list[tuple[str, str, str]], extra: list[tuple[str, str]], clean: list[str]) -> list[Row]:
    """Shares found by kind, and of clean pages flagged; `extra`: further (kind, text) pairs."""
    ours, exact = BenchmarkIndex(10, 3, fuzzy=True), BenchmarkIndex(10, 3)
    for number, (name, question, answer) in enumerate(items):
        for index in (ours, exact):
            index.add(name, str(number), question)
            index.add(name, str(number), answer, is_question=False)
    peer = stock_decontamination(items)
    questions = [question for _, question, _ in items if len(question) > 40]
    chosen = [*(OWN if OWN[0] in questions else ()), *questions[:: max(1, len(questions) // QUESTIONS)]]
    cases = [*variants(list(dict.fromkeys(chosen))), *extra]
    rows = []
    for kind in dict.fromkeys(kind for kind, _ in cases):
        texts = [in_page(text) for other, text in cases if other == kind]
        found = [sum(map(bool, map(index.matches, texts))) for index in (ours, exact)]
        theirs = sum(peer.filter(Page(text)) is not True for text in texts)
        rows.append(
            _row(f"{kind}: {len(texts)} variants, {found[1]} by 10-grams alone", found[0], theirs, len(texts))
        )
    total = [sum(row[side] * row["count"] for row in rows) / 100 for side in ("ours", "peer")]
    rows.append(_row(f"all {len(cases)} variants", *total, len(cases)))
    false = [sum(map(bool, map(index.matches, clean))) for index in (ours, exact)]
    lost = sum(peer.filter(Page(text)) is not True for text in clean[::5])
    said = f"false alarms: {len(clean)} clean pages, {false[1]} by 10-grams alone"
    rows.append(_row(said, false[0], lost * 5, len(clean)))
    return rows


def _row(what: str, ours: float, peer: float, count: int) -> Row:
    shares = 100 * ours / count, 100 * peer / count
    return row_of(what, "% found", *shares, "datatrove NGramsDecontFilter", rate=True) | {"count": count}


def clean_texts(warc: Path) -> list[str]:
    """The texts of the pages into which no benchmark question was put."""
    (labels,) = (path for path in (warc.parent / LABELS, warc.parents[1] / LABELS) if path.exists())
    planted = {row["url"] for _, row in read_rows(str(labels)) if row["contaminated_by"]}
    return page_texts(warc, planted)


def main() -> None:
    data = data_folder(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        sources = find_sources(data, Path(folder))
        clean = clean_texts(sources.warc)
    items = sources.items
    if not any("\\" in question for _, question, _ in items):
        items = [("own", question, "0") for question in OWN] + items
    extra = []
    if mgsm := larger_set(data, "bench/mgsm.jsonl.gz", "no translations"):
        rows = [row for _, row in read_rows(str(mgsm)) if row.get("language", row.get("lang")) == "zh"]
        extra = [("translated to Chinese", row["question"]) for row in rows[:: max(1, len(rows) // 20)]]
    publish("variants", [row | {"data": sources.questions} for row in table(items, extra, clean)], "one used")


if __name__ == "__main__":
    main()
