"""Greedy tokens of SmolLM2-135M-Instruct by transformers in float32, for the tests to compare with.

Weights, shapes and tokenizer come from the same GGUF file that octavo reads, but not by octavo's
code: the gguf package reads and dequantizes it, and what the format means is spelled out below.

    python tools/make_reference_tokens.py path/to/SmolLM2-135M-Instruct.Q4_1.gguf

Reads tests/models/data/smollm2_prompts.json and writes smollm2_greedy.json beside it. A prompt
that has a near-tie among its tokens is refused: its tokens would depend on the machine.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers

DATA = Path(__file__).resolve().parent.parent / "tests" / "models" / "data"
NUM_TOKENS = 32
# Logits reach 30, and float32 sums in another order move them by up to 0.002.
MIN_GAP = 0.01

LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
OUTER_NAMES = {"token_embd": "embed_tokens", "output_norm": "norm"}
CONTROL = 3  # a token type: special, never part of a text


class Checkpoint:
    """A GGUF file of a Llama whose output layer is its token embedding."""

    def __init__(self, path: Path) -> None:
        self._reader = gguf.GGUFReader(path)

    def get(self, key: str):
        return self._reader.fields[key].contents()

    def model(self) -> transformers.LlamaForCausalLM:
        heads = self.get("llama.attention.head_count")
        kv_heads = self.get("llama.attention.head_count_kv")
        config = transformers.LlamaConfig(
            vocab_size=self.get("llama.vocab_size"),
            hidden_size=self.get("llama.embedding_length"),
            intermediate_size=self.get("llama.feed_forward_length"),
            num_hidden_layers=self.get("llama.block_count"),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            max_position_embeddings=self.get("llama.context_length"),
            rms_norm_eps=self.get("llama.attention.layer_norm_rms_epsilon"),
            rope_parameters={
                "rope_type": "default",
                "rope_theta": self.get("llama.rope.freq_base"),
            },
            tie_word_embeddings=True,
        )
        weights = {}
        for tensor in self._reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            name = tensor.name.removesuffix(".weight")
            if name.endswith("attn_q"):
                values = halves_apart(values, heads)
            elif name.endswith("attn_k"):
                values = halves_apart(values, kv_heads)
            weights[hf_name(name)] = torch.from_numpy(np.array(values, dtype=np.float32))
        model = transformers.LlamaForCausalLM(config).eval()
        result = model.load_state_dict(weights, strict=False)
        assert result.missing_keys in ([], ["lm_head.weight"]), result
        assert not result.unexpected_keys, result
        model.tie_weights()
        return model

    def tokenizer(self) -> tokenizers.Tokenizer:
        """Byte-level BPE; the rule "smollm" cuts GPT-2's way with every digit by itself."""
        assert self.get("tokenizer.ggml.model") == "gpt2"
        assert self.get("tokenizer.ggml.pre") == "smollm"
        tokens = self.get("tokenizer.ggml.tokens")
        merges = [tuple(merge.split(" ")) for merge in self.get("tokenizer.ggml.merges")]
        vocab = {token: index for index, token in enumerate(tokens)}
        tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        types = self.get("tokenizer.ggml.token_type")
        tokenizer.add_special_tokens(
            [t for t, kind in zip(tokens, types, strict=True) if kind == CONTROL]
        )
        return tokenizer


def hf_name(name: str) -> str:
    """The name in transformers of a tensor in GGUF, without ".weight"."""
    if name in OUTER_NAMES:
        return f"model.{OUTER_NAMES[name]}.weight"
    _, layer, part = name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.weight"


def halves_apart(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """GGUF keeps the two rows that rotate together side by side, transformers half a head apart."""
    pairs = rows.reshape(num_heads, -1, 2, rows.shape[-1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def greedy(
    model: transformers.LlamaForCausalLM, prompt: list[int]
) -> tuple[list[int], list[float]]:
    """The likeliest tokens and how far behind the second choices were, in logits."""
    made = model.generate(
        torch.tensor([prompt]),
        do_sample=False,
        max_new_tokens=NUM_TOKENS,
        eos_token_id=None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_logits=True,
    )
    best = torch.cat(made.logits).topk(2)
    gaps = (best.values[:, 0] - best.values[:, 1]).tolist()
    assert best.indices[:, 0].tolist() == made.sequences[0, len(prompt) :].tolist()
    return best.indices[:, 0].tolist(), [round(gap, 3) for gap in gaps]


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the reference tokens of SmolLM2.")
    parser.add_argument("gguf", type=Path, help="the GGUF file")
    checkpoint = Checkpoint(parser.parse_args().gguf)
    model, tokenizer = checkpoint.model(), checkpoint.tokenizer()
    prompts = json.loads((DATA / "smollm2_prompts.json").read_text(encoding="utf-8"))
    lines = []
    ties = []
    for text in prompts:
        prompt = tokenizer.encode(text).ids
        tokens, gaps = greedy(model, prompt)
        if min(gaps) < MIN_GAP:
            ties.append((min(gaps), text))
        entry = {"prompt": text, "prompt_token_ids": prompt, "token_ids": tokens, "gaps": gaps}
        lines.append(json.dumps(entry, ensure_ascii=False))
        print(f"{len(prompt):5d} tokens, gap {min(gaps):.3f}: {text[:40]!r}", flush=True)
    if ties:
        raise SystemExit("\n".join(["near-ties; change these prompts:", *map(str, ties)]))
    body = ",\n".join(lines)
    (DATA / "smollm2_greedy.json").write_text(f"[\n{body}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
