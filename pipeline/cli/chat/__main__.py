"""Talk to a model: `dsm chat --model results/<run>/rl/<name>`, or a hub id.

Questions are put as in the evaluation, each on its own. `--tool` lets the model write programs, which run in
the sandbox. `--page` serves a page on this machine instead of the terminal.
"""

import argparse
import sys

import pipeline.training.environment  # noqa: F401 (before torch and vLLM)
from pipeline.cli.chat.model import Asked, Chat
from pipeline.cli.chat.page import Server
from pipeline.core.errors import InputError

PORT = 8518
HELP = "A question on a line; /tool and /cot change how it is answered, an empty line or Ctrl-D ends."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dsm chat", description=__doc__)
    parser.add_argument("--model", required=True, help="a model of a run, a folder or a hub id")
    parser.add_argument("--tool", action="store_true", help="answer with programs, run in the sandbox")
    parser.add_argument(
        "--temperature", type=float, default=0.0, help="0: greedy, as the benchmarks' first score"
    )
    parser.add_argument("--page", action="store_true", help="a page on this machine instead of the terminal")
    parser.add_argument("--port", type=int, default=PORT, help="of the page; 0: any free one")
    parser.add_argument(
        "--weak-sandbox", action="store_true", help="run programs even where the system refuses namespaces"
    )
    return parser


def talk(chat: Chat, mode: str, temperature: float) -> None:
    """Answer the lines of standard input until it ends."""
    shown = sys.stdin.isatty()
    if shown:
        print(HELP)
    number = 0
    while line := _line(f"{mode}> " if shown else ""):
        if line in ("/tool", "/cot"):
            mode = line[1:]
            continue
        answer = chat.answer(line, Asked(mode, temperature, number))
        number += 1
        ended = "" if answer.finish_reason == "stop" else f" ({answer.finish_reason.replace('_', ' ')})"
        print(f"{answer.text.strip()}\n[{answer.tokens} tokens{ended}]\n", flush=True)


def _line(prompt: str) -> str:
    try:
        return input(prompt).strip()
    except EOFError:
        return ""


def main(argv: list[str] | None = None) -> None:
    given = _parser().parse_args(argv)
    try:
        chat, mode = Chat(given.model, given.weak_sandbox), "tool" if given.tool else "cot"
        try:
            if given.page:
                server = Server(chat, given.port, Asked(mode, given.temperature))
                print(server.address, flush=True)
                server.serve_forever()
            talk(chat, mode, given.temperature)
        finally:
            chat.close()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
