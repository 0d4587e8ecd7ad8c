"""The garbage collector is off while something large is made, and on again afterwards."""

from __future__ import annotations

import gc

import pytest

from headgate.controlplane.gc_paused import gc_paused


def test_the_collector_is_off_meanwhile() -> None:
    """It comes back whatever happens, and stays off where it was off."""
    assert gc_paused(gc.isenabled) is False
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        gc_paused(divmod, 1, 0)
    assert gc.isenabled()
    gc.disable()
    try:
        gc_paused(int)
        assert not gc.isenabled()
    finally:
        gc.enable()
