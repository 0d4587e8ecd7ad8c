"""Where the brokers are and how to get in, read from one text.

    kafka-1:9092,kafka-2:9092
    kafka-1:9093?security.protocol=SASL_SSL&sasl.mechanism=PLAIN&sasl.username=u&sasl.password=p

Behind the question mark stand options of librdkafka, percent-encoded. Nothing of the text is ever
repeated in a message, because a password that was not encoded may end up in any part of it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qsl

from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

PORT: Final = 9092
_SECRETS: Final = frozenset({"sasl.oauthbearer.client.secret", "sasl.password", "ssl.key.password"})
OPTIONS: Final = _SECRETS | {
    "broker.address.family",
    "client.id",
    "compression.type",
    "enable.ssl.certificate.verification",
    "linger.ms",
    "message.max.bytes",
    "sasl.mechanism",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.username",
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
}
"""What may be set; the others decide whether events are lost, and are not for choosing."""
_SERVER: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_HIGHEST_PORT: Final = 65_535


class Brokers(NamedTuple):
    """Some brokers of a cluster, and options of the client."""

    servers: str
    """With commas between them, each with its port."""
    options: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Brokers:
        """Read the text, or raise `InvalidSettings` with a sentence that repeats nothing of it."""
        places, _, query = text.strip().partition("?")
        servers = [_server(number, place.strip()) for number, place in enumerate(places.split(","), 1)]
        options = parse_qsl(query, keep_blank_values=True)
        for number, (name, value) in enumerate(options, 1):
            if name not in OPTIONS or not value:
                msg = (
                    f"option {number} behind the Kafka brokers is unknown or empty; known are "
                    f"{', '.join(sorted(OPTIONS))}; in values, & is written %26, + is %2B and % is %25"
                )
                raise InvalidSettings(msg)
        return cls(",".join(servers), dict(options))

    def hidden(self, text: str) -> str:
        """A text without the secrets that are among the options."""
        for name in _SECRETS & self.options.keys():
            text = text.replace(self.options[name], "…")
        return text


def _server(number: int, text: str) -> str:
    found = _SERVER.fullmatch(text)
    if found is None or not 0 < int(found[2] or PORT) <= _HIGHEST_PORT:
        msg = (
            f"Kafka broker {number} is malformed; write kafka-1:9092,kafka-2:9092, "
            "and user and password as options behind a question mark"
        )
        raise InvalidSettings(msg)
    return f"{found[1]}:{found[2] or PORT}"
