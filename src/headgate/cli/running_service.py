"""The service that runs on the same data directory: where its admin API is, and the token that it has made."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headgate.adapters.admin_token import token_file
from headgate.adapters.data_dir_lock import claimant
from headgate.cli.admin_client import at
from headgate.cli.exchange import call_http
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.settings import Settings

_SAID: Final = re.compile(r"process (\d+) at (?:\S+ and )?(https?://\S+)")
"""What a service with an admin API writes into its lock; `Addresses.in_words`."""
_SECONDS: Final = 2.0


def of_running_service(chosen: Settings) -> Settings:
    """The settings with the admin API of the service that runs here, if it answers and no other place was named."""
    if chosen.admin_url is not None or not (chosen.database_url or "embedded:").startswith("embedded:"):
        return chosen
    said = _SAID.fullmatch(claimant(chosen.data_dir, "admin"))
    with suppress(HeadgateError, OSError, ValueError):
        if said is not None:
            os.kill(int(said[1]), 0)  # a service that was killed leaves its file, and its port to others
            token = chosen.admin_token or token_file(chosen.data_dir).read_text(encoding="ascii").strip()
            bearing = {"Authorization": f"Bearer {token}"}
            answer = call_http(said[2], "GET", at("me"), headers=bearing, seconds=_SECONDS, hint="")
            if answer.status == HTTPStatus.OK:
                return replace(chosen, admin_url=said[2], admin_token=token)
    return chosen
