"""The loss and its gradients: attention within documents, chunks of logits, precision."""

import pytest
import torch
import transformers
from tiny_model import save_tiny_model
from torch import nn

from pipeline.training import attention, linear_loss
from pipeline.training.attention import attend, shared_arguments
from pipeline.training.model import IGNORE, TokenLogprobs, load_model

NARROW = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


@pytest.mark.parametrize("family", ["Qwen2Config", "Qwen3Config", "MistralConfig"])
def test_no_attention_across_documents_in_other_families_and_with_grouped_heads(family):
    config = getattr(transformers, family)(**NARROW)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    tokens_BT = torch.randint(0, 100, (2, 30))
    positions_BT = torch.cat([torch.arange(13), torch.arange(17)]).expand(2, -1)
    targets_BT = tokens_BT.roll(-1, 1)
    parts = [model(part, use_cache=False).logits for part in tokens_BT.split([13, 17], 1)]
    expected = torch.cat(parts, 1).log_softmax(-1).gather(-1, targets_BT[..., None]).squeeze(-1)
    torch.testing.assert_close(TokenLogprobs(model)(tokens_BT, positions_BT, targets_BT), expected)
    # The same two documents, but the second one sees the first 10 tokens of the first, and no positions jump.
    seen = [*range(13), *range(10), *range(13, 30), *range(30, 43), *range(30, 40), *range(43, 60)]
    queries_S, keys_S = torch.tensor([13, 17] * 2), torch.tensor([13, 27] * 2)
    shared = shared_arguments(queries_S, keys_S, torch.tensor(seen), 27)
    positions_BT = torch.cat([torch.arange(13), torch.arange(10, 27)]).expand(2, -1)
    whole = torch.cat([tokens_BT[:, :10], tokens_BT[:, 13:]], 1)
    parts = [model(tokens_BT[:, :13], use_cache=False).logits, model(whole, use_cache=False).logits[:, 10:]]
    expected = torch.cat(parts, 1).log_softmax(-1).gather(-1, targets_BT[..., None]).squeeze(-1)
    found = TokenLogprobs(model)(tokens_BT, positions_BT, targets_BT, documents=shared)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("own", [13, 40])
def test_a_sliding_window_is_that_of_transformers_with_and_without_a_shared_beginning(own):
    config = transformers.MistralConfig(**NARROW, sliding_window=16)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    model.apply(lambda module: nn.init.normal_(module.weight, std=0.3) if hasattr(module, "weight") else None)
    tokens_1T = torch.randint(0, 100, (1, 20 + own))
    expected = model(tokens_1T, use_cache=False).logits.log_softmax(-1)
    expected = expected.gather(-1, tokens_1T.roll(-1, 1)[..., None]).squeeze(-1)
    scored, positions_1T = TokenLogprobs(model), torch.arange(20 + own)[None]
    found = scored(tokens_1T, positions_1T, tokens_1T.roll(-1, 1))
    torch.testing.assert_close(found, expected)
    seen = torch.tensor([*range(20), *range(20 + own)])
    shared = shared_arguments(torch.tensor([20, own]), torch.tensor([20, 20 + own]), seen, 20 + own)
    found = scored(tokens_1T, positions_1T, tokens_1T.roll(-1, 1), documents=shared)
    torch.testing.assert_close(found, expected)
    assert scored.verdict["documents"] == "packed"


def bottom_right(query, key, value, query_ends, key_ends, longest_query, longest_key, **options):
    """What torch's variable-length kernel computes, document by document and with an explicit mask."""
    assert options == {"window_size": (-1, 0), "scale": 0.3, "enable_gqa": True}
    lengths = query_ends.diff(), key_ends.diff()
    assert longest_query == longest_key == int(lengths[1].max())
    queries, keys, values = (
        tensor.repeat_interleave(query.shape[1] // tensor.shape[1], 1).split(length.tolist())
        for tensor, length in zip((query, key, value), (lengths[0], lengths[1], lengths[1]), strict=True)
    )
    found = []
    for q, k, v in zip(queries, keys, values, strict=True):
        scores = torch.einsum("qhe,khe->hqk", q, k) * 0.3
        hidden = torch.ones(len(q), len(k)).triu(len(k) - len(q) + 1).bool()
        found.append(torch.einsum("hqk,khe->qhe", scores.masked_fill(hidden, -torch.inf).softmax(-1), v))
    return torch.cat(found)


def test_the_kernel_of_a_gpu_gets_the_documents_that_the_cpu_attends_to(monkeypatch):
    query, key, value = (torch.randn(1, heads, 9, 8, dtype=torch.double) for heads in (4, 2, 2))
    places = torch.tensor([0, 1, 2, 0, 1, 2, 3, 4, 5, 0, 1, 2, 6, 7, 8])
    shared = shared_arguments(torch.tensor([3, 3, 2, 1]), torch.tensor([3, 6, 5, 1]), places, 6)
    shared.pop("attention_mask")
    expected = attend(torch.nn.Module(), query, key, value, None, 0.3, **shared)[0]
    monkeypatch.setattr(attention, "has_flash_kernel", lambda value: True)
    monkeypatch.setattr(attention, "varlen_attn", bottom_right)
    found = attend(torch.nn.Module(), query, key, value, None, 0.3, **shared)[0]
    torch.testing.assert_close(found, expected)


def test_a_model_that_does_not_pass_on_what_outputs_share_is_refused():
    tensors = [torch.randn(1, 2, 9, 8)] * 3
    positions = torch.tensor([[0, 1, 2, 3, 4, 3, 4, 5, 0]])
    with pytest.raises(RuntimeError, match="does not pass on which documents share a beginning"):
        attend(torch.nn.Module(), *tensors, None, position_ids=positions)


def test_gradients_of_a_beginning_that_many_documents_share_are_added_up_exactly():
    count = 300  # bf16 has 8 bits: a sum of ones ends at 256
    beginning = torch.zeros(1, 1, 1, dtype=torch.bfloat16, requires_grad=True)
    attention._Chosen.apply(beginning, torch.zeros(count, dtype=torch.long)).sum().backward()
    assert beginning.grad.item() == 300


@pytest.mark.parametrize("tied", [True, False])
def test_the_fused_loss_is_the_weighted_sum_of_logprobs(tied, tmp_path, monkeypatch):
    tied_model = load_model(save_tiny_model(tmp_path / "model", seed=2, tied=tied, spread=0.1)).double()
    scored, generator = TokenLogprobs(tied_model), torch.Generator().manual_seed(0)
    tokens_BT, targets_BT = torch.randint(4, 90, (2, 2, 33), generator=generator)
    targets_BT[0, 5:9] = IGNORE
    positions_BT, weights_BT = torch.arange(33).expand(2, 33), torch.rand(2, 33, generator=generator)
    monkeypatch.setitem(linear_loss.CHUNK_ELEMENTS, "cpu", 5 * tied_model.config.vocab_size)

    def gradients(loss: torch.Tensor) -> list[torch.Tensor]:
        tied_model.zero_grad()
        loss.backward()
        return [parameter.grad.clone() for parameter in tied_model.parameters()]

    expected_BT = scored(tokens_BT, positions_BT, targets_BT)
    expected = gradients(-3 * (weights_BT * expected_BT).sum())
    loss, logprobs_BT = scored(tokens_BT, positions_BT, targets_BT, weights_BT=weights_BT)
    torch.testing.assert_close(logprobs_BT, expected_BT.detach())
    torch.testing.assert_close(loss, -(weights_BT * expected_BT).sum().detach())
    torch.testing.assert_close(gradients(3 * loss), expected, rtol=0, atol=1e-5)
    with torch.no_grad():
        assert scored(tokens_BT, positions_BT, targets_BT, weights_BT=weights_BT)[0] == loss


def test_bf16_weights_get_the_gradients_of_fp32_ones_but_for_rounding(tmp_path):
    folder = save_tiny_model(tmp_path / "model", seed=2, tied=False, spread=0.1)
    tokens_BT = torch.randint(4, 90, (2, 33), generator=torch.Generator().manual_seed(0))
    positions_BT, weights_BT = torch.arange(33).expand(2, 33), torch.full((2, 33), 1 / 66)
    found = {}
    for precision, mixed in (("fp32", False), ("fp32", True), ("bf16", False)):
        scored = TokenLogprobs(load_model(folder, precision), mixed)
        scored(tokens_BT, positions_BT, tokens_BT.roll(-1, 1), weights_BT=weights_BT)[0].backward()
        found[precision, mixed] = torch.cat([p.grad.flatten().float() for p in scored.parameters()])
    exact = found.pop(("fp32", False))
    for gradient in found.values():
        assert torch.nn.functional.cosine_similarity(gradient, exact, dim=0) > 0.999
        assert abs(gradient.norm() / exact.norm() - 1) < 0.01


def test_logits_of_bf16_weights_are_not_rounded_before_the_softmax() -> None:
    """In bf16 a logit of 8 to 16 is a multiple of 1/16."""
    generator = torch.Generator().manual_seed(0)
    hidden_ND, head_VD = (torch.randn(n, 64, generator=generator).bfloat16() for n in (50, 300))
    targets_N = torch.randint(0, 300, (50,), generator=generator)
    exact_NV = (hidden_ND.double() @ head_VD.double().T).log_softmax(1)
    expected_N = exact_NV.gather(1, targets_N[:, None]).squeeze(1).float()
    found_N = linear_loss.target_logprobs(hidden_ND, head_VD, targets_N)
    _, fused_N = linear_loss.weighted_nll(hidden_ND, head_VD, targets_N, torch.ones(50))
    for logprobs_N in (found_N, fused_N):
        torch.testing.assert_close(logprobs_N, expected_N, rtol=0, atol=1e-4)
