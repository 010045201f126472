"""Bodies of /v1/grammar/check."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.entrypoints.openai.schema.common import RequestBody


class GrammarCheckRequest(RequestBody, kw_only=True):
    """A constraint, as a request for text would say it."""

    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None


class GrammarCheckResponse(msgspec.Struct, kw_only=True):
    """Whether requests with this constraint are served; if not, why, and the field at fault."""

    valid: bool
    kind: str | None = None
    error: str | None = None
    param: str | None = None
