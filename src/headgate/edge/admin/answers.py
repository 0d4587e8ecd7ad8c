"""Answers of any size, written in a thread so that nobody waits for them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping


async def large(data: Mapping[str, Any]) -> Response:
    """An answer with these members."""
    body = await asyncio.to_thread(lambda: json.dumps(data, ensure_ascii=False).encode())
    return Response(body, media_type="application/json")
