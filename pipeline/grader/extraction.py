r"""Find the final answer in a response: a box, an announcing phrase in many languages, or the last value.

Text inside an unclosed <think> is ignored. `extract` lists the rules in order.
"""

import re

from pipeline.grader.prose import has_sentence

BOX = "\\boxed"
MAX_RESPONSE = 200_000
MAX_PHRASES, MAX_LINE = 50, 5000  # announced answers to look at, and characters of each
_BOX = re.compile(r"\\{1,2}(?:boxed|fbox)\s*(?=\{)")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\boxed\s+([^\s{}$.,]+)")
_CUT = re.compile(
    r"<\|(?:im_end|im_start|endoftext|eot_id)\|>|<\|end.of.sentence\|>|</s>|\n[ \t]{0,99}"
    r"(?:Problem|Question|Q|User|问题|\[?Note)\s*:\s"
    r"|\[Note:|\bNote: The (?:solution|problem)"
)
_PHRASES = (
    r"final answer(?:\s+is|\s*:)+",
    r"answer(?:\s+is|\s+are|s\s+are|\s*[:：=])+|answer(?=\s*(?:\$|\\\(|\\\[))",
    r"最终答案(?:是|为|[:：])*|答案(?:是|为|[:：])+|答[:：]|结果(?:是|为)",
    r"####",
    r"(?<![A-Za-z])(?:réponse|respuesta|resposta|risposta|antwort|svar|cevap|odpowiedź|antwoord|ответ|відповідь|답|답은|정답|答え|해답|उत्तर|الجواب|الإجابة"
    r"|คำตอบ|jibu|jawaban(?:nya)?|câu trả lời|đáp án|উত্তর|సమాధానం)"
    r"(?:\s+(?:finale?|final|correcta|ist|est|es|é|è|är|este|jest|adalah|là|ni|هي|هو|है|это)|\s*[:：=—]|은|는|は|\s*-\s)*",
)
_PHRASE = re.compile("|".join(f"(?:{phrase})" for phrase in _PHRASES), re.IGNORECASE)
_LAST_NUMBER = re.compile(
    r"-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d{1,3}(?:\\?,\\?!?\s?\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:/\d+)?(?:\s*\\?%)?"
)
_DELIMITER = re.compile(r"\$\$|(?<!\\)\$|\\[()\[\]]")
_CLOSES = {"$$": "$$", "$": "$", "\\(": "\\)", "\\[": "\\]"}
_NAMED_VALUE = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\(\w\))?\s*(?:[<>!]=|=)[^=]*\Z|[^=]*[<>!]=[^=]*\Z")
_JSON_ANSWER = re.compile(r'"(?:final_?)?answer"\s*:\s*(?:"((?:[^"\\]|\\.)*)"|(-?[\d.,/]+%?))', re.IGNORECASE)
PROGRAM_OUTPUT = re.compile(r"```output[ \t]*\n(.*?)\n?```", re.DOTALL)
_BOLD = re.compile(r"\*\*([^*\n]{1,80})\*\*")
_JOINS = re.compile(r"\band\b|\bor\b|[,;]|和|或|与")
_DENIES_NEXT = re.compile(
    r"(?:\b(?:not|never|neither|nor|except|anything but|cannot be)|n't|不是|不为|≠|\\neq?|\\not\s*=)"
    r"(?:\s+(?:be|equal|equals|to|exactly|just|simply))*[\s$:(\\[*]*\Z",
    re.IGNORECASE,
)
_DENIES_LAST = re.compile(
    r"[\s$)\]\\*,]*(?:(?:is|are|was|would be|seems|looks)\s+)?(?:wrong|incorrect|false|impossible"
    r"|(?:not|n't|never)(?!\s+(?:an?|only|just)\b)|错|不对|不是)",
    re.IGNORECASE,
)
_OR = re.compile(r"[\s$)\]\\*,]*(?:or|或|或者)[\s$\\]", re.IGNORECASE)
_TURNS = re.compile(
    r"\b(?:thus|but|so|therefore|hence|then|because|however|which|answer)\b|[.。]\s|所以|因此", re.IGNORECASE
)
_MENTION = re.compile(r"(?<![A-Za-z])\(?([A-F])\)?(?![A-Za-z'])")
_DENIED = re.compile(r"(?:\bnot|n't|不是|不选|\bno es|pas)\s*\(?[A-F]\)?(?![A-Za-z])")
_END = re.compile(r"\.?\s*I hope it is correct|\n|(?<=[^\d\s.])\.\s|[。；]|(?<=\d)\.(?:\s|$)|<\|")


def balanced(text: str, start: int) -> int:
    """Index of the brace that closes the one at `start`, or -1."""
    depth, position = 0, start
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    return -1


def _closing(text: str) -> dict[int, int]:
    """The index of the closing brace for that of every opening one that is closed, in one pass."""
    found, opened = {}, []
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            found[opened.pop()] = match.start()
    return found


def boxes(text: str) -> list[tuple[int, int, str]]:
    """(start, end, content) of every closed, non-empty, outermost box, in order."""
    if BOX not in text and "\\fbox" not in text:
        return []
    found, position, closing = [], 0, _closing(text)
    for match in _BOX.finditer(text):
        end = closing.get(match.end(), -1)
        if end < 0 or match.start() < position:
            continue
        content = text[match.end() + 1 : end].strip()
        if content:
            found.append((match.start(), end + 1, content))
        position = end + 1
    return found


def reward_boxes(response: str) -> list[tuple[str, bool]]:
    """(content, whether the words beside it deny or doubt it) of every box after the thinking, in order."""
    text = _without_thinking(response[-MAX_RESPONSE:])
    if text is None:
        return []
    return [(content, _doubtful(text, start, end)) for start, end, content in boxes(text)] or [
        (match[1], False) for match in list(_BARE_BOX.finditer(text))[-1:]
    ]


def _denied(text: str, start: int, end: int) -> bool:
    """Whether the words next to a box deny it: "is not \\boxed{5}", "\\boxed{5} is wrong"."""
    before, after = text[max(0, start - 40) : start], text[end : end + 60]
    return _DENIES_NEXT.search(before) is not None or _DENIES_LAST.match(after) is not None


def _doubtful(text: str, start: int, end: int) -> bool:
    return _denied(text, start, end) or _OR.match(text, end, end + 60) is not None


def _without_thinking(text: str) -> str | None:
    if "<think>" in text or "</think>" in text:
        if "</think>" not in text or text.rfind("<think>") > text.rfind("</think>"):
            return None
        return text.rpartition("</think>")[2]
    return text


def last_boxes(text: str) -> list[str]:
    """The last box and the boxes joined to it by a few words such as "and": parts of one answer."""
    found = [box for box in boxes(text) if not _denied(text, *box[:2])]
    if not found:
        return [match[1] for match in list(_BARE_BOX.finditer(text))[-1:]]
    group = [found[-1]]
    for box in reversed(found[:-1]):
        between = text[box[1] : group[0][0]]
        if len(between) > 60 or "\n\n" in between or not _JOINS.search(between) or _TURNS.search(between):
            break
        group.insert(0, box)
    return [content for _, _, content in group]


def _unescaped(line: str, closing: str, start: int) -> int:
    """Index of the first `closing` from `start` on that no backslash escapes, or -1."""
    while (end := line.find(closing, start)) > 0 and closing.startswith("$") and line[end - 1] == "\\":
        start = end + 1
    return end


def _unwrapped(line: str) -> str:
    line = line.strip().strip("*").strip()
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if line.startswith(opening) and (end := _unescaped(line, closing, len(opening))) > 0:
            rest = line[end + len(closing) :]
            inner = line[len(opening) : end]
            if not rest.strip(" .,。*)") or not re.match(r"\s*(?:,|and|or|\\cup|\$)", rest):
                unit = re.match(r"\s*(%|percent)", rest)
                return inner + (unit[1] if unit else "")
    return line


def after_phrase(text: str) -> str | None:
    """The text after the last phrase that announces an answer, up to the end of the sentence."""
    for match in reversed(list(_PHRASE.finditer(text))[-MAX_PHRASES:]):
        rest = text[match.end() : match.end() + MAX_LINE].lstrip(" *:：\t\n")
        if rest.startswith("\\["):
            rest = rest.replace("\n", " ")
        if rest.startswith("$$"):
            rest = rest.replace("\n", " ")
        if re.match(r"is\b|are\b", rest):
            rest = rest[3:].lstrip()
        end = _END.search(rest)
        line = _unwrapped(rest[: end.start()] if end and not rest.startswith("\\[") else rest)
        line = line.rstrip(".。*").strip().strip('"').strip()
        if line:
            return line
    return None


def json_answer(text: str) -> str | None:
    """The value of "answer" in a JSON object, if the response holds one."""
    found = list(_JSON_ANSWER.finditer(text)) if '"' in text else []
    if not found:
        return None
    quoted = found[-1][1]
    return (found[-1][2] if quoted is None else re.sub(r"\\(?=[\\\"/])", "", quoted)).strip() or None


def output_fence(text: str) -> str | None:
    """The last line that the last program printed, if the response ends there."""
    found = list(PROGRAM_OUTPUT.finditer(text))
    if not found or text[found[-1].end() :].strip() or not found[-1][1].strip():
        return None
    return found[-1][1].strip().splitlines()[-1].strip()


def formulas(text: str) -> list[tuple[int, int]]:
    """(start, end) of the content of every formula $$...$$, $...$, \\(...\\) or \\[...\\], in one pass."""
    found = []
    start, wanted = 0, None
    marks = list(_DELIMITER.finditer(text))
    last = {mark[0]: mark.start() for mark in marks}
    for mark in marks:
        if wanted is None:
            closing = _CLOSES.get(mark[0])
            if closing and last.get(closing, -1) > mark.start():
                start, wanted = mark.end(), closing
        elif mark[0] == wanted:
            if mark.start() > start:
                found.append((start, mark.start()))
            wanted = None
    return found


def last_formula(text: str) -> str | None:
    """The last formula between dollar signs, \\(...\\) or \\[...\\]."""
    found = formulas(text)
    return text[slice(*found[-1])].strip() if found else None


def last_value(text: str) -> str | None:
    """The last formula or number; of a calculation a + b = c only its result."""
    numbers = list(_LAST_NUMBER.finditer(text))
    found = formulas(text)
    if found and (not numbers or found[-1][1] >= numbers[-1].start()):
        formula = text[slice(*found[-1])].strip()
        if "=" not in formula or not numbers or _NAMED_VALUE.match(formula):
            return formula
    bold = list(_BOLD.finditer(text))
    if bold and numbers and bold[-1].start() <= numbers[-1].start() < bold[-1].end():
        return bold[-1][1].strip()
    return numbers[-1][0] if numbers else None


def chosen_letter(text: str) -> str | None:
    """The chosen letter: the first if the response begins with it, else the last that is not denied."""
    text = _DENIED.sub(" ", text)
    found = list(_MENTION.finditer(text))
    if not found:
        return None
    leads = found[0].start() <= 2 and text[: found[0].start()].strip(" *") == ""
    sure = [
        match for match in found if match[1] != "A" or not re.match(r"\s+[a-z]", text[match.end() :])
    ] or found
    return (found[0] if leads else sure[-1])[1]


def _is_bare(text: str) -> bool:
    """Whether a response consists of its answer alone."""
    one_line = len(text) <= 100 and "\n" not in text and "$" not in text.strip("$ ") and BOX not in text
    form = r"\d|\\[a-z]|[=<>∞π]|\A\(?[A-F]\)?\Z"
    return one_line and re.search(form, text) is not None and not has_sentence(text)


def extract(response: str) -> str | None:
    """The final answer in a response, or None.

    The first rule that applies decides: the last closed box that no words deny, with boxes joined to it
    ("\\boxed{1} and \\boxed{2}"); a JSON field "answer"; the text after the last "the answer is", "答案是",
    "####" or the like; a final program output; the last formula or number.
    """
    text = _without_thinking(response[-MAX_RESPONSE:])
    if text is None:
        return None
    if found := last_boxes(text):
        return ", ".join(found)
    if (cut := _CUT.search(text)) and cut.start() > 0:
        text = text[: cut.start()]
    text = text.strip()
    return (
        json_answer(text)
        or after_phrase(text)
        or output_fence(text)
        or (text if _is_bare(text) else last_value(text))
    )


def reference_answer(reference: str) -> str:
    """The final answer of a reference, which may be a whole solution."""
    if found := last_boxes(reference):
        return ", ".join(found)
    if "\n#### " in reference or (len(reference) > 200 and after_phrase(reference)):
        return after_phrase(reference) or reference
    return reference
