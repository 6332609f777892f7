"""A model behind OpenAI's interface: vLLM's server, asked by the client that others use."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from conftest import ROOT
from openai import OpenAI
from tiny_model import save_tiny_model

from pipeline.evaluate.benchmarks import Item
from pipeline.evaluate.prompts import chat_prompt
from pipeline.training.chat import CHAT_TEMPLATE
from pipeline.training.generation import Generator
from pipeline.training.tokenizer import load_tokenizer

QUESTION = "What is 3 + 4?"


def test_the_server_answers_as_the_project_samples(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "tiny", seed=1, spread=0.05)
    tokenizer = load_tokenizer(folder)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    prompts = [chat_prompt(tokenizer, Item("q", QUESTION, ""), "", str(folder))]
    generator = Generator(folder, dtype="float32", max_model_len=512)
    ((ours,),) = generator.generate(prompts, temperature=0, max_tokens=8)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "pipeline",
        "serve",
        str(folder),
        "--port",
        str(port),
        "--dtype",
        "float32",
    ]
    server = subprocess.Popen(
        command, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said = []
        for line in server.stdout:
            said.append(line)
            if "Application startup complete" in line:
                break
        assert server.poll() is None, "".join(said[-20:])
        client = OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
        assert [model.id for model in client.models.list()] == ["tiny"]
        asked = [{"role": "user", "content": QUESTION}]
        found = client.chat.completions.create(model="tiny", messages=asked, temperature=0, max_tokens=8)
        text = tokenizer.decode(ours.token_ids, skip_special_tokens=True)
        assert found.choices[0].message.content.strip() == text.strip()
        assert found.usage.prompt_tokens == len(prompts[0])
    finally:
        server.terminate()
        server.wait()
