r"""Find the final answer in a response: a box, an announcing phrase in many languages, or the last value.

Text inside an unclosed <think> is ignored. `extract` lists the rules in order.
"""

import re

from .boxes import BOX, boxes, formulas, read_boxes, without_thinking
from .prose import has_sentence

MAX_PHRASES, MAX_LINE = 50, 5000  # announced answers to look at, and characters of each
_RUN_ON = re.compile(  # the model goes on with another problem
    r"<\|(?:im_end|im_start|endoftext|eot_id)\|>|<\|end.of.sentence\|>|</s>|\n[ \t]{0,99}"
    r"(?:Problem|Question|Q|User|问题)\s*:\s"
)
_BOXED = re.compile(r"\\(?:boxed|fbox)")
_FINAL = re.compile(r"final answer(?:\s+is|\s*:)|最终答案(?:是|为|[:：])", re.IGNORECASE)
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
_NAMED_VALUE = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\(\w\))?\s*(?:[<>!]=|=)[^=]*\Z|[^=]*[<>!]=[^=]*\Z")
_JSON_ANSWER = re.compile(r'"(?:final_?)?answer"\s*:\s*(?:"((?:[^"\\]|\\.)*)"|(-?[\d.,/]+%?))', re.IGNORECASE)
PROGRAM_OUTPUT = re.compile(r"```output[ \t]*\n(.*?)\n?```", re.DOTALL)
_PAIRED = re.compile(r"(?<![\w*\\])(\*{1,2}|_{1,2}|`)(?=\S)([^*_`]+)(?<=\S)\1(?![\w*])")  # **4**, `4`
_JOINS = re.compile(r"\band\b|\bor\b|[,;]|和|或|与")
_TURNS = re.compile(
    r"\b(?:thus|but|so|therefore|hence|then|because|however|which|answer)\b|[.。]\s|所以|因此", re.IGNORECASE
)
_MENTION = re.compile(r"(?<![A-Za-z])\(?([A-F])\)?(?![A-Za-z'])")
_DENIED = re.compile(r"(?:\bnot|n't|不是|不选|\bno es|pas)\s*\(?[A-F]\)?(?![A-Za-z])")
_END = re.compile(r"\.?\s*I hope it is correct|\n|(?<=[^\d\s.])\.\s|[。；]|(?<=\d)\.(?:\s|$)|<\|")


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
    """Return the text after the last phrase that announces an answer, up to the end of the sentence."""
    for match in reversed(list(_PHRASE.finditer(text))[-MAX_PHRASES:]):
        rest = _PAIRED.sub(r"\2", text[match.end() : match.end() + MAX_LINE]).lstrip(" *:：\t\n")
        if rest.startswith(("\\[", "$$")):
            rest = rest.replace("\n", " ")
        end = _END.search(rest)
        line = _unwrapped(rest[: end.start()] if end and not rest.startswith("\\[") else rest)
        line = line.rstrip(".。*").strip()
        line = re.sub(r'^\\?"|\\?"$', "", line).strip()
        if line:
            return line
    return None


def json_answer(text: str) -> str | None:
    """Return the value of "answer" in a JSON object, if the response holds one."""
    found = list(_JSON_ANSWER.finditer(text)) if '"' in text else []
    if not found:
        return None
    quoted = found[-1][1]
    return (found[-1][2] if quoted is None else re.sub(r"\\(?=[\\\"/])", "", quoted)).strip() or None


def output_fence(text: str) -> str | None:
    """Return the last line that the last program printed, if the response ends there."""
    found = list(PROGRAM_OUTPUT.finditer(text))
    if not found or text[found[-1].end() :].strip() or not found[-1][1].strip():
        return None
    return found[-1][1].strip().splitlines()[-1].strip()


def last_value(text: str) -> str | None:
    """Return the last formula or number; of a calculation a + b = c only its result."""
    numbers = list(_LAST_NUMBER.finditer(text))
    found = formulas(text)
    if found and (not numbers or found[-1][1] >= numbers[-1].start()):
        formula = text[slice(*found[-1])].strip()
        if "=" not in formula or not numbers or _NAMED_VALUE.match(formula):
            return formula
    return numbers[-1][0] if numbers else None


def chosen_letter(text: str) -> str | None:
    """Get the chosen letter: the first if the response begins with it, else the last that is not denied."""
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


def _last_boxes(text: str) -> tuple[list[str], int]:
    """Return the last box that nothing denies, with those joined to it by a few words such as "and", and its
    end.
    """
    found = [box for box in read_boxes(text) if box.remark != "denied"]
    if not found:
        return [], 0
    group = [found[-1]]
    for box in reversed(found[:-1]):
        between = text[box.end : group[0].start]
        if len(between) > 60 or "\n\n" in between or not _JOINS.search(between) or _TURNS.search(between):
            break
        group.insert(0, box)
    answers = [box.answer for box in group]
    if found[-1].remark == "alternative":  # \\boxed{4} or 5
        answers[-1] += " or " + text[found[-1].end : found[-1].end + 40].strip(" $\n")
    return answers, found[-1].end


def _up_to_run_on(text: str) -> str:
    """Return the text before the first sign of another problem that comes after an answer."""
    answered = [match.start() for match in (_BOXED.search(text), _PHRASE.search(text)) if match]
    cut = _RUN_ON.search(text, min(answered, default=1))
    return text[: cut.start()] if cut else text


def _announced_last(text: str) -> str | None:
    """Return the value announced as the final answer: 5 of "The final answer is 5. I hope it is correct."."""
    found = list(_FINAL.finditer(text))
    line = after_phrase(text[found[-1].start() :]) if found else None
    return line if line and (re.search(r"\d|\\[a-z]", line) or "I hope" in text) else None


def extract(response: str) -> str | None:
    """Return the final answer in a response, or None.

    The first rule that applies decides: a value announced as the final answer after the last box; the last
    closed box that no words deny, with boxes joined to it ("\\boxed{1} and \\boxed{2}"); a JSON field
    "answer"; the text after the last "the answer is", "答案是", "####" or the like; a final program output;
    the last formula or number.
    """
    text = without_thinking(response)
    if text is None:
        return None
    text = _up_to_run_on(text)
    found, end = _last_boxes(text)
    if found:
        return _announced_last(text[end:]) or ", ".join(found)
    for start, stop, _ in reversed(boxes(text)):  # all denied
        text = text[:start] + text[stop:]
    text = text.strip()
    return (
        json_answer(text)
        or after_phrase(text)
        or output_fence(text)
        or (text if _is_bare(text) else last_value(text))
    )


def reference_answer(reference: str) -> str:
    """Return the final answer of a reference, which may be a whole solution."""
    if len(reference) < 20 and "\\" not in reference:
        return reference
    if found := _last_boxes(reference)[0]:
        return ", ".join(found)
    if "\n#### " in reference or (len(reference) > 200 and after_phrase(reference)):
        return after_phrase(reference) or reference
    return reference
