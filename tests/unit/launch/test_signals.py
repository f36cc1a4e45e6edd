"""Signals that end a run in order."""

from __future__ import annotations

import os
import signal

import pytest

from pilothouse.launch.signals import leave, on_signals


def test_the_first_signal_acts_and_the_second_has_its_default_effect() -> None:
    before = signal.getsignal(signal.SIGTERM)
    heard: list[int] = []
    with on_signals(heard.append):
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is before


def test_leaving_goes_through_what_must_be_tidied_up() -> None:
    tidied = False
    with pytest.raises(SystemExit) as end, on_signals(leave, signal.SIGHUP):
        try:
            os.kill(os.getpid(), signal.SIGHUP)
        finally:
            tidied = True
    assert tidied and end.value.code == 128 + signal.SIGHUP
