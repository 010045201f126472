"""Bodies of the admin endpoints."""

from __future__ import annotations

from octavo.entrypoints.openai.schema.common import RequestBody


class AbortRequest(RequestBody, kw_only=True):
    """Requests to end, by the `id` of their answers."""

    request_ids: list[str]
