"""On a GPU, torch's variable-length kernel and compiled layers agree with attention document by document."""

import pytest
import torch
from tiny_model import save_tiny_model

from pipeline.rl.packed_outputs import Output, output_logprobs, pack, split_into_rows
from pipeline.training.engine import prepare
from pipeline.training.linear_loss import weighted_nll
from pipeline.training.model import TokenLogprobs, load_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")]


def packed(device: str) -> list[torch.Tensor]:
    """Tokens, positions and targets of two rows of documents of 40, 5, 1 and 50 tokens."""
    tokens_BT = torch.randint(4, 90, (2, 96), generator=torch.Generator().manual_seed(0))
    positions_BT = torch.cat([torch.arange(length) for length in (40, 5, 1, 50)]).expand(2, -1)
    return [tensor.to(device) for tensor in (tokens_BT, positions_BT, tokens_BT.roll(-1, 1))]


@pytest.mark.parametrize(("precision", "mixed"), [("bf16", False), ("fp32", True)])
@pytest.mark.parametrize("compiled", [False, True])
def test_packed_documents_give_the_same_on_a_gpu_as_on_the_cpu(tmp_path, precision, mixed, compiled):
    folder = save_tiny_model(tmp_path / "model", seed=2, tied=False, spread=0.1)
    exact, model = load_model(folder), load_model(folder, precision).cuda()
    prepare(model, {"compile": compiled})
    gradients, logprobs = [], []
    for scored, device in ((TokenLogprobs(exact), "cpu"), (TokenLogprobs(model, mixed), "cuda")):
        weights_BT = torch.full((2, 96), 1 / 192, device=device)
        loss, logprobs_BT = scored(*packed(device), weights_BT=weights_BT)
        loss.backward()
        logprobs.append(logprobs_BT.cpu())
        gradients.append(torch.cat([p.grad.flatten().float().cpu() for p in scored.parameters()]))
    assert (logprobs[0] - logprobs[1]).abs().max() < 0.1  # rounding to bf16; a leak shows as more than 1
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.999


def test_outputs_that_share_a_prompt_give_the_same_on_a_gpu_as_on_the_cpu(tmp_path):
    folder = save_tiny_model(tmp_path / "model", seed=2, tied=False, spread=0.1)
    draw = torch.Generator().manual_seed(0)
    prompt = torch.randint(4, 90, (30,), generator=draw).tolist()
    drawn = [torch.randint(4, 90, (length,), generator=draw).tolist() for length in (40, 5, 1, 50, 17, 33)]
    rows = split_into_rows([Output(0, prompt, tokens, [0.0] * len(tokens), []) for tokens in drawn], 128)
    packed, gradients, logprobs = pack(rows, lambda lengths_O: torch.ones(int(lengths_O.sum())), 160), [], []
    for precision, device in (("fp32", "cpu"), ("bf16", "cuda")):
        scored = TokenLogprobs(load_model(folder, precision).to(device))
        found_N = output_logprobs(scored, packed.to(device))
        found_N.mean().backward()
        logprobs.append(found_N.detach().cpu())
        gradients.append(torch.cat([p.grad.flatten().float().cpu() for p in scored.parameters()]))
    assert (logprobs[0] - logprobs[1]).abs().max() < 0.1  # rounding to bf16
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.999


def test_the_loss_never_holds_all_logits():
    positions, vocabulary, hidden = 16_384, 102_400, 256
    states = torch.randn(positions, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    head = torch.randn(vocabulary, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(vocabulary, (positions,), device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    weighted_nll(states, head, targets, torch.ones(positions, device="cuda"))[0].backward()
    assert torch.cuda.max_memory_allocated() - before < positions * vocabulary * 4 / 2
