"""Conversation: what was said in `octavo chat`, and the file that keeps it."""

from __future__ import annotations

import json
from pathlib import Path

from octavo.types.errors import OctavoError

_ROLES = ("system", "user", "assistant")


class Conversation:
    """Messages that alternate between user and assistant, after an optional system prompt."""

    def __init__(self, system: str | None = None) -> None:
        self.system = system
        self.turns: list[dict[str, str]] = []

    def messages(self) -> list[dict[str, str]]:
        """As a request takes them."""
        first = [] if self.system is None else [{"role": "system", "content": self.system}]
        return first + self.turns

    def say(self, role: str, text: str) -> None:
        """Add a message."""
        self.turns.append({"role": role, "content": text})

    def take_back(self) -> str | None:
        """Drop the last message of the user and what came after it; returns its text, if any."""
        while self.turns:
            turn = self.turns.pop()
            if turn["role"] == "user":
                return turn["content"]
        return None

    def save(self, path: Path) -> None:
        """Write the messages as JSON, as the API takes them. Raises OctavoError."""
        try:
            path.write_text(json.dumps(self.messages(), indent=2, ensure_ascii=False) + "\n")
        except OSError as error:
            raise OctavoError(f"{path} can't be written: {error.strerror}") from None

    @classmethod
    def load(cls, path: Path) -> Conversation:
        """Read what `save` wrote. Raises OctavoError for anything else."""
        try:
            content = json.loads(path.read_text())
        except OSError as error:
            raise OctavoError(f"{path} can't be read: {error.strerror}") from None
        except ValueError as error:
            raise OctavoError(f"{path} is no saved conversation: {error}") from None
        if not isinstance(content, list) or not all(map(_is_message, content)):
            raise OctavoError(f"{path} is no saved conversation: expected a list of messages")
        conversation = cls()
        for number, message in enumerate(content):
            if message["role"] == "system" and number == 0:
                conversation.system = message["content"]
            else:
                conversation.say(message["role"], message["content"])
        return conversation


def _is_message(entry: object) -> bool:
    return (
        isinstance(entry, dict)
        and entry.get("role") in _ROLES
        and isinstance(entry.get("content"), str)
    )
