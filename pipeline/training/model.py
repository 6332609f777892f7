"""Models and tokenizers as Hugging Face folders, and the module that cpt, sft and rl train.

`TokenLogprobs` wraps a causal language model so that its forward pass returns the log-probability of each
given target and never holds the logits of more than a chunk of positions. Shape suffixes: B sequences,
T positions, N = B*T positions end to end, D hidden size, V vocabulary.
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils import enable_progress_bars
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
)
from transformers.initialization import no_init_weights
from transformers.utils import logging as transformers_logging

from pipeline.config.lora import ADAPTER
from pipeline.protocol.stage import InputError
from pipeline.protocol.watchdog import enter
from pipeline.training.attention import DOCUMENTS, document_arguments
from pipeline.training.linear_loss import target_logprobs, weighted_nll
from pipeline.training.lora import is_adapter, matrices, merged, own_parameters, save_adapter
from pipeline.training.packing import IGNORE
from pipeline.training.tokenizer import from_pretrained

transformers_logging.disable_progress_bar()  # of reading and writing weights
enable_progress_bars()  # of downloads, which the line before stops too

LOGIT_SCALES = ("final_logit_softcapping", "logit_scale", "logits_scaling")  # keys of Gemma, Cohere, Granite
DTYPES = {"fp32": torch.float32, "mixed": torch.float32, "bf16": torch.bfloat16}


class TokenLogprobs(nn.Module):
    """log pi(target | tokens so far) for packed sequences, without a full logits tensor.

    `model` is any causal language model of transformers whose output layer is linear without bias; others
    raise InputError. `positions_BT` restart from 0 at each document of a row, and no token attends to another
    document. With `mixed`, matrix products run in bf16 on fp32 weights.
    """

    def __init__(self, model: nn.Module, mixed: bool = False) -> None:
        super().__init__()
        self.model, self.mixed = model, mixed
        scaled = [name for name in LOGIT_SCALES if getattr(model.config, name, None) not in (None, 1)]
        if scaled or getattr(model.get_output_embeddings(), "bias", None) is not None:
            what = f"logits changed by {scaled[0]}" if scaled else "an output layer with a bias"
            raise InputError(f"{model.config.model_type}: {what}; only a linear output layer can be trained")
        model.set_attn_implementation(DOCUMENTS)

    def forward(
        self,
        tokens_BT: Tensor,
        positions_BT: Tensor,
        targets_BT: Tensor,
        documents: dict[str, Any] | None = None,
        weights_BT: Tensor | None = None,
        places_N: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Return fp32 log-probabilities (B, T) of `targets_BT`; 0 where the target is `IGNORE`.

        `documents` (of `shared_arguments`) replaces the document boundaries that positions show. With
        `weights_BT` instead the loss, which is the weighted sum of negative log-probabilities, and the
        log-probabilities (B, T) without gradient: cheapest where the weights are known beforehand.
        `places_N`: where the targets are in the rows laid end to end; without it the device is asked.
        """
        with torch.autocast(tokens_BT.device.type, torch.bfloat16, enabled=self.mixed):
            hidden_ND = self._hidden(tokens_BT, positions_BT, documents).flatten(0, 1)
        targets_N = targets_BT.flatten()
        wanted = (targets_N != IGNORE).nonzero().squeeze(1) if places_N is None else places_N
        head_VD = self.model.get_output_embeddings().weight
        chosen = hidden_ND.index_select(0, wanted), head_VD, targets_N[wanted]

        def spread(values: Tensor) -> Tensor:
            return torch.zeros(targets_BT.shape, device=values.device).flatten().index_copy(0, wanted, values)

        if weights_BT is not None:
            loss, logprobs = weighted_nll(*chosen, weights_BT.flatten()[wanted])
            return loss, spread(logprobs).view_as(targets_BT)
        return spread(target_logprobs(*chosen)).view_as(targets_BT)

    def _hidden(self, tokens_BT: Tensor, positions_BT: Tensor, documents: dict[str, Any] | None) -> Tensor:
        """Return last hidden states (B, T, D), in the type used for matrix products."""
        apart = documents or document_arguments(positions_BT)
        output = self.model.base_model(
            input_ids=tokens_BT, position_ids=positions_BT, use_cache=False, **apart
        ).last_hidden_state
        return output.to(torch.bfloat16) if self.mixed else output


def load_model(source: str | Path, precision: str = "fp32", kind: type = AutoModelForCausalLM) -> nn.Module:
    """Load the causal language model of a folder or hub id, with weights in `precision`.

    With `AutoModel` as `kind` the transformer alone, without its output layer.
    """
    return from_pretrained(kind, source, dtype=DTYPES[precision], attn_implementation="sdpa")


def load_shared_model(
    source: str | Path, precision: str, split: str | None = None, kind: type = AutoModelForCausalLM
) -> nn.Module:
    """Load a model for ranks that train together: rank 0 reads the files, the others get the weights from it,
    on their devices, so that a machine never holds more than one copy in main memory beside its ranks' own.

    With `split` each rank gets its share of every weight (ZeRO 3), in `main_memory` or on its `device`. The
    process group must exist; all ranks must call it.
    """
    import deepspeed

    first, ranks = torch.distributed.get_rank() == 0, torch.distributed.get_world_size()
    whole = load_model(source, precision, kind) if first else None
    device = torch.device(deepspeed.get_accelerator().current_device_name())
    if split is None and (first or ranks == 1):
        model = whole.to(device)
    else:
        with _unfilled(device, split), no_init_weights():
            keys = {"dtype": DTYPES[precision], "attn_implementation": "sdpa"}
            model = kind.from_config(model_config(source), **keys)
        model.tie_weights()
    if split is not None and first and hasattr(whole, "generation_config"):
        model.generation_config = whole.generation_config
    weights = dict(whole.named_parameters()) if first else {}
    for name, parameter in model.named_parameters():
        if split is None and ranks > 1:
            deepspeed.comm.broadcast(parameter.data, 0)
        elif split is not None:
            with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
                if first:
                    parameter.data.copy_(weights[name])
    return model


def _unfilled(device: torch.device, split: str | None) -> Any:
    """Return a context in which a model is made without values, on `device` or split among the ranks."""
    import deepspeed

    if split is None:
        return device
    # DeepSpeed would also override data types, those of rotary tables too; transformers chooses them rightly.
    kept = [deepspeed.zero.DeepSpeedTensorOverride.device]
    return deepspeed.zero.Init(config_dict_or_path=split_config(split), tensor_overrides=kept)


def split_config(place: str) -> dict[str, Any]:
    """Return DeepSpeed's configuration for weights split among the ranks, in `main_memory` or on devices."""
    zero: dict[str, Any] = {"stage": 3}
    if place == "main_memory":
        zero["offload_param"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    return {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}  # the size is unused


def new_model(
    architecture: dict[str, Any], tokenizer: Any, context: int, precision: str, seed: int
) -> nn.Module:
    """Make a randomly initialised Llama; `architecture` holds keys of `LlamaConfig`."""
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


def model_config(source: str | Path) -> Any:
    """Read the configuration of the model in a folder or hub id."""
    return from_pretrained(AutoConfig, source)


def context_length(source: str | Path) -> int:
    """Return the longest sequence that the model at `source` supports; tokens."""
    return int(model_config(source).max_position_embeddings)


def causal_model(engine: Any) -> nn.Module:
    """Return the transformers model inside a DeepSpeed engine."""
    return engine.module.model


def named_weights(engine: Any, tied: bool = False) -> Iterator[tuple[str, Tensor]]:
    """Yield whole weights of the engine's model in turn, whatever the ZeRO stage; all ranks must iterate.

    A tensor is valid only until the next one is requested. With `tied`, a tied output layer also comes under
    its own name, because vLLM's CPU engine otherwise keeps its old packed copy. Adapters are merged.
    """
    model = causal_model(engine)
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    for name, parameter, layer in own_parameters(model):
        with _whole(parameter, *(matrices(layer) if layer else ())):
            yield name, merged(parameter, layer) if layer else parameter.data
            if tied and parameter is embedding and head.weight is embedding:
                yield "lm_head.weight", parameter.data


def weights_in_memory(weights: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Copy named weights to main memory, on rank 0 only; all ranks must call it."""
    rank = torch.distributed.get_rank()
    return {name: tensor.detach().cpu().clone() for name, tensor in weights if rank == 0}


def whole_parameters(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield a module's parameters by name, whole, whatever the ZeRO stage; all ranks must iterate."""
    for name, parameter in module.named_parameters():
        with _whole(parameter):
            yield name, parameter.data


def _whole(*parameters: nn.Parameter) -> Any:
    """Return a context in which weights that ZeRO-3 may have split are whole; all ranks must enter it."""
    import deepspeed

    return deepspeed.zero.GatheredParameters(list(parameters), enabled=hasattr(parameters[0], "ds_id"))


def export_model(engine: Any, tokenizer: Any, folder: Path) -> None:
    """Write a folder that transformers and vLLM load: weights, config, tokenizer, generation settings. All
    ranks must call it; rank 0 writes. The tokens that ended answers of the initial model still end them.
    An adapter is merged, and kept in a folder of its own.
    """
    enter("export")
    model = causal_model(engine)
    state = weights_in_memory(named_weights(engine))
    adapter = weights_in_memory(pair for pair in whole_parameters(model) if is_adapter(pair[0]))
    if engine.global_rank != 0:
        return
    before = model.generation_config.eos_token_id
    ends = dict.fromkeys([tokenizer.eos_token_id, *(before if isinstance(before, list) else [before])])
    ends.pop(None, None)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=list(ends) if len(ends) > 1 else tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    save_weights(model, state, folder)
    if adapter:
        save_adapter(model, adapter, folder / ADAPTER)
    tokenizer.save_pretrained(folder)


def save_weights(model: nn.Module, state: dict[str, Tensor], folder: Path) -> None:
    """Write weights and config with the modes of the umask; safetensors lets nobody but the owner read."""
    model.save_pretrained(folder, state_dict=state)
    for file in folder.glob("*.safetensors"):
        shutil.copymode(folder / "config.json", file)


def parameter_count(model: nn.Module) -> int:
    """Count weights but adapters, tied ones once, whether or not ZeRO-3 has split them."""
    return sum(full_shape(parameter).numel() for _, parameter, _ in own_parameters(model))


def full_shape(parameter: nn.Parameter) -> torch.Size:
    """Return a weight's shape, whether or not ZeRO-3 has split it."""
    return getattr(parameter, "ds_shape", parameter.shape)
