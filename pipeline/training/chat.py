r"""The paper's chat format (section 8.2 of its evaluation code) as text, template and token ids.

`User: {question}\n\nAssistant: {answer}` with BOS in front and EOS after each answer; no system prompt. A
prompt ends in `Assistant:`, so an answer starts with a space. Prompt and answers are tokenised separately, as
when a model continues a prompt. A special token's name inside a text is ordinary text.
"""

import re
from collections.abc import Sequence
from typing import Any

from pipeline.core.stage import InputError

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}User: {{ message['content'] }}\n\n"
    "{% elif message['role'] == 'assistant' %}Assistant: {{ message['content'] }}{{ eos_token }}"
    "{% else %}{{ raise_exception('roles are user and assistant') }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
# Marks of turns in other projects' data: 0 or false says that the turn is context and not learnt.
LEARNT = ("weight", "train", "training", "loss", "loss_mask")
KNOWN = {"role", "content", *LEARNT}
# Keys of a turn that may stand unread.
NOTES = {"id", "name", "index", "timestamp", "date", "model", "source", "lang", "language", "tokens"}
TOOL_OUTPUT = re.compile(r"((?<=```output)\n(?:.*?\n)?```)", re.DOTALL)  # the assistant opens the fence
CHINESE = re.compile(r"[\u4e00-\u9fff]")


def encode(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Return token ids of each text, no special tokens added or recognised."""
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = True
    return [encoding.ids for encoding in backend.encode_batch_fast(list(texts), add_special_tokens=False)]


def encode_documents(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Return token ids of BOS (where the tokenizer has one), each text, EOS."""
    start = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    return [[*start, *ids, tokenizer.eos_token_id] for ids in encode(tokenizer, texts)]


def language_of(text: str) -> str:
    """`zh` for a text with Chinese characters, else `en`."""
    return "zh" if CHINESE.search(text) else "en"


def chat_parts(messages: Sequence[dict[str, str]]) -> tuple[list[str], list[bool]]:
    """Return the parts of a conversation that are tokenised apart, and whether the assistant writes each; ""
    stands for EOS.

    A tool's answer, which is the inside and the end of an `output` fence in an assistant's message, is
    context; the assistant opens the fence itself to ask for it. So is an answer marked as not learnt. Raises
    InputError for an unknown role, turns that do not alternate, starting with the user, a turn without text,
    or a key that is not read.
    """
    texts: list[str] = []
    own: list[bool] = []
    for index, message in enumerate(messages):
        role, expected = message.get("role"), ("user", "assistant")[index % 2]
        if role not in ("user", "assistant"):
            raise InputError(f"unknown role {role!r} in message {index + 1}; roles are user and assistant")
        if role != expected:
            raise InputError(f"message {index + 1} is the {role}'s; turns alternate, the user's first")
        if not isinstance(message["content"], str):
            raise InputError(f"message {index + 1}: its `content` is no text")
        learnt = _is_learnt(message, f"message {index + 1}")
        if role == "user":
            texts.append(f"User: {message['content']}\n\nAssistant:")
            own.append(False)
            continue
        for number, part in enumerate(TOOL_OUTPUT.split(f" {message['content']}")):
            if part:
                texts.append(part)
                own.append(learnt and number % 2 == 0)  # odd parts are tool outputs
        texts.append("")
        own.append(learnt)
    return texts, own


def _is_learnt(message: dict[str, Any], place: str) -> bool:
    """Read the marks of a turn. Raises InputError for a key that changes the meaning of a turn otherwise."""
    for key, value in message.items():
        if key in LEARNT and value not in (None, 0, 1):
            raise InputError(f"{place}: `{key}` is {value!r}; 0 or 1 can be obeyed")
        if key not in KNOWN | NOTES and value not in (None, "", [], {}):
            raise InputError(f"{place}: fine-tuning does not read `{key}`; remove the key or the row")
    return all(message.get(key) in (None, 1) for key in LEARNT)


def encode_chat(tokenizer: Any, messages: Sequence[dict[str, str]]) -> tuple[list[int], list[bool]]:
    """Return token ids of a conversation, and for each whether the assistant writes it (its words and EOS).

    Raises InputError as `chat_parts` does.
    """
    texts, own = chat_parts(messages)
    ids = [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]
    mask = [False] * len(ids)
    for text, piece, is_own in zip(texts, encode(tokenizer, texts), own, strict=True):
        piece = piece if text else [tokenizer.eos_token_id]
        ids += piece
        mask += [is_own] * len(piece)
    return ids, mask
