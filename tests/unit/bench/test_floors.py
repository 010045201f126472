"""Floors against those worked out by hand for an H200."""

import json

import pytest

from octavo.bench.floors import Hardware, ModelCost, find_hardware, floors
from octavo.bench.rungs import parse_rung
from octavo.config.engine_args import EngineArgs
from octavo.types.platform_info import PlatformInfo

H200 = PlatformInfo(
    device_type="cuda",
    device_name="NVIDIA H200",
    total_memory=139 << 30,
    free_memory=139 << 30,
    num_cpus=16,
    capability=(9, 0),
)
QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "torch_dtype": "bfloat16",
    "vocab_size": 151936,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
}
SHAPES = {
    "8b": (4096, 36, 32, 12288, False),
    "0.6b": (1024, 28, 16, 3072, True),
}
# As in the table that the ladder is judged by, two digits or three.
EXPECTED = {
    ("8b", "decode:1x256/128", "time per token"): 3.4,
    ("8b", "decode:32x256/128", "time per token"): 3.7,
    ("8b", "decode:256x256/128", "time per token"): 6.1,
    ("8b", "decode:1x32768+31x512/256", "time per token"): 5.1,
    ("8b", "decode:32x8192/128", "time per token"): 12.1,
    ("8b", "batch:256x100-1024/100-1024", "output"): 14_000,
    ("8b", "prefill:1x1024", "time"): 18,
    ("8b", "prefill:1x8192", "time"): 170,
    ("8b", "prefill:1x32768", "time"): 978,
    ("8b", "prefill:400x1024", "input"): 55_000,
    ("0.6b", "decode:1x256/128", "time per token"): 0.27,
    ("0.6b", "decode:32x256/128", "time per token"): 0.53,
    ("0.6b", "decode:256x256/128", "time per token"): 2.4,
    ("0.6b", "batch:256x100-1024/100-1024", "output"): 37_600,
}


@pytest.fixture(scope="module")
def costs(tmp_path_factory):
    found = {}
    for name, (hidden, layers, heads, inner, tied) in SHAPES.items():
        folder = tmp_path_factory.mktemp(name)
        config = QWEN3 | {
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "tie_word_embeddings": tied,
        }
        (folder / "config.json").write_text(json.dumps(config))
        args = EngineArgs(model=str(folder), load_format="dummy", skip_tokenizer_init=True)
        found[name] = ModelCost(args.create_engine_config(H200))
    return found


@pytest.mark.parametrize("case", EXPECTED)
def test_floors_of_an_h200(costs, case):
    model, word, figure = case
    bound = floors(parse_rung(word), costs[model], find_hardware("NVIDIA H200", None, None))
    assert bound[figure] == pytest.approx(EXPECTED[case], rel=0.045)


def test_a_stream_served_alone_is_bounded_like_its_steps(costs):
    hardware = Hardware(4476e9, 790e12)
    served = floors(parse_rung("serve:1x512/128"), costs["8b"], hardware)
    decode = floors(parse_rung("decode:1x512/128"), costs["8b"], hardware)
    assert served["TPOT median"] == pytest.approx(decode["time per token"])
    assert served["TTFT mean"] == pytest.approx(9.3, rel=0.1)
    assert "TTFT mean" not in floors(parse_rung("serve:64x1024/256"), costs["8b"], hardware)


def test_a_shared_prefix_is_computed_and_read_once(costs):
    hardware = Hardware(4476e9, 790e12)
    shared = floors(parse_rung("prefix:8192+128x64/64"), costs["8b"], hardware)["time"]
    alone = 128 * 64 / floors(parse_rung("batch:128x8256/64"), costs["8b"], hardware)["output"]
    assert shared < alone / 20
    assert floors(parse_rung("start:cold"), costs["8b"], hardware) == {}


def test_windows_bound_what_is_read(costs):
    cost = costs["8b"]
    cost_of_window = ModelCost.__new__(ModelCost)
    vars(cost_of_window).update(vars(cost), _windows=[100] * 36)
    assert cost_of_window.kv_read(5000) == cost.kv_read(100)
    assert cost_of_window.kv_read(50) == cost.kv_read(50)
    # Attention over 1,000 tokens with a window of 100: 100 * 101 / 2 + 900 * 100 pairs a layer.
    pairs = (cost_of_window.prefill_flops(1000) - cost_of_window.prefill_flops(0)) - (
        cost._token_flops * 1000
    )
    assert pairs == cost._attention_flops * 36 * (5050 + 90_000)


def test_unknown_hardware_needs_both_numbers():
    assert find_hardware("AMD EPYC", None, None) is None
    assert find_hardware("AMD EPYC", 20.0, None) is None
    assert find_hardware("AMD EPYC", 20.0, 0.1) == Hardware(20e9, 1e11)
    assert find_hardware("NVIDIA H200", 4000.0, None) == Hardware(4e12, 790e12)
