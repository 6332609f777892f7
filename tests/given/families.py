"""Small random models of the families of causal language models that the installed transformers knows."""

import inspect
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

LARGEST = 4_000_000  # weights of a model that counts as small
VALUES: dict[int, str] = {  # of keys of configurations, wherever a family has them
    96: "intermediate_size ffn_dim d_ff n_inner ffn_hidden_size decoder_ffn_dim encoder_ffn_dim "
    "intermediate_size_mlp",
    64: "hidden_size d_model n_embd dim embed_dim lru_width embedding_size out_hidden_size",
    48: "moe_intermediate_size moe_ffn_hidden_size shared_expert_intermediate_size expert_ffn_hidden_size "
    "moe_shared_expert_intermediate_size shared_intermediate_size",
    32: "q_lora_rank kv_lora_rank qk_head_dim index_head_dim",
    24: "sliding_window attention_window_size attention_chunk_size",
    16: "head_dim global_head_dim d_kv kv_channels swa_head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim "
    "mamba_d_head mamba_head_dim linear_key_head_dim linear_value_head_dim hidden_size_per_layer_input "
    "chunk_size mamba_chunk_size index_topk",
    8: "state_size mamba_d_state ssm_state_size mamba_n_heads mamba_num_heads mamba_dt_rank time_step_rank "
    "rotary_dim laurel_rank",
    4: "num_attention_heads n_head n_heads decoder_attention_heads encoder_attention_heads num_heads "
    "swa_num_attention_heads num_experts num_local_experts n_routed_experts moe_num_experts "
    "linear_num_value_heads",
    2: "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers num_key_value_heads "
    "num_kv_heads swa_num_key_value_heads num_experts_per_tok num_experts_per_token moe_topk top_k_experts "
    "moe_k linear_num_key_heads index_n_heads mamba_expand depth eos_token_id",
    1: "n_group topk_group n_shared_experts num_shared_experts mamba_n_groups first_k_dense_replace "
    "bos_token_id",
    0: "pad_token_id num_kv_shared_layers",
    128: "vocab_size vocab_size_per_layer_input max_position_embeddings n_positions n_ctx max_seq_len "
    "mamba_d_ssm",
}
SMALL = {key: value for value, keys in VALUES.items() for key in keys.split()}
OWN: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 24},
    "mamba2": {"num_heads": 8, "head_dim": 16},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention"]},
    "qwen3_5_text": {"layer_types": ["linear_attention", "full_attention"]},
    "granite": {"logits_scaling": 8.0},
    "phi3": {"original_max_position_embeddings": 128},
}
FAMILIES = tuple(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def small_config(family: str, **keys: Any) -> Any:
    """Make a configuration with few and narrow layers. Raises whatever the class of the family does."""
    kind = CONFIG_MAPPING[family]
    return kind(**_small_keys(kind) | OWN.get(family, {}) | keys)


def _small_keys(kind: type) -> dict[str, Any]:
    known = set(inspect.signature(kind.__init__).parameters)
    for base in kind.__mro__:
        known |= set(getattr(base, "__annotations__", {}))
    keys: dict[str, Any] = {key: value for key, value in SMALL.items() if key in known}
    if "kv_lora_rank" in known:  # latent attention has as many keys as queries
        keys["num_key_value_heads"] = keys["num_attention_heads"]
    for name, part in (getattr(kind, "sub_configs", None) or {}).items():
        if part.__name__ != "AutoConfig":
            keys[name] = _small_keys(part)
    return keys


def small_model(family: str, **keys: Any) -> torch.nn.Module | None:
    """Make a random model in fp32 whose attention is far from uniform; None if it is not small."""
    config = small_config(family, **keys)
    with torch.device("meta"):
        if sum(weight.numel() for weight in AutoModelForCausalLM.from_config(config).parameters()) > LARGEST:
            return None
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.15)
    return model
