"""/tokenize, /detokenize and /tokenizer_info."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.endpoint import Endpoint, Reply, RequestInfo, json_reply
from octavo.entrypoints.openai.schema.tokenize import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeChatRequest,
    TokenizeResponse,
    TokenizerInfo,
    TokenizeTextRequest,
)
from octavo.types.errors import RequestError


async def tokenize(
    context: ServerContext, info: RequestInfo, body: TokenizeTextRequest | TokenizeChatRequest
) -> Reply:
    """The token ids that a prompt would have."""
    tokenizer = context.prompts.tokenizer()
    if isinstance(body, TokenizeChatRequest):
        text = await context.workers.run(lambda: context.conversations.render(body))
        special, param = bool(body.add_special_tokens), "messages"
    else:
        text, special, param = body.prompt, body.add_special_tokens is not False, "prompt"
    (prompt,) = await context.prompts.from_texts([text], add_special_tokens=special, param=param)
    texts = None
    if body.return_token_strs:
        spellings = tokenizer.convert_ids_to_tokens(prompt.token_ids)
        texts = [spelling or "" for spelling in spellings]
    return json_reply(
        TokenizeResponse(len(prompt.token_ids), context.max_model_len, prompt.token_ids, texts)
    )


async def detokenize(context: ServerContext, info: RequestInfo, body: DetokenizeRequest) -> Reply:
    """The text of token ids, special tokens included."""
    tokenizer = context.prompts.tokenizer()
    size = context.engine.config.model.vocab_size

    def decode() -> str:
        for token_id in body.tokens:
            if not 0 <= token_id < size:
                raise RequestError(f"tokens holds the id {token_id}, outside [0, {size})", "tokens")
        return tokenizer.decode(body.tokens, skip_special_tokens=False)

    return json_reply(DetokenizeResponse(await context.workers.run(decode)))


async def tokenizer_info(context: ServerContext, info: RequestInfo, body: None) -> Reply:
    """Special tokens and chat template, under the names of a tokenizer_config.json."""
    tokenizer = context.prompts.tokenizer()
    return json_reply(
        TokenizerInfo(
            bos_token=tokenizer.bos_token,
            eos_token=tokenizer.eos_token,
            pad_token=tokenizer.special_tokens.get("pad_token"),
            chat_template=tokenizer.chat_template,
            add_bos_token=tokenizer.encode("a")[:1] == [tokenizer.bos_token_id],
            model_max_length=context.max_model_len,
        )
    )


def _kind(
    fields: Mapping[str, msgspec.Raw],
) -> type[TokenizeTextRequest] | type[TokenizeChatRequest]:
    return TokenizeChatRequest if "messages" in fields else TokenizeTextRequest


ENDPOINTS = (
    Endpoint(
        "/tokenize",
        ("POST",),
        tokenize,
        _kind,
        bodies=(TokenizeTextRequest, TokenizeChatRequest),
        reply=TokenizeResponse,
    ),
    Endpoint("/detokenize", ("POST",), detokenize, DetokenizeRequest, reply=DetokenizeResponse),
    Endpoint("/tokenizer_info", ("GET",), tokenizer_info, reply=TokenizerInfo),
)
