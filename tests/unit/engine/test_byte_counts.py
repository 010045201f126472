"""Bytes of parts against shapes worked out by hand."""

from __future__ import annotations

import pytest

from octavo.config.engine_options import EngineOptions
from octavo.config.graph_shapes import mixed_shapes
from octavo.config.kv_specs import kv_cache_specs
from octavo.config.resolve import ModelFacts, resolve
from octavo.core.kv.planning import group_layers
from octavo.engine import byte_counts
from octavo.engine.byte_counts import tensor_shapes, weight_bytes
from octavo.types.platform_info import PlatformInfo

GIB = 1 << 30
CPU = PlatformInfo("cpu", "a CPU", 32 * GIB, 24 * GIB)
H200 = PlatformInfo("cuda", "NVIDIA H200", 140 * GIB, 139 * GIB, capability=(9, 0))
TINY = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 256,
    "tie_word_embeddings": True,
}


class Shape:
    def __init__(self, *shape, dtype="F32"):
        self.shape = shape
        self.dtype = dtype


def configure(hf_config, platform, **options):
    facts = ModelFacts(hf_config=hf_config)
    return resolve(EngineOptions(**options), platform, "server", facts=facts)


def test_headers_decide_the_weights():
    config = configure(TINY, CPU)
    headers = {name: Shape(*shape) for name, shape in tensor_shapes(config.model.arch)}
    assert weight_bytes(config, headers) == weight_bytes(config)
    headers["model.embed_tokens.weight"] = Shape(512, 64)
    headers["lm_head.weight"] = Shape(512, 64)  # tied: the file's copy is not loaded
    headers["model.layers.0.self_attn.rotary_emb.inv_freq"] = Shape(8)  # computed
    changed = weight_bytes(config, headers)
    assert changed["token embedding"] == 4 * 512 * 64
    assert changed["output layer"] == 4 * 512 * 64  # a CPU repacks the tied weight
    assert changed["attention layers"] == weight_bytes(config)["attention layers"]


def test_biases_and_an_untied_output_count():
    qwen2 = TINY | {"architectures": ["Qwen2ForCausalLM"], "tie_word_embeddings": False}
    plain, biased = configure(TINY, CPU), configure(qwen2, CPU)
    more = sum(weight_bytes(biased).values()) - sum(weight_bytes(plain).values())
    # The output layer is counted for both: a CPU repacks a tied weight.
    assert more == 4 * 2 * (64 + 32 + 32)


def test_tied_weights_are_one_on_a_gpu_and_two_on_a_cpu_in_float32():
    assert weight_bytes(configure(TINY, CPU))["output layer"] == 4 * 256 * 64
    assert weight_bytes(configure(TINY, CPU, dtype="bfloat16"))["output layer"] == 0
    assert weight_bytes(configure(TINY, H200))["output layer"] == 0
    untied = TINY | {"tie_word_embeddings": False}
    assert weight_bytes(configure(untied, H200))["output layer"] == 2 * 256 * 64


def test_vocabularies_are_padded():
    odd = configure(TINY | {"vocab_size": 250}, H200)
    assert weight_bytes(odd)["token embedding"] == 2 * 256 * 64


def test_qk_norms_are_norms():
    qwen3 = TINY | {"architectures": ["Qwen3ForCausalLM"], "head_dim": 16}
    plain, normed = weight_bytes(configure(TINY, CPU)), weight_bytes(configure(qwen3, CPU))
    assert normed["norms"] - plain["norms"] == 4 * 2 * 2 * 16


def test_activations_follow_the_widest_part_of_a_layer():
    config = configure(TINY, CPU, max_num_batched_tokens=1000, max_num_seqs=8)
    # The layer's input, the residual and its normalized copy; then gate, up and their product.
    assert byte_counts.activation_bytes(config) == 4 * 1000 * (3 * 64 + 3 * 128)
    # Of the MLP its inner vectors and its output.
    narrow = configure(TINY | {"intermediate_size": 16, "head_dim": 4}, CPU)
    assert byte_counts.activation_bytes(narrow, 10) == 4 * 10 * (4 * 64 + 16)
    # Four query vectors, keys and values: 4 x 128 + 2 x 64 > 64 + 3 x 128.
    wide = configure(TINY | {"head_dim": 32}, CPU)
    assert byte_counts.activation_bytes(wide, 10) == 4 * 10 * (2 * 64 + 4 * 128 + 2 * 64)


def test_logits_and_tables():
    config = configure(TINY, CPU, max_num_seqs=8, max_model_len=100)
    # Two copies of 8 rows and what logprobs of 8 rows take.
    assert byte_counts.logits_bytes(config) == (2 * 8 + 4 * 8) * 256 * 4
    assert byte_counts.logits_bytes(configure(TINY, CPU, max_num_seqs=200)) == 4 * 200 * 256 * 4
    assert byte_counts.logits_bytes(configure(TINY, H200, max_num_seqs=8)) == 3 * 8 * 256 * 4
    assert byte_counts.rotary_bytes(config) == 100 * 16 * 4
    groups = group_layers(kv_cache_specs(config))
    assert byte_counts.table_bytes(config, groups) == 17 * (2 + 7) * 4


def test_attention_on_a_cpu_is_bounded_by_the_requests_and_by_the_limits():
    few = configure(TINY, CPU, max_num_seqs=2, max_num_batched_tokens=16)
    key_bytes = 2 * 2 * 16 * 4
    # Of two requests' keys, with room to grow: the keys themselves and a score of 4 heads.
    assert byte_counts.attention_bytes(few) == 3 * 256 * (key_bytes + 16) + 16 * 256 * 4
    long = configure(TINY | {"max_position_embeddings": 10**6}, CPU)
    assert byte_counts.attention_bytes(long) == 10**6 * (key_bytes + 16) + (64 << 20)


def test_sampling_and_attention_on_a_gpu():
    config = configure(TINY, H200, max_num_seqs=100)
    # Two steps in flight: a row for each of 200 slots.
    assert byte_counts.sampling_bytes(config) == 256 * 256 * 5
    # 256 keys of a request are 4 tiles; a record of 4 numbers and 64 / 16 blocks describes one.
    partials, tiles = (100 + 256) * 2 * 16 * 16 * 4, 100 * 4 * (4 + 4) * 4
    assert byte_counts.attention_bytes(config) == partials + tiles
    assert byte_counts.blas_bytes(config) == 64 << 20
    assert byte_counts.blas_bytes(configure(TINY, CPU)) == 0


@pytest.mark.parametrize("sizes", [[1], [1, 2, 4]])
def test_graphs_share_the_memory_of_the_largest(sizes):
    config = configure(TINY, H200, cudagraph_capture_sizes=sizes)
    mixed = mixed_shapes(config.scheduler.max_num_seqs, config.scheduler.max_num_batched_tokens)
    tokens = [*sizes, *sizes, *sizes, *(tokens for _, tokens in mixed)]
    shared = byte_counts.activation_bytes(config, 1024) + 3 * max(sizes) * 256 * 4
    kept = sum(tokens) * 64 * 2
    launches = len(tokens) * 2 * byte_counts.LAUNCHES_PER_LAYER
    driver = byte_counts.FIRST_GRAPH_BYTES + launches * byte_counts.GRAPH_NODE_BYTES
    assert byte_counts.graph_bytes(config) == shared + kept + driver
    assert byte_counts.graph_bytes(configure(TINY, CPU)) == 0
