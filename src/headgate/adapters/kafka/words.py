"""What librdkafka says, as sentences: faults of a delivery, and its lines for the log."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

log: Final = logging.getLogger("headgate")

_ASIDE: Final = re.compile(r" \(after \d+ms in state [^)]*\)|\[thrd:[^]]*\]: ?")
_MOST_LINES: Final = 100
_SENTENCES: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: "the topic does not exist; make it, or let the brokers make topics",
    KafkaError._UNKNOWN_TOPIC: "the topic does not exist; make it, or let the brokers make topics",  # noqa: SLF001 (its public name)
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user may not write to the topic; allow it Write and Describe",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the user may not write idempotently; allow it IdempotentWrite",
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached",  # noqa: SLF001 (its public name)
    KafkaError._TIMED_OUT: "no broker answers",  # noqa: SLF001 (its public name)
}


def sentence(fault: KafkaError) -> str:
    """What is wrong and, where that can be said, what to do."""
    return _SENTENCES.get(fault.code()) or plain(fault.str())


def plain(text: str) -> str:
    """A line of librdkafka's without what only its authors need."""
    return " ".join(_ASIDE.sub("", text).split())


class Lines:
    """Takes librdkafka's own lines: each goes to the log once, until `forget`."""

    def __init__(self, hidden: Callable[[str], str]) -> None:
        """`hidden` takes secrets out of a text."""
        self._hidden = hidden
        self._said: set[str] = set()

    def log(self, level: int, _form: str, *parts: Any) -> None:  # noqa: ANN401 (as logging.Logger has it)
        """Called by confluent-kafka with the arguments of `logging.Logger.log`; the last one is the line."""
        line = self._hidden(plain(parts[-1]))
        if line not in self._said and len(self._said) < _MOST_LINES:
            self._said.add(line)
            # That brokers are away is said once, as a change of state, and at its level.
            log.log(min(level, logging.INFO), "Kafka's client: %s", line)

    def forget(self) -> None:
        """From now on a line may come again."""
        self._said.clear()
