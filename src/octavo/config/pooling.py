"""Whether a model pools, and how: from its config, its Sentence Transformers files and options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from octavo.checkpoints.sentence_transformers import SentenceFiles
from octavo.config.architectures import ModelArch
from octavo.config.convert import nearest
from octavo.config.encoder_families import ENCODERS
from octavo.config.families import FAMILIES
from octavo.config.pooler import (
    DenseLayer,
    HeadKind,
    PoolerConfig,
    ScoreActivation,
    SeqPooling,
    TokenPooling,
)
from octavo.config.token_scores import pair_template, read_token_scores, token_labels
from octavo.types.errors import ConfigError

_HEADS: Mapping[str, HeadKind] = {
    "Model": "embed",
    "TextModel": "embed",
    "ForMaskedLM": "embed",
    "ForSequenceClassification": "classify",
    "ForTokenClassification": "token_classify",
}
_GENERATORS = ("ForCausalLM", "LMHeadModel")
# Keys of a 1_Pooling/config.json; what is not here can't be computed.
_SENTENCE_POOLING: Mapping[str, SeqPooling] = {
    "pooling_mode_cls_token": "CLS",
    "pooling_mode_mean_tokens": "MEAN",
    "pooling_mode_lasttoken": "LAST",
}
_POOLING_WORDS: Mapping[str, SeqPooling] = {"cls": "CLS", "mean": "MEAN", "lasttoken": "LAST"}
_OPTIONS = frozenset(
    {
        "dimensions",
        "logit_mean",
        "logit_sigma",
        "pair_template",
        "pooling_type",
        "returned_token_ids",
        "seq_pooling_type",
        "step_tag_id",
        "tok_pooling_type",
        "use_activation",
    }
)
_ACTIVATION_CLASSES: Mapping[str, ScoreActivation] = {
    "Identity": "identity",
    "Sigmoid": "sigmoid",
    "Softmax": "softmax",
}
Runner = Literal["auto", "generate", "pooling"]
Convert = Literal["auto", "none", "embed", "classify"]


@dataclass(frozen=True)
class PoolingArchitecture:
    """A pooling model: the body that makes hidden states, and what it ends in."""

    body: str  # a key of ENCODERS or FAMILIES
    head: HeadKind
    converted: bool  # the config names a model that generates text

    @property
    def is_encoder(self) -> bool:
        """Whether every token sees the whole text."""
        return self.body in ENCODERS


def pooling_architecture(
    hf_config: Mapping[str, Any],
    runner: Runner = "auto",
    convert: Convert = "auto",
    *,
    has_sentence_files: bool = False,
    scores_by_logits: bool = False,
) -> PoolingArchitecture | None:
    """The pooling model that a config stands for under these options; None: it generates text.

    runner="auto" pools what is named a pooling model, and a generator that comes with the files
    of Sentence Transformers, which may say that it scores by its logits. Raises
    ConfigError for a model that can't be run as asked.
    """
    names = [str(name) for name in hf_config.get("architectures") or ()]
    found = next((known for name in names if (known := _parse(name)) is not None), None)
    if found is None:
        if runner == "pooling":
            supported = ", ".join([*ENCODERS, *sorted(set(map(_stem, FAMILIES)))])
            raise ConfigError(
                f"runner='pooling': the model's config names {', '.join(names) or 'nothing'}; "
                f"models that pool are those of {supported}"
            )
        return None
    if runner == "generate" and not found.converted:
        raise ConfigError(f"runner='generate': {names[0]} makes no text; use --runner pooling")
    pools = not found.converted or has_sentence_files or convert in ("embed", "classify")
    if runner == "generate" or (runner == "auto" and not pools):
        return None
    if convert == "none" and found.converted:
        raise ConfigError(
            f"convert='none', and {names[0]} is a model that generates text; use --convert embed "
            "or classify to pool it"
        )
    if scores_by_logits and found.converted and convert == "auto":
        return PoolingArchitecture(found.body, "classify", converted=True)
    if convert in ("embed", "classify") and found.converted:
        return PoolingArchitecture(found.body, convert, converted=True)
    return found


def choose_pooler(
    found: PoolingArchitecture,
    hf_config: Mapping[str, Any],
    arch: ModelArch,
    sentence: SentenceFiles | None,
    asked: Mapping[str, Any],
    token_ids: Mapping[str, int] | None = None,
) -> PoolerConfig:
    """Decide how to pool: `asked` (--pooler-config), then the model's files, then the head.

    `token_ids` are those of scoring_tokens. Raises ConfigError naming the entry at fault.
    """
    unknown = sorted(set(asked) - _OPTIONS)
    if unknown:
        raise ConfigError(
            f"pooler_config has {unknown[0]!r}{nearest(unknown[0], _OPTIONS)}; there are: "
            f"{', '.join(sorted(_OPTIONS))}"
        )
    modules = sentence.modules if sentence is not None and found.head == "embed" else ()
    _check_modules([module.kind for module in modules])
    dense = tuple(_dense(m.path, m.config) for m in modules if m.kind == "Dense")
    width = dense[-1].out_features if dense else arch.hidden_size
    normalizes = not modules or any(module.kind == "Normalize" for module in modules)
    token_scores = None
    if found.head == "classify":
        token_scores = read_token_scores(hf_config, sentence, token_ids or {})
        if token_scores is not None and found.is_encoder:
            raise ConfigError(
                f"{found.body} can't score by the logits of tokens, it is no model that generates "
                "text; leave out classifier_from_token"
            )
    labels: tuple[str, ...] = ()
    if token_scores is not None:
        labels = token_labels(hf_config, token_scores)
    elif found.head != "embed":
        labels = _labels(hf_config)
    dimensions, matryoshka, choices = _matryoshka(hf_config, asked, width)
    tokens = asked.get("returned_token_ids")
    return PoolerConfig(
        head=found.head,
        seq_pooling_type=_seq_pooling(found, hf_config, sentence, asked),
        tok_pooling_type=_token_pooling(asked),
        use_activation=_of_type(asked, "use_activation", bool, normalizes),
        activation=_score_activation(hf_config, labels),
        dense=dense,
        embedding_size=width,
        dimensions=dimensions,
        matryoshka=matryoshka,
        matryoshka_dimensions=choices,
        labels=labels,
        logit_mean=_number(asked, "logit_mean", 0.0),
        logit_sigma=_number(asked, "logit_sigma", 1.0),
        step_tag_id=_of_type(asked, "step_tag_id", int, None),
        returned_token_ids=None if tokens is None else tuple(map(int, tokens)),
        token_scores=token_scores,
        pair_template=pair_template(asked, hf_config),
        lower_case=bool(sentence and sentence.transformer.get("do_lower_case")),
    )


def sentence_length(sentence: SentenceFiles | None) -> int | None:
    """The longest text, in tokens, that a Sentence Transformers model says it takes."""
    length = None if sentence is None else sentence.transformer.get("max_seq_length")
    return length if isinstance(length, int) and length > 0 else None


def _parse(name: str) -> PoolingArchitecture | None:
    if name in FAMILIES:
        return PoolingArchitecture(name, "embed", converted=True)
    for suffix in sorted(_HEADS, key=len, reverse=True):
        stem = name.removesuffix(suffix)
        if stem == name:
            continue
        if stem in ENCODERS:
            return PoolingArchitecture(stem, _HEADS[suffix], converted=False)
        for generator in _GENERATORS:
            if stem + generator in FAMILIES:
                return PoolingArchitecture(stem + generator, _HEADS[suffix], converted=False)
    return None


def _stem(name: str) -> str:
    for suffix in _GENERATORS:
        name = name.removesuffix(suffix)
    return name


def _check_modules(kinds: list[str]) -> None:
    known = {"Transformer", "Pooling", "Dense", "Normalize", "Dropout"}
    for kind in kinds:
        if kind not in known:
            raise ConfigError(
                f"modules.json of the model has a {kind} module; octavo computes "
                f"{', '.join(sorted(known))}"
            )


def _dense(path: str, config: Mapping[str, Any]) -> DenseLayer:
    try:
        return DenseLayer(
            path=path,
            in_features=int(config["in_features"]),
            out_features=int(config["out_features"]),
            bias=bool(config.get("bias", True)),
            activation=str(config.get("activation_function") or "Tanh").rpartition(".")[2],
        )
    except KeyError as error:
        raise ConfigError(f"{path}/config.json of the model lacks {error}") from None


def _labels(hf_config: Mapping[str, Any]) -> tuple[str, ...]:
    named = hf_config.get("id2label")
    if named:
        return tuple(str(named[key]) for key in sorted(named, key=int))
    count = hf_config.get("num_labels")
    return tuple(f"LABEL_{index}" for index in range(2 if count is None else int(count)))


def _seq_pooling(
    found: PoolingArchitecture,
    hf_config: Mapping[str, Any],
    sentence: SentenceFiles | None,
    asked: Mapping[str, Any],
) -> SeqPooling:
    word = asked.get("seq_pooling_type") or asked.get("pooling_type")
    if word is not None and str(word).upper() in get_args(SeqPooling):
        return get_args(SeqPooling)[get_args(SeqPooling).index(str(word).upper())]  # type: ignore[no-any-return]
    if word is not None and str(word).upper() not in get_args(TokenPooling):
        kinds = [*get_args(SeqPooling), *get_args(TokenPooling)]
        raise ConfigError(f"pooling_type={word!r} in pooler_config: expected {', '.join(kinds)}")
    if sentence is not None and found.head == "embed":
        for module in sentence.modules:
            if module.kind == "Pooling":
                return _sentence_pooling(module.config)
    if found.head == "classify" and hf_config.get("classifier_pooling") in _POOLING_WORDS:
        return _POOLING_WORDS[hf_config["classifier_pooling"]]
    return "CLS" if found.is_encoder else "LAST"


def _sentence_pooling(config: Mapping[str, Any]) -> SeqPooling:
    named = config.get("pooling_mode")
    modes = [named] if isinstance(named, str) else list(named or ())
    modes += [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    both = {**_SENTENCE_POOLING, **_POOLING_WORDS}
    if len(modes) != 1 or modes[0] not in both:
        raise ConfigError(
            f"1_Pooling/config.json of the model asks for {' and '.join(modes) or 'nothing'}; "
            f"octavo computes one of {', '.join(_POOLING_WORDS)}; choose one with "
            '--pooler-config \'{"pooling_type": "MEAN"}\''
        )
    return both[modes[0]]


def _token_pooling(asked: Mapping[str, Any]) -> TokenPooling:
    word = str(asked.get("tok_pooling_type") or asked.get("pooling_type") or "ALL").upper()
    if word == "STEP" or (asked.get("step_tag_id") is not None and word != "ALL"):
        if asked.get("step_tag_id") is None:
            raise ConfigError("pooling_type='STEP' in pooler_config needs step_tag_id")
        return "STEP"
    return "ALL"


def _score_activation(hf_config: Mapping[str, Any], labels: tuple[str, ...]) -> ScoreActivation:
    """What cross-encoders' configs say, else the training objective, else the number of labels."""
    said = (hf_config.get("sentence_transformers") or {}).get("activation_fn")
    said = said or hf_config.get("sbert_ce_default_activation_function")
    if said:
        word = str(said).rpartition(".")[2]
        if word not in _ACTIVATION_CLASSES:
            raise ConfigError(
                f"the model's config wants {said} on its scores; octavo has "
                f"{', '.join(_ACTIVATION_CLASSES)}"
            )
        return _ACTIVATION_CLASSES[word]
    match hf_config.get("problem_type"):
        case "regression":
            return "identity"
        case "multi_label_classification":
            return "sigmoid"
        case "single_label_classification":
            return "softmax"
    return "sigmoid" if len(labels) == 1 else "softmax"


def _matryoshka(
    hf_config: Mapping[str, Any], asked: Mapping[str, Any], width: int
) -> tuple[int | None, bool, tuple[int, ...]]:
    """(default dimensions, whether requests may choose, what they may choose from)."""
    choices = tuple(hf_config.get("matryoshka_dimensions") or ())
    dimensions = _of_type(asked, "dimensions", int, None)
    if dimensions is not None and not 0 < dimensions <= width:
        raise ConfigError(f"dimensions={dimensions} in pooler_config is not in [1, {width}]")
    allowed = bool(choices) or bool(hf_config.get("is_matryoshka")) or dimensions is not None
    return dimensions, allowed, choices


def _of_type(asked: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    value = asked.get(name)
    if value is None:
        return default
    if type(value) is not kind:
        raise ConfigError(f"{name}={value!r} in pooler_config: expected {kind.__name__}")
    return value


def _number(asked: Mapping[str, Any], name: str, default: float) -> float:
    value = asked.get(name)
    if value is None:
        return default
    if not isinstance(value, int | float) or (name == "logit_sigma" and not value):
        raise ConfigError(f"{name}={value!r} in pooler_config: expected a number, not 0")
    return float(value)
