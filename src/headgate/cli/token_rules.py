"""Which tokens a service may be protected by: not those that can be guessed, or were cut off where they were copied."""

from typing import Final

from headgate.core.api_key import looks_like_token
from headgate.errors import InvalidSettings
from headgate.settings import Settings

_MIN_LENGTH: Final = 16
_OURS: Final = "hgt_"


def check_tokens(settings: Settings) -> None:
    """Refuse tokens that can be guessed, or that were cut off where they were copied."""
    for name, token in (("ADMIN", settings.admin_token), ("SERVICE", settings.service_token)):
        if token is None:
            continue
        fault = None
        if not token.isascii() or not token.isprintable() or " " in token:
            fault = "has characters that no header can hold"
        elif len(token) < _MIN_LENGTH:
            fault = f"has {len(token)} characters, and fewer than {_MIN_LENGTH} can be guessed"
        elif token.startswith(_OURS) and not looks_like_token(token):
            fault = f"begins as one of headgate's tokens ({_OURS}…) and is not whole"
        if fault is not None:
            msg = f"HEADGATE_{name}_TOKEN {fault}; write another one, as by: openssl rand -hex 32"
            raise InvalidSettings(msg)
