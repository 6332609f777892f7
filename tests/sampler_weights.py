"""Loads a policy's weights into vLLM's model class, both on the meta device; test_meta.py runs it.

Argument: a JSON list of (kind, keys of its transformers configuration). Prints for each the weights of the
sampler that no name of the policy's reached, and the error when one weight has another shape.
"""

import pipeline.training.environment  # noqa: F401  # isort: skip  # before torch and vLLM

import json
import sys
import tempfile
from types import SimpleNamespace

import torch
import torch.distributed as dist
from transformers import AutoConfig, AutoModelForCausalLM
from vllm.config import DeviceConfig, ModelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import init_distributed_environment, initialize_model_parallel
from vllm.model_executor.models.registry import ModelRegistry

from pipeline.training.model import sampler_weights

ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM"}


def check(kind: str, keys: dict) -> dict:
    config = AutoConfig.for_model(kind, **keys)
    config.architectures = [ARCHITECTURES[kind]]
    with tempfile.TemporaryDirectory() as folder:
        config.save_pretrained(folder)
        model = ModelConfig(model=folder, tokenizer=folder, skip_tokenizer_init=True, dtype="bfloat16")
        settings = VllmConfig(model_config=model, device_config=DeviceConfig(device="cpu"))
    with set_current_vllm_config(settings), torch.device("meta"):
        kind_of_sampler, _ = ModelRegistry.resolve_model_cls(config.architectures, model)
        sampler = kind_of_sampler(vllm_config=settings)
        policy = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    engine = SimpleNamespace(module=SimpleNamespace(model=policy))
    weights = dict(sampler_weights(engine))
    missed = set(dict(sampler.named_parameters())) - sampler.load_weights(weights.items())
    wrong = next(name for name in weights if name.endswith("down_proj.weight"))
    try:
        sampler.load_weights([(wrong, weights[wrong].T)])
        error = None
    except (AssertionError, RuntimeError) as refused:
        error = type(refused).__name__
    return {"names": len(weights), "missed": sorted(missed), "error": error}


if __name__ == "__main__":
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with set_current_vllm_config(VllmConfig()):
        init_distributed_environment(1, 0, "env://", 0, "gloo")
        initialize_model_parallel(1, 1)
    print(json.dumps([check(kind, keys) for kind, keys in json.loads(sys.argv[1])]))
