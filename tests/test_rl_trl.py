"""Loss and gradients against TRL 1.16 on the same tensors, for the options that both have."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.rl.objectives import (
    dpo_loss,
    grpo_loss,
    importance_weights,
    sequence_logprobs,
    token_weights,
)

LENGTHS = torch.tensor([7, 3, 5, 1])
LONGEST = 9  # of any output, for the constant normalisation
MASK = torch.arange(7)[None, :] < LENGTHS[:, None]


class Alone:
    """The accelerator of a process alone."""

    device, num_processes, sync_gradients = torch.device("cpu"), 1, True

    def gather(self, value: torch.Tensor) -> torch.Tensor:
        return value

    gather_for_metrics = gather

    def reduce(self, value: torch.Tensor, reduction: str) -> torch.Tensor:
        return value


def trl_grpo(values: dict[str, torch.Tensor], **settings: Any) -> torch.Tensor:
    """TRL's loss of padded (B, T) tensors; its model is replaced by the log-probabilities themselves."""
    trl = pytest.importorskip("trl")
    trainer = object.__new__(trl.GRPOTrainer)
    ids = torch.zeros_like(MASK, dtype=torch.long)
    own = {
        "_get_per_token_logps_and_entropies": lambda *_, **__: (
            values["logprobs"],
            torch.zeros_like(values["logprobs"]),
            None,
        ),
        "aux_loss_enabled": False,
        "top_entropy_quantile": 1.0,
        "off_policy_mask_threshold": None,
        "importance_sampling_level": "token",
        "beta": 0.0,
        "loss_type": "grpo",
        "epsilon_low": 0.2,
        "epsilon_high": 0.2,
        "use_vllm": "importance" in values,
        "vllm_importance_sampling_correction": "importance" in values,
        "max_completion_length": LONGEST,
        "current_gradient_accumulation_steps": 1,
        "accelerator": Alone(),
        "args": SimpleNamespace(use_bias_correction_kl=False, delta=None, steps_per_generation=1),
        "model": SimpleNamespace(training=True),
        "_entropy_bonus_enabled": False,
        "_metrics": {"train": defaultdict(list)},
    }
    vars(trainer).update(own | settings)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1],
        "completion_ids": ids,
        "completion_mask": MASK.long(),
        "advantages": values["advantages"],
        "old_per_token_logps": values["old"],
        "ref_per_token_logps": values["reference"],
        "num_items_in_batch": MASK.sum(),
        "importance_sampling_ratio": values.get("importance"),
    }
    return trainer._compute_loss(trainer.model, inputs)


def tensors(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    draw = lambda: torch.randn(4, 7, dtype=torch.float64, generator=generator)  # noqa: E731
    logprobs = -draw().abs()
    return {
        "logprobs": logprobs.requires_grad_(),
        "old": logprobs.detach() + 0.3 * draw(),
        "reference": logprobs.detach() + 0.3 * draw(),
        "advantages": draw()[:, 0],
    }


CASES = {
    "paper": ({"loss_type": "grpo", "beta": 0.04}, {"kl_coefficient": 0.04}, "output"),
    "no KL": ({"loss_type": "grpo"}, {}, "output"),
    "clip-higher": ({"loss_type": "grpo", "epsilon_high": 0.28}, {"clip_high": 0.28}, "output"),
    "token mean": ({"loss_type": "dapo", "beta": 0.04}, {"kl_coefficient": 0.04}, "token"),
    "token mean of the batch": ({"loss_type": "bnpo"}, {}, "token"),
    "constant": ({"loss_type": "dr_grpo", "beta": 0.1}, {"kl_coefficient": 0.1}, "constant"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("corrected", [False, True])
def test_grpo_loss_and_gradients_equal_trl(name: str, corrected: bool) -> None:
    theirs, ours, mean = CASES[name]
    values = tensors(len(name))
    importance_N = None
    if corrected:
        noise = torch.randn(4, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
        sampler = values["old"] + 0.4 * noise
        values["importance"] = importance_weights(values["old"], sampler, cap=1.3)
        importance_N = values["importance"][MASK]
    expected = trl_grpo(values, **theirs)
    (gradient,) = torch.autograd.grad(expected, values["logprobs"])
    reference_N = values["reference"][MASK] if "kl_coefficient" in ours else None
    found = grpo_loss(
        values["logprobs"][MASK],
        values["old"][MASK],
        reference_N,
        values["advantages"].repeat_interleave(LENGTHS),
        token_weights(LENGTHS, 4, mean, tokens=int(MASK.sum()), longest=LONGEST).double(),
        **({"kl_coefficient": 0.0} | ours),
        importance_N=importance_N,
    ).loss
    (own,) = torch.autograd.grad(found, values["logprobs"])
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)
    assert torch.allclose(own, gradient, rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", ["sigmoid", "sigmoid_norm"])
def test_dpo_loss_and_gradients_equal_trl(form: str) -> None:
    """Outputs 0 and 1 are preferred to 2 and 3. TRL's tensors begin with a token of the prompt."""
    trl = pytest.importorskip("trl")
    values = tensors(3)
    trainer = object.__new__(trl.DPOTrainer)
    own = {
        "accelerator": Alone(),
        "model": SimpleNamespace(training=True),
        "aux_loss_enabled": False,
        "ld_alpha": None,
        "precompute_ref_logps": True,
        "f_divergence_type": "reverse_kl",
        "loss_types": [form],
        "loss_weights": [1.0],
        "beta": 0.3,
        "use_weighting": False,
        "label_smoothing": 0.0,
        "_total_train_tokens": 0,
        "_tp_size": 1,
        "_metrics": {"train": defaultdict(list)},
    }
    vars(trainer).update(own)
    sums = (values["reference"] * MASK).sum(1)
    shifted = torch.cat([torch.zeros(4, 1, dtype=torch.bool), MASK], 1)
    inputs = {
        "input_ids": torch.zeros(4, 8, dtype=torch.long),
        "attention_mask": shifted.long(),
        "completion_mask": shifted.long(),
        "ref_chosen_logps": sums[:2],
        "ref_rejected_logps": sums[2:],
    }
    watched: dict[str, Any] = {name: torch.zeros(4, 7) for name in ("entropy", "mean_logits")}
    watched["is_top1"] = torch.zeros(4, 7, dtype=torch.bool)
    outputs = SimpleNamespace(log_probs=values["logprobs"] * MASK, **watched)
    expected = trainer._compute_loss(lambda **_: outputs, inputs, return_outputs=False)
    (gradient,) = torch.autograd.grad(expected, values["logprobs"])
    mean = form == "sigmoid_norm"
    scores = sequence_logprobs(values["logprobs"][MASK], LENGTHS, mean)
    base = sequence_logprobs(values["reference"][MASK], LENGTHS, mean)
    found = dpo_loss(scores[:2], scores[2:], base[:2], base[2:], 0.3).mean()
    (ours,) = torch.autograd.grad(found, values["logprobs"])
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)
    assert torch.allclose(ours, gradient, rtol=0, atol=1e-6)
