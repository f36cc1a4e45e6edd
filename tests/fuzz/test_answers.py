"""Every parser, codec and state machine answers as it did when its answers were recorded (answers.py)."""

from __future__ import annotations

import time

import pytest

from fuzz import answers


@pytest.mark.parametrize("name", answers.names())
def test_answers_are_as_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    found = [f"input {data[:300]!r}\n{changed}" for data, changed in answers.differences(name)]
    assert not found, "\n".join((f"{len(found)} answers changed; if that is meant: python -m fuzz.answers {name}", *found[:3]))
