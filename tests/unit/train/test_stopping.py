"""SIGTERM as a flag, as long as the loop runs."""

from __future__ import annotations

import os
import signal
import threading

from phalanx.train.stopping import StopFlag


def test_sigterm_raises_the_flag_and_then_keeps_its_meaning() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []
    with StopFlag() as stop:
        seen.append(stop.requested)
        os.kill(os.getpid(), signal.SIGTERM)
        seen.append(stop.requested)
    assert seen == [False, True]
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_thread_sets_no_handler() -> None:
    seen = []

    def work() -> None:
        with StopFlag() as stop:
            seen.append((stop.requested, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert seen == [(False, signal.getsignal(signal.SIGTERM))]
