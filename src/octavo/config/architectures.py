"""ModelArch: the facts of a model that everything else is sized by, read from its config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from octavo.config import hf
from octavo.config.convert import nearest
from octavo.types.errors import ConfigError
from octavo.types.kv_spec import DTYPE_BYTES

FULL_ATTENTION = "full_attention"
SLIDING_ATTENTION = "sliding_attention"


@dataclass(frozen=True, kw_only=True)
class RopeKind:
    """A rotary scaling: the entries it needs, and whether it lengthens the model's limit.

    `lengthens` is "" (max_position_embeddings already counts it), "factor" (times factor) or
    "original" (original_max_position_embeddings times factor).
    """

    required: tuple[str, ...]
    lengthens: str = ""


# As in transformers' modeling_rope_utils.
ROPE_KINDS = {
    "linear": RopeKind(required=("factor",), lengthens="factor"),
    "dynamic": RopeKind(required=("factor",), lengthens="factor"),
    "yarn": RopeKind(required=("factor",), lengthens="original"),
    "llama3": RopeKind(
        required=(
            "factor",
            "low_freq_factor",
            "high_freq_factor",
            "original_max_position_embeddings",
        )
    ),
}


@dataclass(frozen=True, kw_only=True)
class Family:
    """What an architecture fixes, and its defaults for entries a config leaves out."""

    qkv_bias: bool | None  # None: the config's attention_bias
    o_bias: bool | None
    mlp_bias: bool | None  # None: the config's mlp_bias
    qk_norm: bool
    window: str  # "never", "always" (if sliding_window is set) or "if_used" (use_sliding_window)
    max_position_embeddings: int
    sliding_window: int | None = None
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    head_dim: int | None = None  # None: hidden_size / heads


FAMILIES = {
    "LlamaForCausalLM": Family(
        qkv_bias=None,
        o_bias=None,
        mlp_bias=None,
        qk_norm=False,
        window="never",
        max_position_embeddings=2048,
    ),
    "MistralForCausalLM": Family(
        qkv_bias=False,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        window="always",
        max_position_embeddings=131072,
        sliding_window=4096,
    ),
    "Qwen2ForCausalLM": Family(
        qkv_bias=True,
        o_bias=False,
        mlp_bias=False,
        qk_norm=False,
        window="if_used",
        max_position_embeddings=32768,
    ),
    "Qwen3ForCausalLM": Family(
        qkv_bias=None,
        o_bias=None,
        mlp_bias=False,
        qk_norm=True,
        window="if_used",
        max_position_embeddings=32768,
        head_dim=128,
    ),
}


@dataclass(frozen=True, kw_only=True)
class ModelArch:
    """A decoder-only model's shape. Sizes are numbers of elements."""

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    max_position_embeddings: int
    rope_theta: float
    rope_scaling: dict[str, Any] | None
    rms_norm_eps: float
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    sliding_window: int | None  # tokens, the current one included; of the sliding layers
    layer_types: tuple[str, ...]  # per layer: FULL_ATTENTION or SLIDING_ATTENTION
    hidden_act: str
    dtype: str  # the checkpoint's
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None

    @property
    def max_model_len(self) -> int:
        """Longest sequence the model's positions allow, rotary scaling counted."""
        if self.rope_scaling is None:
            return self.max_position_embeddings
        lengthens = ROPE_KINDS[self.rope_scaling["rope_type"]].lengthens
        base = self.max_position_embeddings
        if not lengthens:
            return base
        if lengthens == "original":
            base = self.rope_scaling.get("original_max_position_embeddings") or base
        return int(base * self.rope_scaling["factor"])


def model_arch(hf_config: Mapping[str, Any]) -> ModelArch:
    """Read a config.json. Raises ConfigError naming the entry that is missing or wrong."""
    name = _architecture(hf_config)
    family = FAMILIES[name]
    read = _Reader(hf_config)
    hidden_size = read.size("hidden_size")
    num_heads = read.size("num_attention_heads")
    num_kv_heads = read.size("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise ConfigError(
            f"num_attention_heads={num_heads} in the model's config is not a multiple of "
            f"num_key_value_heads={num_kv_heads}"
        )
    head_size = read.size("head_dim", family.head_dim or hidden_size // num_heads)
    num_layers = read.size("num_hidden_layers")
    attention_bias = read.flag("attention_bias")
    mlp_bias = read.flag("mlp_bias")
    theta, scaling = hf.rope_parameters(hf_config, family.rope_theta)
    window, layer_types = _windows(read, family, num_layers)
    bos_ids = hf.token_ids(hf_config.get("bos_token_id"), "bos_token_id")
    return ModelArch(
        architecture=name,
        hidden_size=hidden_size,
        intermediate_size=read.size("intermediate_size"),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        vocab_size=read.size("vocab_size"),
        max_position_embeddings=read.size(
            "max_position_embeddings", family.max_position_embeddings
        ),
        rope_theta=theta,
        rope_scaling=_check_rope(scaling),
        rms_norm_eps=read.number("rms_norm_eps", family.rms_norm_eps),
        tie_word_embeddings=read.flag("tie_word_embeddings"),
        qkv_bias=attention_bias if family.qkv_bias is None else family.qkv_bias,
        o_bias=attention_bias if family.o_bias is None else family.o_bias,
        mlp_bias=mlp_bias if family.mlp_bias is None else family.mlp_bias,
        qk_norm=family.qk_norm,
        sliding_window=window,
        layer_types=layer_types,
        hidden_act=read.only("hidden_act", "silu"),
        dtype=_check_dtype(hf.checkpoint_dtype(hf_config)),
        eos_token_ids=hf.token_ids(hf_config.get("eos_token_id"), "eos_token_id"),
        bos_token_id=bos_ids[0] if bos_ids else None,
    )


class _Reader:
    """Typed look-ups with errors that name the entry."""

    def __init__(self, hf_config: Mapping[str, Any]) -> None:
        self._config = hf_config

    def size(self, key: str, default: int | None = None) -> int:
        value = self._config.get(key)
        value = default if value is None else value
        if value is None:
            raise ConfigError(f"the model's config lacks {key!r}; is its config.json complete?")
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{key}={value!r} in the model's config: expected a whole number > 0")
        return value

    def number(self, key: str, default: float) -> float:
        value = self._config.get(key)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise ConfigError(f"{key}={value!r} in the model's config: expected a number > 0")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._config.get(key, False)
        if not isinstance(value, bool):
            raise ConfigError(f"{key}={value!r} in the model's config: expected true or false")
        return value

    def only(self, key: str, supported: str) -> str:
        value = self._config.get(key) or supported
        if value != supported:
            raise ConfigError(
                f"{key}={value!r} in the model's config is not supported; only {supported!r} is"
            )
        return supported

    def raw(self, key: str) -> Any:
        return self._config.get(key)


def _architecture(hf_config: Mapping[str, Any]) -> str:
    names = hf_config.get("architectures") or []
    for name in names:
        if name in FAMILIES:
            return str(name)
    what = ", ".join(map(str, names)) or "no architecture"
    guess = nearest(str(names[0]), FAMILIES) if names else ""
    raise ConfigError(
        f"the model's config names {what}; supported are {', '.join(FAMILIES)}{guess}"
    )


def _windows(read: _Reader, family: Family, num_layers: int) -> tuple[int | None, tuple[str, ...]]:
    """(window, kind of each layer)."""
    window = None
    if family.window == "always":
        raw = read.raw("sliding_window")
        window = read.size("sliding_window") if raw is not None else None
    elif family.window == "if_used" and read.flag("use_sliding_window"):
        window = read.size("sliding_window", family.sliding_window)
    listed = read.raw("layer_types")
    if listed is not None:
        return _listed_windows(tuple(listed), window, num_layers)
    if window is None:
        return None, (FULL_ATTENTION,) * num_layers
    # Qwen: the first max_window_layers layers see everything. Mistral: every layer slides.
    first = read.size("max_window_layers", num_layers) if family.window == "if_used" else 0
    first = min(first, num_layers)
    kinds = (FULL_ATTENTION,) * first + (SLIDING_ATTENTION,) * (num_layers - first)
    return (window if SLIDING_ATTENTION in kinds else None), kinds


def _listed_windows(
    kinds: tuple[str, ...], window: int | None, num_layers: int
) -> tuple[int | None, tuple[str, ...]]:
    if len(kinds) != num_layers:
        raise ConfigError(
            f"layer_types in the model's config has {len(kinds)} entries for "
            f"num_hidden_layers={num_layers}"
        )
    unknown = sorted(set(kinds) - {FULL_ATTENTION, SLIDING_ATTENTION})
    if unknown:
        raise ConfigError(
            f"layer_types in the model's config has {unknown[0]!r}; supported are "
            f"{FULL_ATTENTION!r} and {SLIDING_ATTENTION!r}"
        )
    if SLIDING_ATTENTION not in kinds:
        return None, kinds
    if window is None:
        raise ConfigError("layer_types in the model's config has sliding layers but no window")
    return window, kinds


def _check_rope(scaling: dict[str, Any] | None) -> dict[str, Any] | None:
    if scaling is None:
        return None
    kind = scaling["rope_type"]
    if kind not in ROPE_KINDS:
        raise ConfigError(
            f"rope_type={kind!r} in the model's config is not supported; there are: default, "
            f"{', '.join(ROPE_KINDS)}"
        )
    for key in ROPE_KINDS[kind].required:
        if not isinstance(scaling.get(key), int | float):
            raise ConfigError(f"rope_type={kind!r} in the model's config needs {key!r}")
    return scaling


def _check_dtype(dtype: str) -> str:
    if dtype not in DTYPE_BYTES:
        raise ConfigError(
            f"dtype={dtype!r} in the model's config; there are: {', '.join(DTYPE_BYTES)}"
        )
    return dtype
