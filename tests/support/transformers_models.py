"""Architectures of transformers that octavo has no class for, tiny, through the backend."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import transformers

from octavo.types.errors import ConfigError
from support.paged_model import PagedModel
from support.tiny_models import load_tiny

VOCAB = 203
TOLERANCE = 1e-4
NUM_TOKENS = 100
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "initializer_range": 0.2,
}
HEADS = SHAPE | {"head_dim": 16}
EXPERTS = SHAPE | {
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
GROUPED_EXPERTS = SHAPE | {
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "head_dim": 16,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 32,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "head_dim": 8,
}
GPT = {
    "vocab_size": VOCAB,
    "n_embd": 64,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 512,
    "n_inner": 96,
    "initializer_range": 0.2,
    "bos_token_id": 0,
    "eos_token_id": 1,
}

# model_type -> entries of its config.
ARCHITECTURES: dict[str, dict] = {
    "afmoe": EXPERTS | {"head_dim": 16, "sliding_window": 24},
    "apertus": SHAPE,
    "arcee": SHAPE,
    "bert": SHAPE,
    "biogpt": SHAPE,
    "bitnet": SHAPE,
    "codegen": GPT | {"rotary_dim": 8},
    "cohere2_moe": EXPERTS | {"sliding_window": 24},
    "ctrl": GPT | {"dff": 96},
    "cwm": HEADS | {"sliding_window": 24, "num_hidden_layers": 5},
    "deepseek_v2": GROUPED_EXPERTS | LATENT,
    "deepseek_v3": GROUPED_EXPERTS | LATENT,
    "diffllama": SHAPE,
    "doge": SHAPE,
    "dots1": GROUPED_EXPERTS,
    "ernie4_5": SHAPE | {"head_dim": 16},
    "ernie4_5_moe": EXPERTS | {"moe_num_experts": 4, "moe_k": 2},
    "exaone_moe": EXPERTS | {"sliding_window": 24, "head_dim": 16},
    "falcon": SHAPE,
    "flex_olmo": EXPERTS,
    "glm": HEADS,
    "glm4": HEADS,
    "glm4_moe": GROUPED_EXPERTS,
    "glm4_moe_lite": GROUPED_EXPERTS | LATENT,
    "gpt_bigcode": GPT,
    "gpt_oss": EXPERTS | {"head_dim": 16, "sliding_window": 24},
    "gptj": GPT | {"rotary_dim": 8},
    "granite_swa": HEADS | {"sliding_window": 24},
    "granitemoe": EXPERTS | {"attention_multiplier": 0.25, "initializer_range": 0.1},
    "granitemoehybrid": EXPERTS
    | {"layer_types": ["attention"] * 3, "shared_intermediate_size": 32},
    "granitemoeshared": EXPERTS
    | {
        "shared_intermediate_size": 32,
        "attention_multiplier": 0.25,
        "initializer_range": 0.1,
    },
    "helium": HEADS,
    "hunyuan_v1_dense": HEADS,
    "hunyuan_v1_moe": EXPERTS | {"head_dim": 16, "moe_topk": 2},
    "hyperclovax": HEADS,
    "jais2": SHAPE,
    "laguna": EXPERTS | {"head_dim": 16, "sliding_window": 24},
    "lfm2": SHAPE | {"layer_types": ["conv", "conv", "full_attention"]},
    "llama4_text": EXPERTS | {"head_dim": 16},
    "mellum": EXPERTS | {"head_dim": 16, "sliding_window": 24},
    "minicpm3": GROUPED_EXPERTS | LATENT,
    "minimax_m2": EXPERTS | {"head_dim": 16},
    "ministral": HEADS | {"sliding_window": 24},
    "ministral3": HEADS,
    "mixtral": EXPERTS,
    "modernbert-decoder": {
        name: value for name, value in SHAPE.items() if name != "num_key_value_heads"
    }
    | {"local_attention": 24},
    "nanochat": SHAPE,
    "nemotron": SHAPE,
    "olmo": SHAPE,
    "olmoe": EXPERTS,
    "persimmon": SHAPE | {"num_key_value_heads": 4},
    "phi": SHAPE,
    "phimoe": EXPERTS | {"sliding_window": None},
    "qwen2_moe": EXPERTS | {"shared_expert_intermediate_size": 32},
    "qwen3_moe": EXPERTS | {"head_dim": 16},
    "seed_oss": HEADS,
    "solar_open": GROUPED_EXPERTS,
    "starcoder2": SHAPE | {"sliding_window": 24},
    "vaultgemma": HEADS | {"sliding_window": 24, "query_pre_attn_scalar": 16},
    "xglm": SHAPE | {"d_model": 64, "ffn_dim": 96, "num_layers": 3, "attention_heads": 4},
    "youtu": GROUPED_EXPERTS | LATENT,
}


def outcome(model_type: str) -> str:
    """ "pass", or why the backend refuses the architecture; AssertionError if it is wrong."""
    torch.manual_seed(1)
    config = transformers.CONFIG_MAPPING[model_type](**ARCHITECTURES[model_type])
    theirs = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        try:
            ours = load_tiny(Path(folder))
            paged = PagedModel(ours, block_size=16, seed=2)
            prompts = [_prompt(5), _prompt(33), _prompt(64)]
            outputs = paged.greedy(prompts, NUM_TOKENS, chunk=16)
        except ConfigError as error:
            return str(error)
    for prompt, output in zip(prompts, outputs, strict=True):
        tokens = prompt + output[:-1]
        with torch.inference_mode():
            expected = theirs(torch.tensor([tokens]), use_cache=False).logits[0]
        assert output == expected[len(prompt) - 1 :].argmax(dim=-1).tolist()
        (logits,) = paged.step([(paged.sequence(), tokens)])
        assert (logits - expected).abs().max().item() <= TOLERANCE
    return "pass"


def class_name(model_type: str) -> str:
    """What config.json calls the architecture."""
    names = transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return str(names[model_type])


def _prompt(length: int) -> list[int]:
    generator = torch.Generator().manual_seed(length)
    return torch.randint(2, VOCAB, (length,), generator=generator).tolist()
