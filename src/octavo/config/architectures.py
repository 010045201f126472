"""ModelArch: the facts of a model that everything else is sized by, read from its config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from octavo.config import hf
from octavo.config.convert import nearest
from octavo.config.encoder_families import ENCODERS
from octavo.config.families import FAMILIES, Family
from octavo.config.rope import Rope, read_rope
from octavo.types.errors import ConfigError
from octavo.types.kv_spec import DTYPE_BYTES
from octavo.utils.registry import Registry

FULL_ATTENTION = "full_attention"
SLIDING_ATTENTION = "sliding_attention"
TRANSFORMERS_MODEL = "TransformersForCausalLM"  # the architecture of the Transformers backend


@dataclass(frozen=True, kw_only=True)
class ModelArch:
    """A decoder's or an encoder's shape. Sizes are numbers of elements."""

    architecture: str
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    vocab_size: int
    max_position_embeddings: int
    rope: Rope
    sliding_rope: Rope  # of the sliding layers
    rotates: tuple[bool, ...]  # per layer: whether queries and keys are rotated
    norm_eps: float
    tie_word_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    gated_mlp: bool
    qk_norm: bool
    attention_scale: float  # scores are q . k times this
    attention_soft_cap: float | None  # scores become cap * tanh(scores / cap)
    logits_soft_cap: float | None
    alibi: bool  # scores have a bias that grows with the distance
    # Tokens that the sliding layers see, of an encoder on each side; the current one included.
    sliding_window: int | None
    layer_types: tuple[str, ...]  # per layer: FULL_ATTENTION or SLIDING_ATTENTION
    hidden_act: str
    dtype: str  # the checkpoint's
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None
    max_model_len: int  # longest sequence the model's positions allow, rotary scaling counted
    is_encoder: bool = False  # tokens see the whole text, and nothing is kept in a cache

    def window(self, layer: int) -> int | None:
        """The tokens that queries of a layer see, the current one included; None: all."""
        return self.sliding_window if self.layer_types[layer] == SLIDING_ATTENTION else None


# Imported when a config needs it: transformers is large.
_FALLBACK: Registry[Callable[[Mapping[str, Any], Path | None], ModelArch]] = Registry(
    "reader of configs", {"transformers": "octavo.models.transformers_arch:transformers_arch"}
)


def model_arch(
    hf_config: Mapping[str, Any], model_impl: str = "auto", code: Path | None = None
) -> ModelArch:
    """Read a config.json.

    `model_impl`: "octavo" or "vllm" for octavo's own classes alone, "transformers" for the
    Transformers backend, "auto" for the former where there is one. `code` is the folder whose
    Python files the backend may run, or None. Raises ConfigError naming the
    entry that is missing, wrong or not supported.
    """
    name = own_architecture(hf_config)
    if model_impl == "transformers" or (model_impl == "auto" and name is None):
        return _transformers_reader(hf_config)(hf_config, code)
    if name is None:
        raise unknown_architecture(hf_config)
    return _own_arch(hf_config, name, FAMILIES[name])


def _transformers_reader(
    hf_config: Mapping[str, Any],
) -> Callable[[Mapping[str, Any], Path | None], ModelArch]:
    try:
        return _FALLBACK.get("transformers")
    except ImportError as error:
        raise ConfigError(
            f"{unknown_architecture(hf_config)}; the latter needs the package transformers: "
            "pip install transformers"
        ) from error


def encoder_arch(hf_config: Mapping[str, Any], name: str) -> ModelArch:
    """Read the config.json of the encoder `name`, a key of ENCODERS. Raises ConfigError."""
    arch = _own_arch(hf_config, name, ENCODERS[name])
    # Positions of padding come first in the table.
    offset = ENCODERS[name].defaults.get("pad_token_id")
    padding = hf_config.get("pad_token_id", offset)
    unused = 0 if offset is None else int(offset if padding is None else padding) + 1
    length = arch.max_position_embeddings - unused
    window = arch.sliding_window
    if window is not None:
        window = window // 2 + 1  # encoders' configs count both sides
    return replace(
        arch,
        is_encoder=True,
        tie_word_embeddings=True,
        max_model_len=length,
        sliding_window=window,
    )


def _own_arch(hf_config: Mapping[str, Any], name: str, family: Family) -> ModelArch:
    read = ConfigReader(hf_config, family)
    for key, values in family.only.items():
        read.only(key, values)
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
    inner = None if family.inner_factor is None else hidden_size * family.inner_factor
    window, layer_types = _windows(read, family, num_layers)
    rope, sliding_rope = _ropes(read, family)
    max_positions = read.size("max_position_embeddings")
    scale = head_size**-0.5
    if family.scale_entry is not None:
        scale = read.number(family.scale_entry) ** family.scale_power
    bos_ids = hf.token_ids(read.raw("bos_token_id"), "bos_token_id")
    return ModelArch(
        architecture=name,
        hidden_size=hidden_size,
        intermediate_size=read.size("intermediate_size", inner),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        vocab_size=read.size("vocab_size"),
        max_position_embeddings=max_positions,
        rope=rope,
        sliding_rope=sliding_rope,
        rotates=_rotates(read, family, window, layer_types),
        norm_eps=read.number("rms_norm_eps", 1e-6),
        tie_word_embeddings=read.flag("tie_word_embeddings"),
        qkv_bias=_bias(read, family.qkv_bias),
        o_bias=_bias(read, family.o_bias),
        mlp_bias=_bias(read, family.mlp_bias),
        gated_mlp=family.gated_mlp,
        qk_norm=family.qk_norm,
        attention_scale=scale,
        attention_soft_cap=read.optional_number("attn_logit_softcapping"),
        logits_soft_cap=read.optional_number("final_logit_softcapping"),
        alibi=family.alibi,
        sliding_window=window,
        layer_types=layer_types,
        hidden_act=read.one_of("hidden_act", family.activations),
        dtype=check_dtype(hf.checkpoint_dtype(hf_config)),
        eos_token_ids=hf.token_ids(read.raw("eos_token_id"), "eos_token_id"),
        bos_token_id=bos_ids[0] if bos_ids else None,
        max_model_len=max_positions if family.counts_scaling else rope.lengthened(max_positions),
    )


def own_architecture(hf_config: Mapping[str, Any]) -> str | None:
    """The first architecture of a config that is in FAMILIES."""
    names = hf_config.get("architectures") or []
    return next((str(name) for name in names if name in FAMILIES), None)


def unknown_architecture(hf_config: Mapping[str, Any]) -> ConfigError:
    """The error for a config that no model class reads."""
    names = hf_config.get("architectures") or []
    what = ", ".join(map(str, names)) or "no architecture"
    guess = nearest(str(names[0]), FAMILIES) if names else ""
    return ConfigError(
        f"the model's config names {what}; supported are {', '.join(FAMILIES)}, and what the "
        f"Transformers backend runs{guess}"
    )


class ConfigReader:
    """Typed look-ups under a family's names, with errors that name the entry."""

    def __init__(self, hf_config: Mapping[str, Any], family: Family) -> None:
        self._config = hf_config
        self._names = family.names
        self._defaults = family.defaults

    def size(self, key: str, default: int | None = None) -> int:
        """A whole number above 0."""
        value = self.raw(key)
        value = default if value is None else value
        if value is None:
            raise ConfigError(
                f"the model's config lacks {self._name(key)!r}; is its config.json complete?"
            )
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(
                f"{self._name(key)}={value!r} in the model's config: expected a whole number > 0"
            )
        return value

    def count(self, key: str) -> int:
        """A whole number, 0 or above."""
        return 0 if self.raw(key) == 0 else self.size(key)

    def number(self, key: str, default: float | None = None) -> float:
        """A number above 0."""
        value = self.raw(key)
        value = default if value is None else value
        if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
            raise ConfigError(
                f"{self._name(key)}={value!r} in the model's config: expected a number > 0"
            )
        return float(value)

    def optional_number(self, key: str) -> float | None:
        """A number above 0, or None."""
        return None if self.raw(key) is None else self.number(key)

    def flag(self, key: str) -> bool:
        """True or false; false if it is left out."""
        value = self.raw(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise ConfigError(
                f"{self._name(key)}={value!r} in the model's config: expected true or false"
            )
        return value

    def one_of(self, key: str, supported: tuple[str, ...]) -> str:
        """One of the values, the first if it is left out."""
        value = self.raw(key) or supported[0]
        if value not in supported:
            raise ConfigError(
                f"{self._name(key)}={value!r} in the model's config is not supported; only "
                f"{', '.join(map(repr, supported))} {'are' if len(supported) > 1 else 'is'}"
            )
        return str(value)

    def only(self, key: str, supported: tuple[Any, ...]) -> None:
        """Raise ConfigError for another value."""
        value = self._config.get(key)
        if value not in supported:
            raise ConfigError(
                f"{key}={value!r} in the model's config is not supported by octavo's own class; "
                "try --model-impl transformers"
            )

    def raw(self, key: str) -> Any:
        """What the config says, else the family's default, else None."""
        name = self._name(key)
        return self._config[name] if name in self._config else self._defaults.get(name)

    def renamed(self, *keys: str) -> dict[str, Any]:
        """The config with the values of some entries under the names octavo knows."""
        values = {key: value for key in keys if (value := self.raw(key)) is not None}
        return {**self._config, **values}

    def _name(self, key: str) -> str:
        return self._names.get(key, key)


def check_dtype(dtype: str) -> str:
    """The checkpoint's dtype; ConfigError if weights can't have it."""
    if dtype not in DTYPE_BYTES:
        raise ConfigError(
            f"dtype={dtype!r} in the model's config; there are: {', '.join(DTYPE_BYTES)}"
        )
    return dtype


def check_layer_types(
    kinds: tuple[str, ...], window: int | None, num_layers: int
) -> tuple[int | None, tuple[str, ...]]:
    """(window, kinds) of a config's layer_types, the window None if no layer slides."""
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


def _bias(read: ConfigReader, bias: bool | str) -> bool:
    return read.flag(bias) if isinstance(bias, str) else bias


def _ropes(read: ConfigReader, family: Family) -> tuple[Rope, Rope]:
    """(of full attention, of sliding layers)."""
    config = read.renamed("rope_theta", "partial_rotary_factor")
    partial = family.partial_rotary_factor
    if not family.ropes_by_layer_type:
        rope = read_rope(config, family.rope_theta, partial)
        return rope, rope
    full = read_rope(config, family.rope_theta, partial, FULL_ATTENTION)
    # In older files one scaling and, for Gemma, two wavelengths; sliding layers aren't scaled.
    local = read.raw("rope_local_base_freq")
    older = {key: value for key, value in config.items() if key != "rope_scaling"}
    if local is not None:
        older["rope_theta"] = local
    return full, read_rope(older, family.rope_theta, partial, SLIDING_ATTENTION)


def _rotates(
    read: ConfigReader, family: Family, window: int | None, layer_types: tuple[str, ...]
) -> tuple[bool, ...]:
    num_layers = len(layer_types)
    sliding = tuple(kind == SLIDING_ATTENTION for kind in layer_types)
    match family.rotates:
        case "never":
            return (False,) * num_layers
        case "sliding":
            return sliding
        case "sliding_or_all" if window is not None:
            return sliding
        case "listed":
            listed = read.raw("no_rope_layers")
            every = read.size("no_rope_layer_interval", 4)
            if listed is None:
                listed = [(index + 1) % every for index in range(num_layers)]
            if len(listed) != num_layers:
                raise ConfigError(
                    f"no_rope_layers in the model's config has {len(listed)} entries for "
                    f"num_hidden_layers={num_layers}"
                )
            return tuple(bool(entry) for entry in listed)
        case _:
            return (True,) * num_layers


def _windows(
    read: ConfigReader, family: Family, num_layers: int
) -> tuple[int | None, tuple[str, ...]]:
    """(window, kind of each layer)."""
    full = (FULL_ATTENTION,) * num_layers
    window = None
    used = family.windows != "if_used" or read.flag("use_sliding_window")
    if family.windows != "never" and used and read.raw("sliding_window") is not None:
        window = read.size("sliding_window")
    listed = read.raw("layer_types")
    if listed is not None:
        return check_layer_types(tuple(listed), window, num_layers)
    if window is None:
        return None, full
    kinds = tuple(
        FULL_ATTENTION if _sees_all(read, family, index) else SLIDING_ATTENTION
        for index in range(num_layers)
    )
    return (window if SLIDING_ATTENTION in kinds else None), kinds


def _sees_all(read: ConfigReader, family: Family, index: int) -> bool:
    """Whether layer `index` has no window, where others have."""
    if family.windows == "if_used":
        # The first layers of Qwen see everything; without the entry, all do.
        return read.raw("max_window_layers") is None or index < read.count("max_window_layers")
    if family.windows == "pattern":
        pattern = read.raw("sliding_window_pattern")
        if isinstance(pattern, str):  # EXAONE: "LLLG", local and global
            return pattern[index % len(pattern)] == "G"
        every = read.size("sliding_window_pattern", family.full_every)
        return (index + 1) % every == 0
    if family.windows == "pattern_first":
        return index % read.size("sliding_window_pattern", family.full_every) == 0
    return False
