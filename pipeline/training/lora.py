"""Low-rank adapters (LoRA, arXiv 2106.09685) by PEFT: the model's weights W stay, s B A is added and trained.

The frozen model is the reference of RL (`Unadapted`), so no second one is in memory. Sampler and published
folder get merged weights, W + s B A, summed in fp32 and rounded once: what reads them need not know about
adapters, the way to the sampler and its check are those of all weights, and vLLM's own adapters would need
room beside the weights. Where W is bf16 a change of less than half a unit in its last place is lost there
until it has grown; RL measures that like every gap between sampler and policy, and `importance_cap` corrects
it. The adapter itself is kept beside the model in PEFT's format.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import save
from torch import Tensor, nn

from pipeline.config.lora import Lora
from pipeline.core.ending import say
from pipeline.core.errors import InputError
from pipeline.core.manifest import write_json

NAME = "default"  # what PEFT calls the adapter in memory


def adapt(model: nn.Module, settings: Lora, seed: int, stage: str) -> nn.Module:
    """Freeze the model and give its linear layers `settings.targets` adapters that change nothing yet.

    Raises InputError for a target that is no linear layer of the model's blocks.
    """
    blocks = model.base_model.named_modules()
    found = {name.rpartition(".")[2] for name, module in blocks if isinstance(module, nn.Linear)}
    for target in settings.targets:
        if target not in found:
            known = ", ".join(sorted(found))
            raise InputError(
                f"{stage}.lora.targets: {target!r} is no linear layer of this model; it has {known}"
            )
    experts = sum(weight.numel() for name, weight in model.named_parameters() if ".experts." in name)
    if experts:
        share = experts / sum(weight.numel() for weight in model.parameters())
        say(
            f"{stage}: {share:.0%} of the weights are experts', which are no linear layers: no adapters there"
        )
    torch.manual_seed(seed)
    model = inject_adapter_in_model(_peft_config(settings), model)
    model.register_state_dict_post_hook(_drop_frozen)
    return model


def _drop_frozen(model: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    """Leave adapters alone in what checkpoints save; DeepSpeed would keep a tied output layer."""
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if not parameter.requires_grad:
            state.pop(f"{prefix}{name}", None)


def _peft_config(settings: Lora) -> LoraConfig:
    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=sorted(set(settings.targets)),
        task_type="CAUSAL_LM",
    )


def adapters(model: nn.Module) -> dict[str, LoraLayer]:
    """Return the adapted layers by their names in the model; none if it was not adapted."""
    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}


def own_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, LoraLayer | None]]:
    """Yield (name, parameter, its adapted layer if it is that layer's W) of the model without adapters."""
    layers = adapters(model)
    for name, parameter in model.named_parameters():
        path, base, rest = name.rpartition(".base_layer.")
        if base:
            yield f"{path}.{rest}", parameter, layers[path] if rest == "weight" else None
        elif not is_adapter(name):
            yield name, parameter, None


def is_adapter(name: str) -> bool:
    """Say whether a parameter of this name is an A or B."""
    return name.endswith((f".lora_A.{NAME}.weight", f".lora_B.{NAME}.weight"))


def merged(weight: Tensor, layer: LoraLayer) -> Tensor:
    """Return W + s B A in the type of `weight`, summed in fp32; all three must be whole."""
    low, high = layer.lora_A[NAME].weight.detach(), layer.lora_B[NAME].weight.detach()
    change = high.float() @ low.float()
    return change.mul_(layer.scaling[NAME]).add_(weight.detach()).to(weight.dtype)


def matrices(layer: LoraLayer) -> list[nn.Parameter]:
    """Return A and B of an adapted layer."""
    return [layer.lora_A[NAME].weight, layer.lora_B[NAME].weight]


def save_adapter(model: nn.Module, state: dict[str, Tensor], folder: Path) -> None:
    """Write the adapter as `PeftModel.from_pretrained(the model that training started from, folder)` reads
    it. `state`: A and B of all adapted layers by their names in `model`.
    """
    folder.mkdir(exist_ok=True)
    named = {f"base_model.model.{name.replace(f'.{NAME}.', '.')}": value for name, value in state.items()}
    (folder / "adapter_model.safetensors").write_bytes(save(named))
    facts = model.peft_config[NAME].to_dict() | {"inference_mode": True}
    lists = {name: sorted(value) for name, value in facts.items() if isinstance(value, set)}
    write_json(folder / "adapter_config.json", facts | lists)  # PEFT would write its sets in any order


class Unadapted:
    """The model of an engine without its adapters: what training started from. Gives no gradients."""

    def __init__(self, engine: Any) -> None:
        self.module, self.layers = engine.module, list(adapters(engine.module).values())

    @torch.no_grad()
    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        for layer in self.layers:
            layer.enable_adapters(False)
        try:
            return self.module(*arguments, **keywords)
        finally:
            for layer in self.layers:
                layer.enable_adapters(True)
