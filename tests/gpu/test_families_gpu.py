"""Every family on a CUDA device: the tokens of transformers in float32, eager and by graphs."""

from __future__ import annotations

import pytest
import torch
import transformers

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
from octavo import LLM, SamplingParams  # noqa: E402
from support.tiny_models import FAMILIES, save_tiny  # noqa: E402
from support.transformers_models import ARCHITECTURES  # noqa: E402

ALIBI = ("mpt", "bloom")
BACKEND = ("olmo", "cwm", "qwen3_moe", "deepseek_v3", "gpt_bigcode")
NUM_TOKENS = 32
# Logits that are nearer to each other than this may change places.
NEAR = 1e-3
PROMPTS = [[2 + (7 * n + i * i) % 200 for i in range(n)] for n in (3, 20, 33, 64, 130)]


def check(model, folder, **options) -> None:
    llm = LLM(
        str(folder),
        dtype="float32",
        skip_tokenizer_init=True,
        max_model_len=256,
        max_num_seqs=8,
        gpu_memory_utilization=0.1,
        **options,
    )
    params = SamplingParams(
        temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True, detokenize=False
    )
    outputs = llm.generate([{"prompt_token_ids": p} for p in PROMPTS], params, use_tqdm=False)
    llm.shutdown()
    model = model.cuda()
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        made = list(output.outputs[0].token_ids)
        with torch.inference_mode():
            ids = torch.tensor([prompt + made[:-1]], device="cuda")
            logits = model(ids, use_cache=False).logits[0, len(prompt) - 1 :].float()
        chosen = logits.gather(1, torch.tensor(made, device="cuda")[:, None])[:, 0]
        assert (logits.amax(-1) - chosen).max().item() <= NEAR


@pytest.mark.parametrize("eager", [True, False], ids=["eager", "graphs"])
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in ALIBI])
def test_own_classes(tmp_path, name, eager):
    options = {"max_num_batched_tokens": 64, "enforce_eager": eager}
    check(save_tiny(name, tmp_path), tmp_path, **options)


@pytest.mark.parametrize("name", ALIBI)
def test_biases_by_distance(tmp_path, name):
    options = {"attention_backend": "torch_sdpa", "enforce_eager": True}
    check(save_tiny(name, tmp_path), tmp_path, **options)


@pytest.mark.parametrize("name", BACKEND)
def test_transformers_backend(tmp_path, name):
    torch.manual_seed(1)
    config = transformers.CONFIG_MAPPING[name](**ARCHITECTURES[name])
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.save_pretrained(tmp_path)
    check(model, tmp_path, max_num_batched_tokens=64)
