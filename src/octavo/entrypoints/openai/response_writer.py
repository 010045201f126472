"""ResponseWriter: the items of one response and the events that tell how they grow."""

from __future__ import annotations

import time
import uuid
from typing import Any

from octavo.entrypoints.openai.chat_plan import ChatPlan
from octavo.entrypoints.openai.errors import Failure
from octavo.entrypoints.openai.opaque_text import pack
from octavo.entrypoints.openai.schema.responses import (
    InputTokensDetails,
    Response,
    ResponsesUsage,
)
from octavo.entrypoints.openai.streaming import named_event
from octavo.entrypoints.openai.text_logprobs import TextLogprobs
from octavo.entrypoints.tool_parsers.events import (
    CallArguments,
    CallStart,
    ContentText,
    Event,
    ReasoningText,
)
from octavo.types.outputs import CompletionOutput, RequestOutput

_PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


class ResponseWriter:
    """Keeps `response` up to date and writes its stream, whole or event by event.

    With `logprobs`, texts come with those of their tokens; with `pack_reasoning`, reasoning also in
    a form that clients send back unread.
    """

    def __init__(
        self,
        plan: ChatPlan,
        response: Response,
        *,
        logprobs: TextLogprobs | None = None,
        pack_reasoning: bool = False,
    ) -> None:
        self.response = response
        self._plan = plan
        self._logprobs = logprobs
        self._pack_reasoning = pack_reasoning
        self._number = 0  # of the next event
        self._output_tokens = 0
        self._begun = False
        self._failed = False
        self._end = b""

    def whole(self, output: RequestOutput) -> Response:
        """The response of a request that is not streamed."""
        self._take(output)
        return self.response

    def events(self, number: int, output: RequestOutput) -> bytes:
        """The events of an output."""
        if output.outputs[0].finish_reason == "error":
            return b""
        begin = b"" if self._begun else self._beginning()
        news = self._take(output)
        if output.outputs[0].finished:
            self._end = self._event(f"response.{self._ending()}", response=self.response)
        return begin + news

    def abandon(self, number: int) -> bytes:
        """Nothing follows the failure."""
        return b""

    def last(self) -> bytes:
        """The final state."""
        return self._end

    def error(self, failure: Failure) -> bytes:
        """The events that tell of a failure, once."""
        if self._failed:
            return b""
        self._failed = True
        begin = b"" if self._begun else self._beginning()
        detail = failure.detail
        self.response.status = "failed"
        code = "server_error" if failure.status >= 500 else "invalid_request"
        self.response.error = {"code": code, "message": detail.message}
        told = self._event(
            "error", code=str(detail.code), message=detail.message, param=detail.param
        )
        return begin + told + self._event("response.failed", response=self.response)

    def cut(self) -> bytes:
        """The events of a response that was cancelled where it stands."""
        begin = b"" if self._begun else self._beginning()
        self.response.status = "cancelled"
        closed = self._close_item()
        return begin + closed + self._event(f"response.{self._ending()}", response=self.response)

    def _take(self, output: RequestOutput) -> bytes:
        """News become items; returns the events about them."""
        completion = output.outputs[0]
        self._output_tokens += len(completion.token_ids)
        if self._logprobs is not None:
            self._logprobs.add(completion.token_ids, completion.logprobs or [])
        parts = [self._add(event) for event in self._plan.events(completion)]
        if completion.finished:
            parts.append(self._finish(output, completion))
        return b"".join(parts)

    def _finish(self, output: RequestOutput, completion: CompletionOutput) -> bytes:
        response = self.response
        num_input = len(output.prompt_token_ids)
        response.usage = ResponsesUsage(
            num_input,
            self._output_tokens,
            num_input + self._output_tokens,
            InputTokensDetails(output.num_cached_tokens or 0),
        )
        response.completed_at = int(time.time())
        match completion.finish_reason:
            case "length":
                response.status = "incomplete"
                response.incomplete_details = {"reason": "max_output_tokens"}
            case "repetition":
                response.status = "incomplete"
                response.incomplete_details = {"reason": "repetition"}
            case "abort":
                response.status = "cancelled"
            case _:
                response.status = "completed"
        return self._close_item()

    def _ending(self) -> str:
        """The name of the last event; the API has none for a response that was cancelled."""
        return "incomplete" if self.response.status == "incomplete" else "completed"

    def _beginning(self) -> bytes:
        self._begun = True
        return self._event("response.created", response=self.response) + self._event(
            "response.in_progress", response=self.response
        )

    def _add(self, event: Event) -> bytes:
        match event:
            case CallStart():
                call = {"call_id": event.id, "name": event.name, "arguments": ""}
                return self._close_item() + self._open_item("function_call", call)
            case CallArguments():
                self._item["arguments"] += event.text
                return self._about_item("response.function_call_arguments.delta", delta=event.text)
            case ContentText():
                begin = self._open_text("message", "output_text")
                self._part["text"] += event.text
                logprobs = [] if self._logprobs is None else self._logprobs.take(event.text)
                self._part["logprobs"] += logprobs
                return begin + self._about_item(
                    "response.output_text.delta",
                    content_index=0,
                    delta=event.text,
                    logprobs=logprobs,
                )
            case ReasoningText():
                if self._logprobs is not None:
                    self._logprobs.take(event.text)
                begin = self._open_text("reasoning", "reasoning_text")
                self._part["text"] += event.text
                return begin + self._about_item(
                    "response.reasoning_text.delta", content_index=0, delta=event.text
                )
        return b""

    @property
    def _item(self) -> dict[str, Any]:
        return self.response.output[-1]

    @property
    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = self._item["content"][0]
        return part

    def _open_text(self, kind: str, part_type: str) -> bytes:
        """Begin an item with one part of text, unless it is the open one."""
        output = self.response.output
        if output and output[-1]["type"] == kind and output[-1]["status"] == "in_progress":
            return b""
        extra: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
        begin = self._close_item() + self._open_item(kind, extra | {"content": []})
        part: dict[str, Any] = {"type": part_type, "text": ""}
        if kind == "message":
            part |= {"annotations": [], "logprobs": []}
        self._item["content"].append(part)
        return begin + self._about_item("response.content_part.added", content_index=0, part=part)

    def _open_item(self, kind: str, fields: dict[str, Any]) -> bytes:
        item_id = f"{_PREFIXES[kind]}_{uuid.uuid4().hex}"
        self.response.output.append(
            {"type": kind, "id": item_id, "status": "in_progress", **fields}
        )
        index = len(self.response.output) - 1
        return self._event("response.output_item.added", output_index=index, item=self._item)

    def _close_item(self) -> bytes:
        output = self.response.output
        if not output or output[-1]["status"] != "in_progress":
            return b""
        item = output[-1]
        cut_off = self.response.status in ("incomplete", "cancelled")
        item["status"] = "incomplete" if cut_off else "completed"
        if item["type"] == "function_call":
            told = self._about_item(
                "response.function_call_arguments.done",
                arguments=item["arguments"],
                name=item["name"],
            )
        else:
            part = self._part
            if item["type"] == "reasoning" and self._pack_reasoning:
                item["encrypted_content"] = pack(part["text"])
            done = self._about_item(
                f"response.{part['type']}.done",
                content_index=0,
                text=part["text"],
                **({"logprobs": part["logprobs"]} if item["type"] == "message" else {}),
            )
            told = done + self._about_item("response.content_part.done", content_index=0, part=part)
        index = len(output) - 1
        return told + self._event("response.output_item.done", output_index=index, item=item)

    def _about_item(self, kind: str, **fields: Any) -> bytes:
        index = len(self.response.output) - 1
        return self._event(kind, item_id=self._item["id"], output_index=index, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return named_event(kind, {"type": kind, "sequence_number": number, **fields})
