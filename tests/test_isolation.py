"""Packed documents and the sampler against transformers, in small random models of many families."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from given.families import FAMILIES, small_model
from programs import ENVIRONMENT, ROOT
from torch.nn import functional

from pipeline.core.errors import InputError
from pipeline.training.attention import DOCUMENTS, shared_arguments
from pipeline.training.model import TokenLogprobs
from pipeline.training.packing import IGNORE

APART = ("qwen3_5_text", "qwen3_next", "lfm2", "granitemoehybrid", "nemotron_h", "mamba", "falcon", "bloom")
PACKED = ("llama", "qwen3", "gemma3_text", "mistral", "mixtral", "deepseek_v3", "starcoder2")
REFUSED = {"granite": "other numbers", "gemma2": "other numbers", "phi": "with a bias", "bert": "with a bias"}


def document(start: int, length: int) -> torch.Tensor:
    return (7919 * torch.arange(start, start + length) + start) % 90 + 4


def alone(model: torch.nn.Module, tokens_T: torch.Tensor) -> torch.Tensor:
    logits_TV = model(input_ids=tokens_T[None], use_cache=False).logits[0]
    return logits_TV.log_softmax(-1).gather(1, tokens_T.roll(-1)[:, None]).squeeze(1)


@pytest.mark.parametrize("family", [*APART, *PACKED])
def test_documents_of_a_row_get_what_each_gets_alone(family: str, capfd: pytest.CaptureFixture) -> None:
    model = small_model(family).eval()
    parts = [document(0, 31), document(50, 40), document(100, 9), document(200, 31)]
    expected = torch.cat([alone(model, part) for part in parts])
    tokens, targets = torch.cat(parts)[None], torch.cat([part.roll(-1) for part in parts])[None]
    positions = torch.cat([torch.arange(len(part)) for part in parts])[None]
    scored = TokenLogprobs(model)
    found = scored(tokens, positions, targets)[0]
    assert (found - expected).abs().max() < 1e-4
    is_apart = scored.verdict["documents"] == "one at a time"
    assert is_apart == (family in APART) == ("one at a time, which is slower" in capfd.readouterr().err)
    # A last document that begins as the second one does, whose tokens stand in the row once.
    tail = document(300, 12)
    scored.set_attention(scored.usual_attention)
    expected = alone(model, torch.cat([parts[1], tail]))[-12:-1]
    scored.set_attention(scored.usual_attention if is_apart else DOCUMENTS)
    tokens = torch.cat([parts[0], parts[1], tail])[None]
    keys = torch.cat([torch.arange(71), torch.arange(31, 71), torch.arange(71, 83)])
    lengths = torch.tensor([31, 40, 12]), torch.tensor([31, 40, 52])
    positions = torch.cat([torch.arange(31), torch.arange(40), torch.arange(40, 52)])[None]
    targets = torch.full((1, 83), IGNORE)
    targets[0, 71:82] = tail[1:]
    found = scored(tokens, positions, targets, documents=shared_arguments(*lengths, keys, 52))[0, 71:82]
    assert (found - expected).abs().max() < 1e-4


@pytest.mark.parametrize("family", REFUSED)
def test_a_model_whose_logits_are_not_a_linear_layers_is_refused_by_its_type(family: str) -> None:
    with pytest.raises(InputError, match=f"^{family}: .*{REFUSED[family]}"):
        TokenLogprobs(small_model(family))(*torch.zeros(3, 1, 4, dtype=torch.long))


def test_gradients_of_documents_one_at_a_time_are_those_of_each_alone() -> None:
    model = small_model("qwen3_next")
    parts = [document(0, 20), document(50, 33), document(90, 20)]
    for part in parts[:2]:
        (-alone(model, part)[:-1].sum()).backward()
    grads = {name: weight.grad for name, weight in model.named_parameters()}
    expected = {name: grad.clone() for name, grad in grads.items() if grad is not None}
    model.zero_grad()
    targets = [functional.pad(part[1:], (0, 1), value=IGNORE) for part in parts[:2]]
    targets = torch.cat([*targets, torch.full((20,), IGNORE)])[None]
    positions = torch.cat([torch.arange(len(part)) for part in parts])[None]
    scored = TokenLogprobs(model)
    scored(torch.cat(parts)[None], positions, targets, weights_BT=torch.ones_like(targets))[0].backward()
    for name, weight in model.named_parameters():
        if name in expected:
            torch.testing.assert_close(weight.grad, expected[name], rtol=1e-3, atol=1e-4)
    idle = scored(torch.cat(parts)[None], positions, torch.full_like(targets, IGNORE), weights_BT=targets)[0]
    idle.backward()  # a rank without rows still takes part


LARGE = ("gemma4_assistant", "musicgen_melody", "zamba")  # no common keys make these small


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name in FAMILIES[::5] if name not in LARGE])
def test_a_family_is_right_or_refused_in_one_line(family: str) -> None:
    """`python bench/families.py` walks over all of them."""
    model = small_model(family)
    assert model is not None
    tokens = document(0, 24)[None]
    try:
        logprobs = TokenLogprobs(model)(tokens, torch.arange(24)[None], tokens)
    except InputError as error:
        assert len(str(error).splitlines()) == 1 and str(error).startswith(model.config.model_type)
    else:
        assert logprobs.isfinite().all()


def test_faults_of_a_sync_are_told_by_the_log_probabilities(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tests/sampler_faults.py", str(tmp_path)],
        env=ENVIRONMENT | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    verdicts = json.loads(done.stdout.splitlines()[-1])
    assert verdicts.pop("none")["gap"] < 1e-4
    for told in verdicts.values():
        assert told.startswith("olmoe: after the first sync sampler and policy differ by")
