"""TokenScores as configs name them: rerankers that are generators and answer by one token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.checkpoints.sentence_transformers import SentenceFiles
from octavo.config.pooler import PairTemplate, TokenScores
from octavo.types.errors import ConfigError

LOGIT_SCORE = "LogitScore"  # the module of Sentence Transformers' cross-encoders of this kind

_TOKENS = "classifier_from_token"
_TWO_WAY = "from_2_way_softmax"
_EACH = "no_post_processing"
# What Qwen3-Reranker was trained on, with the instruction that its model card begins with.
_QWEN3_RERANKER = PairTemplate(
    before="<|im_start|>system\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n"
    "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: ",
    between="\n<Document>: ",
    after="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
)


def scoring_tokens(hf_config: Mapping[str, Any]) -> tuple[str, ...]:
    """The tokens, as the vocabulary spells them, whose logits a config has for scores.

    Raises ConfigError.
    """
    tokens = hf_config.get(_TOKENS)
    if tokens is None:
        return ()
    is_list = isinstance(tokens, list | tuple) and tokens
    if not is_list or not all(isinstance(token, str) for token in tokens):
        raise ConfigError(
            f'{_TOKENS}={tokens!r} in the model\'s config: expected tokens, as ["no", "yes"]'
        )
    return tuple(tokens)


def read_token_scores(
    hf_config: Mapping[str, Any], sentence: SentenceFiles | None, ids: Mapping[str, int]
) -> TokenScores | None:
    """What a classifier's config or Sentence Transformers files say; None: it has a score layer.

    `ids` are those of scoring_tokens, as far as the vocabulary has them. Raises ConfigError.
    """
    tokens = scoring_tokens(hf_config)
    if not tokens:
        return _of_module(sentence)
    for token in tokens:
        if token not in ids:
            raise ConfigError(
                f"{_TOKENS} in the model's config has {token!r}, which the vocabulary has not; "
                "tokens are spelt as in tokenizer.json"
            )
    method = hf_config.get("method") or (_TWO_WAY if len(tokens) == 2 else _EACH)
    if method not in (_TWO_WAY, _EACH):
        raise ConfigError(
            f"method={method!r} in the model's config: expected {_TWO_WAY} or {_EACH}"
        )
    if method == _TWO_WAY and len(tokens) != 2:
        raise ConfigError(
            f"{_TOKENS} in the model's config has {len(tokens)} tokens; {_TWO_WAY} is for two"
        )
    return TokenScores(tuple(ids[token] for token in tokens), two_way=method == _TWO_WAY)


def token_labels(hf_config: Mapping[str, Any], scores: TokenScores) -> tuple[str, ...]:
    """The names of the scores: the tokens."""
    tokens = scoring_tokens(hf_config) or tuple(map(str, scores.token_ids))
    return tokens[-1:] if scores.two_way else tokens


def pair_template(asked: Mapping[str, Any], hf_config: Mapping[str, Any]) -> PairTemplate | None:
    """How a query and a document become one text: as asked, else as the model is known to want.

    Raises ConfigError.
    """
    text = asked.get("pair_template")
    if text is None:
        return _QWEN3_RERANKER if hf_config.get("is_original_qwen3_reranker") else None
    parts = _split(text) if isinstance(text, str) else None
    if parts is None:
        raise ConfigError(
            f"pair_template={text!r} in pooler_config: expected a text with {{query}} and, behind "
            "it, {document}, once each"
        )
    return parts


def _split(text: str) -> PairTemplate | None:
    if text.count("{query}") != 1 or text.count("{document}") != 1:
        return None
    before, _, rest = text.partition("{query}")
    between, found, after = rest.partition("{document}")
    return PairTemplate(before, between, after) if found else None


def _of_module(sentence: SentenceFiles | None) -> TokenScores | None:
    for module in sentence.modules if sentence is not None else ():
        if module.kind == LOGIT_SCORE:
            yes, no = module.config.get("true_token_id"), module.config.get("false_token_id")
            if not isinstance(yes, int) or not (no is None or isinstance(no, int)):
                raise ConfigError(f"{module.path}/config.json of the model lacks true_token_id")
            ids = (yes,) if no is None else (no, yes)
            return TokenScores(ids, two_way=no is not None)
    return None
