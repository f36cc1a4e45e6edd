"""A name that will go works, and warns in the line that uses it."""

from __future__ import annotations

import warnings

import pytest

import pilothouse
from pilothouse.model.deprecation import PilothouseDeprecation, deprecated


def test_a_renamed_public_name_warns_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pilothouse._RENAMED, "Scheduler", ("Policy", "0.3"))
    expected = r"pilothouse\.Scheduler will be gone in version 0\.3: use pilothouse\.Policy"
    with pytest.warns(PilothouseDeprecation, match=expected) as found:
        from pilothouse import Scheduler  # type: ignore[attr-defined]
    assert Scheduler is pilothouse.Policy
    assert found[0].filename == __file__


def test_everyone_sees_the_warning() -> None:
    """Python hides DeprecationWarning from all but the authors of scripts."""
    with warnings.catch_warnings(record=True) as found:
        warnings.resetwarnings()
        warnings.simplefilter("ignore", DeprecationWarning)
        deprecated("--old", "--new", gone_in="0.3")
    assert [str(one.message) for one in found] == ["--old will be gone in version 0.3: use --new"]
