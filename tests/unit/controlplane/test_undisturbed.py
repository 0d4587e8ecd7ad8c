"""The garbage collector is off while something large is made, and on again afterwards."""

from __future__ import annotations

import gc

import pytest

from headgate.controlplane.undisturbed import undisturbed


def test_the_collector_is_off_meanwhile() -> None:
    """It comes back whatever happens, and stays off where it was off."""
    assert undisturbed(gc.isenabled) is False
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        undisturbed(divmod, 1, 0)
    assert gc.isenabled()
    gc.disable()
    try:
        undisturbed(int)
        assert not gc.isenabled()
    finally:
        gc.enable()
