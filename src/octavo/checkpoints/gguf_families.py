"""GGUF_FAMILIES: the architectures of GGUF files, and what each is in the Hugging Face layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

# How a tensor's rows differ from Hugging Face's: rotary pairs are neighbours; queries, keys and
# values of a whole projection lie one below the other and not head by head.
RowOrder = Literal["same", "interleaved", "by_part"]

_RMS_EPS = "attention.layer_norm_rms_epsilon"
_LAYER_EPS = "attention.layer_norm_epsilon"


@dataclass(frozen=True, kw_only=True)
class GGUFFamily:
    """One general.architecture.

    `outer` and `layer` map stems of tensor names to modules; those of layers follow `layers`.
    `names` maps entries of Llama's config to what this family's calls them, and `fixed` are
    entries that the files don't hold. `copied` maps metadata keys to entries of the config.
    """

    architecture: str
    model_type: str
    outer: Mapping[str, str]
    layers: str
    layer: Mapping[str, str]
    names: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    copied: Mapping[str, str] = field(default_factory=dict)
    eps: str = _RMS_EPS
    rows: RowOrder = "same"
    norms_hold_one_more: bool = False  # a file has 1 + weight of every norm
    transposed: tuple[str, ...] = ()  # modules whose weights are [inputs, outputs]


_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYERS = "model.layers"
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Norms after attention and feed-forward, before they are added.
_AFTER = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GEMMA_LAYER = _LAYER | _AFTER | {"ffn_norm": "pre_feedforward_layernorm"}
_GEMMA_FIXED = {
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
}
_SOFT_CAPS = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
_GPT2_NAMES = {
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "hidden_act": "activation_function",
    "rms_norm_eps": "layer_norm_epsilon",
}
_NO_WINDOW = {"sliding_window": None}  # where the file names none
_COHERE_COPIED = {"logit_scale": "logit_scale"}
_LAYER_NORM = {"rms_norm_eps": "layer_norm_eps"}


def _llama_like(
    architecture: str, model_type: str, layer: Mapping[str, str] = _LAYER, **others: Any
) -> GGUFFamily:
    return GGUFFamily(
        architecture=architecture,
        model_type=model_type,
        outer=_OUTER,
        layers=_LAYERS,
        layer=layer,
        **others,
    )


GGUF_FAMILIES: Mapping[str, GGUFFamily] = {
    # RoBERTa's and DistilBERT's too: their tables of positions and of texts say the difference.
    "bert": GGUFFamily(
        architecture="BertModel",
        model_type="bert",
        outer={
            "token_embd": "embeddings.word_embeddings",
            "token_types": "embeddings.token_type_embeddings",
            "position_embd": "embeddings.position_embeddings",
            "token_embd_norm": "embeddings.LayerNorm",
            "cls": "pooler.dense",
            "cls.output": "classifier",
        },
        layers="encoder.layer",
        layer={
            "attn_q": "attention.self.query",
            "attn_k": "attention.self.key",
            "attn_v": "attention.self.value",
            "attn_output": "attention.output.dense",
            "attn_output_norm": "attention.output.LayerNorm",
            "ffn_up": "intermediate.dense",
            "ffn_down": "output.dense",
            "layer_output_norm": "output.LayerNorm",
        },
        names=_LAYER_NORM,
        fixed={"hidden_act": "gelu"},
        eps=_LAYER_EPS,
    ),
    "llama": _llama_like("LlamaForCausalLM", "llama", rows="interleaved"),
    # The same arithmetic as Llama's; only the safetensors files have names of their own.
    "internlm2": _llama_like("LlamaForCausalLM", "llama", rows="interleaved"),
    "qwen2": _llama_like("Qwen2ForCausalLM", "qwen2"),
    "qwen3": _llama_like("Qwen3ForCausalLM", "qwen3"),
    "gemma": _llama_like("GemmaForCausalLM", "gemma", fixed=_GEMMA_FIXED, norms_hold_one_more=True),
    "gemma2": _llama_like(
        "Gemma2ForCausalLM",
        "gemma2",
        _GEMMA_LAYER,
        fixed=_GEMMA_FIXED,
        copied=_SOFT_CAPS,
        norms_hold_one_more=True,
    ),
    "gemma3": _llama_like(
        "Gemma3ForCausalLM",
        "gemma3_text",
        _GEMMA_LAYER,
        fixed=_GEMMA_FIXED,
        copied=_SOFT_CAPS,
        norms_hold_one_more=True,
    ),
    "phi3": _llama_like(
        "Phi3ForCausalLM",
        "phi3",
        _LAYER | {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
        fixed=_NO_WINDOW,
    ),
    "olmo2": _llama_like("Olmo2ForCausalLM", "olmo2", _LAYER | _AFTER),
    "granite": _llama_like(
        "GraniteForCausalLM",
        "granite",
        rows="interleaved",
        copied={
            "attention.scale": "attention_multiplier",
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "logit_scale": "logits_scaling",
        },
    ),
    "stablelm": _llama_like(
        "StableLmForCausalLM",
        "stablelm",
        eps=_LAYER_EPS,
        names=_LAYER_NORM | {"attention_bias": "use_qkv_bias"},
        copied={"use_parallel_residual": "use_parallel_residual"},
    ),
    "command-r": _llama_like(
        "CohereForCausalLM", "cohere", eps=_LAYER_EPS, names=_LAYER_NORM, copied=_COHERE_COPIED
    ),
    "cohere2": _llama_like(
        "Cohere2ForCausalLM", "cohere2", eps=_LAYER_EPS, names=_LAYER_NORM, copied=_COHERE_COPIED
    ),
    "smollm3": _llama_like("SmolLM3ForCausalLM", "smollm3", rows="interleaved"),
    "exaone4": _llama_like("Exaone4ForCausalLM", "exaone4", _LAYER | _AFTER, fixed=_NO_WINDOW),
    "exaone": GGUFFamily(
        architecture="ExaoneForCausalLM",
        model_type="exaone",
        outer={
            "token_embd": "transformer.wte",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        layers="transformer.h",
        layer={
            "attn_norm": "ln_1",
            "attn_q": "attn.attention.q_proj",
            "attn_k": "attn.attention.k_proj",
            "attn_v": "attn.attention.v_proj",
            "attn_output": "attn.attention.out_proj",
            "ffn_norm": "ln_2",
            "ffn_gate": "mlp.c_fc_0",
            "ffn_up": "mlp.c_fc_1",
            "ffn_down": "mlp.c_proj",
        },
        names={
            "num_hidden_layers": "num_layers",
            "hidden_act": "activation_function",
            "rms_norm_eps": "layer_norm_epsilon",
        },
    ),
    "gpt2": GGUFFamily(
        architecture="GPT2LMHeadModel",
        model_type="gpt2",
        outer={
            "token_embd": "transformer.wte",
            "position_embd": "transformer.wpe",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        layers="transformer.h",
        layer={
            "attn_norm": "ln_1",
            "attn_qkv": "attn.c_attn",
            "attn_output": "attn.c_proj",
            "ffn_norm": "ln_2",
            "ffn_up": "mlp.c_fc",
            "ffn_down": "mlp.c_proj",
        },
        names=_GPT2_NAMES,
        fixed={"hidden_act": "gelu_new"},
        eps=_LAYER_EPS,
        transposed=("c_attn", "c_proj", "c_fc"),
    ),
    "gptneox": GGUFFamily(
        architecture="GPTNeoXForCausalLM",
        model_type="gpt_neox",
        outer={
            "token_embd": "gpt_neox.embed_in",
            "output_norm": "gpt_neox.final_layer_norm",
            "output": "embed_out",
        },
        layers="gpt_neox.layers",
        layer={
            "attn_norm": "input_layernorm",
            "attn_qkv": "attention.query_key_value",
            "attn_output": "attention.dense",
            "ffn_norm": "post_attention_layernorm",
            "ffn_up": "mlp.dense_h_to_4h",
            "ffn_down": "mlp.dense_4h_to_h",
        },
        names=_LAYER_NORM
        | {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
        fixed={"hidden_act": "gelu"},
        copied={"use_parallel_residual": "use_parallel_residual"},
        eps=_LAYER_EPS,
        rows="by_part",
    ),
    "bloom": GGUFFamily(
        architecture="BloomForCausalLM",
        model_type="bloom",
        outer={
            "token_embd": "transformer.word_embeddings",
            "token_embd_norm": "transformer.word_embeddings_layernorm",
            "output_norm": "transformer.ln_f",
            "output": "lm_head",
        },
        layers="transformer.h",
        layer={
            "attn_norm": "input_layernorm",
            "attn_qkv": "self_attention.query_key_value",
            "attn_output": "self_attention.dense",
            "ffn_norm": "post_attention_layernorm",
            "ffn_up": "mlp.dense_h_to_4h",
            "ffn_down": "mlp.dense_4h_to_h",
        },
        names={
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "max_position_embeddings": "seq_length",
            "rms_norm_eps": "layer_norm_epsilon",
        },
        fixed={"hidden_act": "gelu_fast"},
        eps=_LAYER_EPS,
        rows="by_part",
    ),
    "mpt": GGUFFamily(
        architecture="MptForCausalLM",
        model_type="mpt",
        outer={
            "token_embd": "transformer.wte",
            "output_norm": "transformer.norm_f",
            "output": "lm_head",
        },
        layers="transformer.blocks",
        layer={
            "attn_norm": "norm_1",
            "attn_qkv": "attn.Wqkv",
            "attn_output": "attn.out_proj",
            "ffn_norm": "norm_2",
            "ffn_up": "ffn.up_proj",
            "ffn_down": "ffn.down_proj",
        },
        names={
            "hidden_size": "d_model",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "max_position_embeddings": "max_seq_len",
            "rms_norm_eps": "layer_norm_epsilon",
        },
        fixed={"hidden_act": "gelu"},
        eps=_LAYER_EPS,
    ),
}
