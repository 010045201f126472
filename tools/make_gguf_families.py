"""tests/support/data/gguf_families: tiny models as llama.cpp's converter writes them.

python tools/make_gguf_families.py LLAMA_CPP          # a checkout of llama.cpp
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path

from safetensors.numpy import load_file, save_file

ROOT = Path(__file__).resolve().parent.parent
LLAMA_CPP = sys.argv[1] if len(sys.argv) > 1 else "."
sys.path[:0] = [LLAMA_CPP, f"{LLAMA_CPP}/gguf-py", str(ROOT / "src"), str(ROOT / "tests")]

from conversion import ModelBase, get_model_class  # type: ignore[import-not-found]  # noqa: E402
from gguf import LlamaFileType  # noqa: E402

from support.gguf_families import DATA, FAMILIES, weight  # noqa: E402
from support.tiny_models import save_tiny  # noqa: E402

SMALL = {
    "vocab_size": 12,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "max_position_embeddings": 16,
}
# Sizes that the families' tests have for themselves.
LAYERS = {"olmo3": 5, "cohere2": 4, "exaone4": 4, "exaone4-full": 3}
SEVERAL_HEADS = {"gpt2", "gpt-neox", "gpt-neox-sequential", "bloom", "mpt"}


def _convert(family: str, folder: Path, target: Path) -> dict:
    """Make a model, convert it; returns its config."""
    changes = SMALL | {"num_hidden_layers": LAYERS.get(family, 2)}
    if family in SEVERAL_HEADS:
        changes["num_key_value_heads"] = 2
    save_tiny(family, folder, **changes)
    path = folder / "model.safetensors"
    tensors = {name: weight(name, array.shape) for name, array in load_file(path).items()}
    save_file(tensors, path)
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_parameters") or {}
    older = {
        "n_ctx": config.get("n_positions"),
        "rotary_pct": rope.get("partial_rotary_factor", 1.0),
        "activation_function": "silu" if family == "exaone" else None,
    }
    name = config["architectures"][0].replace("MptFor", "MPTFor")
    model = get_model_class(name)(folder, LlamaFileType.MOSTLY_F16, target, eager=True)
    model.hparams = ModelBase.load_hparams(folder, False) | {
        key: value for key, value in (older | config).items() if value is not None
    }
    model.set_vocab = lambda: None
    model.write()
    return config


def main() -> None:
    """Rewrite the data."""
    DATA.mkdir(parents=True, exist_ok=True)
    configs = {}
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "m.gguf"
            source = Path(folder) / "source"
            source.mkdir()
            configs[family] = _convert(family, source, target)
            packed = gzip.compress(target.read_bytes(), 9, mtime=0)
            (DATA / f"{family}.gguf.gz").write_bytes(packed)
    (DATA / "configs.json").write_text(json.dumps(configs, indent=1))


if __name__ == "__main__":
    main()
