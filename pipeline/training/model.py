"""Models and tokenizers as Hugging Face folders, and the module that cpt, sft and rl train.

`TokenLogprobs` wraps a causal language model so that its forward pass returns the log-probability of each
given target and never holds the logits of more than a chunk of positions. Shape suffixes: B sequences,
T positions, N = B*T positions end to end, D hidden size, V vocabulary.
"""

import re
import shutil
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.utils import enable_progress_bars
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
)
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import revert_weight_conversion
from transformers.initialization import no_init_weights
from transformers.utils import logging as transformers_logging

from pipeline.config.lora import ADAPTER
from pipeline.core.stage import InputError
from pipeline.core.watchdog import enter
from pipeline.training.folder import load_whole, model_config
from pipeline.training.isolation import PackedModel, compared
from pipeline.training.linear_loss import target_logprobs, weighted_nll
from pipeline.training.lora import is_adapter, matrices, merged, own_parameters, save_adapter
from pipeline.training.packing import IGNORE

transformers_logging.disable_progress_bar()  # of reading and writing weights
enable_progress_bars()  # of downloads, which the line before stops too

LAYER = re.compile(r".*?\.\d+\.")  # in the name of a weight
DTYPES = {"fp32": torch.float32, "mixed": torch.float32, "bf16": torch.bfloat16}


class TokenLogprobs(PackedModel):
    """log pi(target | tokens so far) for packed sequences, without a full logits tensor.

    `model` is any causal language model of transformers whose output layer is linear without bias; others
    raise InputError. `positions_BT` restart from 0 at each document of a row, and no token attends to another
    document.
    """

    def __init__(self, model: nn.Module, mixed: bool = False, longest: int | None = None) -> None:
        super().__init__(model, mixed, longest)
        self.model = model
        head = model.get_output_embeddings()
        if head is None or getattr(head, "bias", None) is not None:
            what = "no output layer" if head is None else "an output layer with a bias"
            raise InputError(f"{model.config.model_type}: {what}; only a linear output layer can be trained")

    @property
    def trunk(self) -> nn.Module:
        """The model without its output layer."""
        return self.model.base_model

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
            hidden_BTD = self.hidden(tokens_BT, positions_BT, documents, targets_BT)
        hidden_ND = (hidden_BTD.to(torch.bfloat16) if self.mixed else hidden_BTD).flatten(0, 1)
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

    def alone(self, tokens_1T: Tensor, targets_1T: Tensor) -> Tensor:
        """Return the log-probabilities (T,) that transformers computes of one document."""
        logits_TV = compared(self.model(input_ids=tokens_1T, use_cache=False).logits[0])
        return logits_TV.float().log_softmax(-1).gather(1, compared(targets_1T[0])[:, None]).squeeze(1)

    def packed(
        self, tokens_BT: Tensor, positions_BT: Tensor, targets_BT: Tensor, documents: dict[str, Any] | None
    ) -> Tensor:
        """Return the log-probabilities (B, T) of packed documents."""
        return self(tokens_BT, positions_BT, targets_BT, documents=documents)


def load_model(source: str | Path, precision: str = "fp32", kind: type = AutoModelForCausalLM) -> nn.Module:
    """Load the causal language model of a folder or hub id, with weights in `precision`. Raises InputError.

    With `AutoModel` as `kind` the transformer alone, without its output layer.
    """
    return load_whole(kind, source, dtype=DTYPES[precision])


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
            model = kind.from_config(model_config(source), dtype=DTYPES[precision])
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


def causal_model(engine: Any) -> nn.Module:
    """Return the transformers model inside a DeepSpeed engine."""
    return engine.module.model


def named_weights(engine: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield whole weights of the engine's model in turn, whatever the ZeRO stage; all ranks must iterate.

    A tensor is valid only until the next one is requested. Adapters are merged.
    """
    for name, parameter, layer in own_parameters(causal_model(engine)):
        with _whole(parameter, *(matrices(layer) if layer else ())):
            yield name, merged(parameter, layer) if layer else parameter.data


def sampler_weights(engine: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the same under the names and in the layout of model folders, which vLLM reads.

    transformers joins tensors of a folder, such as those of experts; they are parted again layer by layer. A
    tied output layer comes under its own name too: vLLM's CPU engine otherwise keeps its old packed copy.
    """
    model = causal_model(engine)
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    names = {id(parameter): name for name, parameter, _ in own_parameters(model)}
    if not get_model_conversion_mapping(model, add_legacy=False):
        parts = ([pair] for pair in named_weights(engine))
    else:
        layers = groupby(named_weights(engine), lambda pair: LAYER.match(pair[0]) and LAYER.match(pair[0])[0])
        copies = ({name: tensor.clone() for name, tensor in layer} for _, layer in layers)
        parts = (revert_weight_conversion(model, layer).items() for layer in copies)
    for name, tensor in chain.from_iterable(parts):
        yield name, tensor
        if embedding is head and name == names[id(embedding)]:
            yield "lm_head.weight", tensor


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
