"""ChatRun: a conversation answered as events, for APIs that write answers in forms of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from octavo.entrypoints.openai.chat_plan import ChatPlan, plan_chat, render_prompt
from octavo.entrypoints.openai.context import ServerContext
from octavo.entrypoints.openai.errors import in_client_words
from octavo.entrypoints.openai.generation import Outputs, start
from octavo.entrypoints.openai.prompts import Prompt, PromptTooLongError
from octavo.entrypoints.openai.schema.chat import ChatRequest
from octavo.entrypoints.openai.truncation import Messages, leave_out_oldest
from octavo.types.errors import RequestError


class ChatRun:
    """One request for one answer to a conversation.

    `fields` are those of /v1/chat/completions, and what that endpoint would refuse is refused;
    `names` says what the client calls them. Raises RequestError.
    """

    def __init__(
        self, context: ServerContext, fields: Mapping[str, Any], names: Mapping[str, str]
    ) -> None:
        self._context = context
        self._names = names
        self._plan: ChatPlan | None = None
        plain = {name: value for name, value in fields.items() if value is not None}
        try:
            self.body = context.parser.parse(msgspec.json.encode(plain), ChatRequest)
        except RequestError as error:
            raise in_client_words(error, names) from None

    async def prompt(self) -> Prompt:
        """What the model will read. Raises RequestError."""
        try:
            return await render_prompt(self._context, self.body)
        except RequestError as error:
            raise in_client_words(error, self._names) from None

    async def leave_out_oldest(self) -> None:
        """Leave out the oldest turns where prompt and answer would not fit otherwise.

        Raises RequestError for a conversation that can't be rendered; one whose last turn is too
        long is refused by `start`.
        """
        context = self._context
        answer = 1 if context.args.clamp_max_tokens else self.body.max_tokens or 1
        room = context.max_model_len - answer

        async def fits(messages: Messages) -> bool:
            body = msgspec.structs.replace(self.body, messages=messages)
            try:
                return len((await render_prompt(context, body)).token_ids) <= room
            except PromptTooLongError:
                return False

        try:
            self.body.messages = await leave_out_oldest(self.body.messages, fits)
        except RequestError as error:
            raise in_client_words(error, self._names) from None

    async def start(
        self, response_id: str, *, logprobs: int | None = None, most_calls: int | None = None
    ) -> StartedChat:
        """Check the whole request and have it run once somebody reads.

        With `logprobs`, outputs have those of so many likeliest tokens; calls beyond `most_calls`
        are dropped. Raises RequestError.
        """
        body = self.body
        try:
            params = self._context.sampling.params(
                body, logprobs=logprobs, prompt_logprobs=None, max_tokens=body.max_tokens
            )
            plan = await plan_chat(self._context, body, params, most_calls)
        except RequestError as error:
            raise in_client_words(error, self._names) from None
        outputs = start(
            self._context,
            body,
            [plan.prompt],
            plan.params,
            response_id=response_id,
            limited=body.max_tokens is not None,
        )
        return StartedChat(plan, outputs)


class StartedChat(NamedTuple):
    """How the answer is read, and the outputs that it consists of."""

    plan: ChatPlan
    outputs: Outputs
