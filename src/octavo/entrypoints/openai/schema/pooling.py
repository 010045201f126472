"""Bodies of /v1/embeddings, /classify, /pooling, /score and /rerank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from octavo.entrypoints.openai.schema.common import RequestBody
from octavo.types.pooling_params import PoolingTask

# One text, its token ids, or several of either.
Input = str | list[str | int | list[int]]
Encoding = Literal["float", "base64"]
EmbedDType = Literal["float32", "float16", "bfloat16"]
Endianness = Literal["native", "big", "little"]


class PoolingBody(RequestBody, kw_only=True):
    """What every request to pool may say; None stands for the model's default."""

    use_activation: bool | None = None
    truncate_prompt_tokens: int | None = None  # tokens to keep, -1: what fits
    priority: int | None = None
    request_id: str | None = None


class TextsBody(PoolingBody, kw_only=True):
    """Texts to be pooled one by one."""

    refused: ClassVar[Mapping[str, tuple[Any, ...]]] = {"messages": (None,)}

    input: Input
    add_special_tokens: bool | None = None

    def field_names(self) -> Mapping[str, str]:
        """See RequestBody."""
        return {"prompt": "input"}


class ArrayBody(TextsBody, kw_only=True):
    """How arrays are written; dtype and byte order are those of base64."""

    encoding_format: Encoding | None = None
    embed_dtype: EmbedDType | None = None
    endianness: Endianness | None = None


class EmbeddingRequest(ArrayBody, kw_only=True):
    """See https://platform.openai.com/docs/api-reference/embeddings/create."""

    dimensions: int | None = None
    normalize: bool | None = None  # an older name of use_activation


class PoolingRequest(ArrayBody, kw_only=True):
    """Whatever the model makes of texts, as arrays."""

    task: PoolingTask | None = None
    dimensions: int | None = None
    step_tag_id: int | None = None
    returned_token_ids: list[int] | None = None


class ClassifyRequest(TextsBody, kw_only=True):
    """Texts to be given a score per label."""


class ScoreRequest(PoolingBody, kw_only=True):
    """Texts to be scored together: one with each of many, or as many one by one."""

    queries: str | list[str] | None = None
    documents: str | list[str] | None = None
    # Older names of the two.
    data_1: str | list[str] | None = None
    data_2: str | list[str] | None = None
    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None

    def field_names(self) -> Mapping[str, str]:
        """See RequestBody."""
        return {"prompt": "documents"}


class RerankDocument(msgspec.Struct):
    """A document as an object."""

    text: str


class RerankRequest(PoolingBody, kw_only=True):
    """Documents to be ordered by how well they answer a query."""

    query: str
    documents: list[str | RerankDocument]
    top_n: int | None = None  # best ones to return; None or 0: all
    return_documents: bool | None = None  # None: true

    def field_names(self) -> Mapping[str, str]:
        """See RequestBody."""
        return {"prompt": "documents"}


class PoolingUsage(msgspec.Struct):
    """Tokens of one request."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class EmbeddingData(msgspec.Struct, kw_only=True):
    """One text's vector; base64 of its bytes if that was asked for."""

    index: int
    object: str = "embedding"
    embedding: list[float] | str


class EmbeddingResponse(msgspec.Struct, kw_only=True):
    """The vectors, in the order of the texts."""

    id: str
    object: str = "list"
    created: int  # seconds since 1970
    model: str
    data: list[EmbeddingData]
    usage: PoolingUsage


class PoolingData(msgspec.Struct, kw_only=True):
    """One text's array: of numbers, or of rows of them."""

    index: int
    object: str = "pooling"
    data: list[float | list[float]] | str


class PoolingResponse(msgspec.Struct, kw_only=True):
    """The arrays, in the order of the texts."""

    id: str
    object: str = "list"
    created: int
    model: str
    data: list[PoolingData]
    usage: PoolingUsage


class ClassificationData(msgspec.Struct, kw_only=True):
    """One text's scores and the label of the highest."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassificationResponse(msgspec.Struct, kw_only=True):
    """The scores, in the order of the texts."""

    id: str
    object: str = "list"
    created: int
    model: str
    data: list[ClassificationData]
    usage: PoolingUsage


class ScoreData(msgspec.Struct, kw_only=True):
    """One pair's score."""

    index: int
    object: str = "score"
    score: float


class ScoreResponse(msgspec.Struct, kw_only=True):
    """The scores, in the order of the pairs."""

    id: str
    object: str = "list"
    created: int
    model: str
    data: list[ScoreData]
    usage: PoolingUsage


class RerankResult(msgspec.Struct, kw_only=True):
    """A document's place in the request, and its score."""

    index: int
    relevance_score: float
    document: RerankDocument | msgspec.UnsetType = msgspec.UNSET


class RerankResponse(msgspec.Struct, kw_only=True):
    """Documents, the best first."""

    id: str
    model: str
    usage: PoolingUsage
    results: list[RerankResult]
