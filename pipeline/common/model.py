"""Models and tokenizers as Hugging Face folders, and the one module that training stages run.

`TokenLogprobs` wraps a causal language model so that its forward pass returns the log-probability of each
given target and never holds the logits of more than a chunk of positions. Shape suffixes: B sequences,
T positions, N = B*T positions in one row, D hidden size, V vocabulary.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, LlamaConfig

from pipeline.common.packing import IGNORE
from pipeline.common.stage import InputError

CHUNK_ELEMENTS = 2**25  # logits held at once: 128 MiB in fp32
DTYPES = {"fp32": torch.float32, "mixed": torch.float32, "bf16": torch.bfloat16}


class TokenLogprobs(nn.Module):
    """log pi(target | tokens so far) for packed sequences, without a full logits tensor.

    `model` is any causal language model of transformers. Documents that share a row are told apart by
    `positions_BT`, which start again from 0 at each: no token attends to another document. That holds only
    because no attention mask and no cache are passed (transformers would attend across without a word).
    With `mixed` matrix products run in bf16 on fp32 weights.
    """

    def __init__(self, model: nn.Module, mixed: bool = False) -> None:
        super().__init__()
        self.model, self.mixed = model, mixed

    def forward(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor,
        targets_BT: Tensor,
        temperature: float = 1.0,
        with_entropy: bool = False,
        mask_BTT: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """fp32 log-probabilities (B, T) of `targets_BT`; 0 where the target is `IGNORE`.

        `mask_BTT` (true: query position T1 may attend to T2) replaces what positions say of who sees whom.
        With `with_entropy` also the entropy (B, T) in nats of each predicted distribution, without gradient.
        """
        with torch.autocast(tokens_BT.device.type, torch.bfloat16, enabled=self.mixed):
            return self._forward(tokens_BT, positions_BT, targets_BT, temperature, with_entropy, mask_BTT)

    def _forward(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor,
        targets_BT: Tensor,
        temperature: float,
        with_entropy: bool,
        mask_BTT: Tensor | None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        hidden_BTD = self.model.base_model(
            input_ids=tokens_BT,
            position_ids=positions_BT,
            attention_mask=None if mask_BTT is None else mask_BTT[:, None],
            use_cache=False,
        ).last_hidden_state
        hidden_ND, targets_N = hidden_BTD.flatten(0, 1), targets_BT.flatten()
        wanted = (targets_N != IGNORE).nonzero().squeeze(1)
        head = self.model.get_output_embeddings()
        logprobs, entropies = _chunked(head, hidden_ND[wanted], targets_N[wanted], temperature, with_entropy)
        logprobs_BT = torch.zeros_like(targets_N, dtype=torch.float32).index_copy(0, wanted, logprobs)
        if not with_entropy:
            return logprobs_BT.view_as(targets_BT)
        entropy_BT = torch.zeros_like(targets_N, dtype=torch.float32).index_copy(0, wanted, entropies)
        return logprobs_BT.view_as(targets_BT), entropy_BT.view_as(targets_BT)


def _chunk(
    head: nn.Module, hidden: Tensor, targets: Tensor, temperature: float, with_entropy: bool
) -> tuple[Tensor, Tensor]:
    logits = head(hidden).float()
    if temperature != 1.0:
        logits = logits / temperature
    logprobs = -F.cross_entropy(logits, targets, reduction="none")
    with torch.no_grad():
        entropy = torch.distributions.Categorical(logits=logits).entropy() if with_entropy else logprobs
    return logprobs, entropy.detach()


def _chunked(
    head: nn.Module, hidden: Tensor, targets: Tensor, temperature: float, with_entropy: bool
) -> tuple[Tensor, Tensor]:
    """`_chunk` over at most `CHUNK_ELEMENTS` logits at a time; the backward pass makes each chunk's again."""
    vocabulary = head.out_features if isinstance(head, nn.Linear) else head.weight.shape[0]
    rows = max(1, CHUNK_ELEMENTS // vocabulary)
    if len(targets) <= rows:
        return _chunk(head, hidden, targets, temperature, with_entropy)
    parts = [
        checkpoint(_chunk, head, h, t, temperature, with_entropy, use_reentrant=False)
        for h, t in zip(hidden.split(rows), targets.split(rows), strict=True)
    ]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def load_tokenizer(source: str | Path) -> Any:
    """The fast tokenizer of a model folder or hub id; it must have an EOS token."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(source))
    except (OSError, ValueError) as error:
        raise InputError(f"{source}: no usable tokenizer: {str(error).splitlines()[0]}") from error
    if tokenizer.eos_token_id is None:
        raise InputError(f"{source}: the tokenizer has no EOS token; training needs one to end documents")
    return tokenizer


def load_model(source: str | Path, precision: str = "fp32") -> nn.Module:
    """The causal language model of a folder or hub id, with weights in `precision`."""
    try:
        return AutoModelForCausalLM.from_pretrained(
            str(source), dtype=DTYPES[precision], attn_implementation="sdpa"
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{source}: no usable model: {str(error).splitlines()[0]}") from error


def new_model(
    architecture: dict[str, Any], tokenizer: Any, context: int, precision: str, seed: int
) -> nn.Module:
    """A randomly initialised Llama; `architecture` holds keys of `LlamaConfig`."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=context,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **architecture,
    )
    return AutoModelForCausalLM.from_config(config, dtype=DTYPES[precision], attn_implementation="sdpa")


def context_length(source: str | Path) -> int:
    """The longest sequence that the model at `source` was made for; tokens."""
    return int(AutoConfig.from_pretrained(str(source)).max_position_embeddings)


def causal_model(engine: Any) -> nn.Module:
    """The transformers model inside a DeepSpeed engine."""
    return engine.module.model


def named_weights(engine: Any, tied: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Full weights of the engine's model, one at a time, whatever the ZeRO stage; all ranks must iterate.

    A tensor is valid only until the next one is asked for. With `tied` a tied output head comes under its own
    name as well: vLLM's CPU engine otherwise keeps its old packed copy.
    """
    import deepspeed

    model = causal_model(engine)
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_id")):
            yield name, parameter.data
            if tied and parameter is embedding and head.weight is embedding:
                yield "lm_head.weight", parameter.data


def export_model(engine: Any, tokenizer: Any, folder: Path) -> None:
    """Write a folder that transformers and vLLM load: weights, config, tokenizer, generation settings.

    All ranks must call it; rank 0 writes.
    """
    main = engine.global_rank == 0
    state = {}
    for name, weight in named_weights(engine):
        if main:
            state[name] = weight.detach().cpu().clone()
    if not main:
        return
    model = causal_model(engine)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder, state_dict=state)
    tokenizer.save_pretrained(folder)


def parameter_count(model: nn.Module) -> int:
    """Number of weights, tied ones once, whether or not ZeRO-3 has split them."""
    return sum(getattr(parameter, "ds_numel", parameter.numel()) for parameter in model.parameters())


def config_value(folder: Path, name: str) -> Any:
    """A key of the `config.json` in a model folder."""
    return json.loads((folder / "config.json").read_text()).get(name)
