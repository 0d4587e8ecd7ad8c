"""What a sink did with everything it was given: nothing is ever merely missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class DeliveryLedger:
    """Events, or counts, by what became of them. Together they are all that were emitted."""

    stored: int = 0
    refused: int = 0
    """Those that the sink can never take."""
    dropped: int = 0
    """Those that were lost before the sink could read them: pushed out of memory or spool, or damaged there."""
    spooled: int = 0
    """Those that are still to be stored."""

    @property
    def emitted(self) -> int:
        """All of them."""
        return self.stored + self.refused + self.dropped + self.spooled

    @property
    def ended(self) -> DeliveryLedger:
        """The same once the spool is gone: what was still to be stored counts as dropped."""
        return DeliveryLedger(self.stored, self.refused, self.dropped + self.spooled)

    def __add__(self, other: DeliveryLedger) -> DeliveryLedger:
        """Both together."""
        return DeliveryLedger(
            self.stored + other.stored,
            self.refused + other.refused,
            self.dropped + other.dropped,
            self.spooled + other.spooled,
        )

    def __str__(self) -> str:
        """All numbers, in words."""
        words = f"{self.emitted} emitted = {self.stored} stored + {self.spooled} spooled"
        return f"{words} + {self.dropped} dropped + {self.refused} refused"


NOTHING: Final = DeliveryLedger()
