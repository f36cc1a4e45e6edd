"""The file that a session leaves while it goes on, where it is damaged."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilothouse.model.errors import InputError
from pilothouse.views.schedule import Schedule
from pilothouse.views.session_now import NAME, PresentJob, SessionNow, add_present


@pytest.mark.parametrize("units", ["0-99999999999999999999", "x"])
def test_units_that_cannot_be_are_one_line(units: str, tmp_path: Path) -> None:
    prefix = f"{tmp_path}/"
    job = PresentJob("a", 0.0, 1, None, "", 1.0, units, "")
    Path(prefix + NAME).write_bytes(msgspec.json.encode(SessionNow(2.0, 4, 3, 0, 1, [job])))
    with pytest.raises(InputError, match="not what a session writes"):
        add_present(Schedule(name="s", path=prefix, live=False), prefix)
