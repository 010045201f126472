"""Traces on a CUDA device: kernels find their steps, also when a graph launched them."""

from __future__ import annotations

import pytest
import torch

from octavo.bench.trace import TraceOptions, record
from octavo.bench.trace_steps import sort_into_steps
from octavo.bench.trace_tables import kernel_table, step_figures
from octavo.config.engine_args import EngineArgs
from octavo.engine.llm_engine import LLMEngine
from octavo.utils.chrome_trace import ChromeTrace
from support.tiny import write

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("model")
    write(
        made / "config.json",
        architectures=["Qwen3ForCausalLM"],
        model_type="qwen3",
        torch_dtype="bfloat16",
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        vocab_size=32000,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        tie_word_embeddings=True,
        hidden_act="silu",
    )
    return made


@pytest.mark.parametrize(
    ("case", "eager"), [("decode", False), ("decode", True), ("prefill", True)]
)
def test_kernels_are_those_of_their_steps(folder, tmp_path, case, eager):
    args = EngineArgs(
        model=str(folder), load_format="dummy", skip_tokenizer_init=True, max_num_seqs=16,
        max_model_len=2048, gpu_memory_utilization=0.3, enforce_eager=eager,
    )  # fmt: skip
    engine = LLMEngine.from_engine_args(args)
    try:
        options = TraceOptions(case=case, batch=16, input_len=128, output_dir=str(tmp_path))
        path, _ = record(engine, options)
    finally:
        engine.shutdown()
    events = ChromeTrace.load(path).events
    steps = [step for step in sort_into_steps(events) if step.kind == case]
    assert len(steps) >= (3 if case == "prefill" else 25)
    # Every kernel of the window belongs to a step, and steps of one shape have the same kernels.
    kernels = [event for event in events if event.category == "kernel"]
    inside = sum(len([e for e in s.work if e.category == "kernel"]) for s in steps)
    assert inside >= 0.7 * len(kernels)
    if case == "decode":
        counts = {len([e for e in s.work if e.category == "kernel"]) for s in steps[2:-2]}
        assert len(counts) == 1
        assert counts.pop() > 8 * 5  # layers, launches
        figures = step_figures(steps, "decode")
        assert 0 <= figures.gap_mean_ms < figures.period_ms
        assert figures.busy_ms <= figures.device_ms * 1.001
        assert 0 < figures.host_share < 3
    for step in steps:
        # One clock: no kernel begins before its launch does.
        assert step.computing[0] >= step.spans["launch"].begin - 20_000
    assert kernel_table(steps)[0].share < 0.9
