from __future__ import annotations

import os
import signal
import threading
import warnings

from headgate.sync import Limiter


def test_a_child_forked_under_load_can_decide() -> None:
    """A process forked while other threads are deciding decides too: no lock is left behind."""
    limiter = Limiter.open("memory://")
    stop = threading.Event()

    def decide() -> None:
        while not stop.is_set():
            limiter.hit("k", "1000000/minute")

    threads = [threading.Thread(target=decide) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
                child = os.fork()
            if child == 0:
                signal.alarm(10)  # a child that hangs dies by it
                limiter.hit("k", "1000000/minute")
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
