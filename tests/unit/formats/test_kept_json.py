"""Numbers out of range, also in parts of JSON inputs that are kept and read later, and texts that are too long to be numbers."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from pilothouse.formats import external_events, jobspec, qcg_workload, workload_json
from pilothouse.formats.argument_sources import Reading, read_arguments
from pilothouse.formats.platform_elements import SPEED_UNITS, quantity
from pilothouse.model.errors import InputError
from pilothouse.model.profile import Delay, Profile, is_same


def write(path: Path, job: str = "", profile: str = '"type": "delay", "delay": 1') -> Path:
    jobs = f'{{"id": "1", "subtime": 0, "res": 1, "profile": "d"{job}}}'
    path.write_text(f'{{"nb_res": 4, "jobs": [{jobs}], "profiles": {{"d": {{{profile}}}}}}}')
    return path


@pytest.mark.parametrize(
    ("part", "where"),
    [
        ({"job": ', "extra_data": {"x": 1e999}'}, r"\$.jobs\[0\]: Number out of range"),
        ({"profile": '"type": "delay", "delay": 1, "extra_data": [1e999]'}, r"\$.profiles\['d'\]: Number out of range"),
        ({"profile": '"type": "data_staging", "nb_bytes": 1, "from": 1e999, "to": "a"'}, "Number out of range"),
    ],
)
def test_a_number_out_of_range_in_a_workload(part: dict[str, str], where: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=where):
        workload_json.read(write(tmp_path / "w.json", **part))


def test_the_data_of_an_event_are_text_or_kept(tmp_path: Path) -> None:
    path = tmp_path / "events.txt"
    texts = ['{"x": 1e999}', " 1e999", json.dumps("it is \u00e9"), "[]"]
    path.write_text("".join(f'{{"type": "generic", "timestamp": 1, "data": {text}}}\n' for text in texts))
    assert [event.data for event in external_events.read(path)] == ['{"x": 1e999}', "1e999", "it is \u00e9", "[]"]  # type: ignore[union-attr]


def test_profiles_with_fields_that_cannot_be_read_are_equal_if_their_texts_are() -> None:
    def profile(text: bytes) -> Profile:
        return Profile("w!d", Delay(1.0), source=msgspec.Raw(text))

    assert is_same(profile(b'{"delay": 1, "x": 2}'), profile(b'{"x":2,"delay":1}'))
    assert is_same(profile(b'{"delay": 1, "x": 1e999}'), profile(b'{"delay": 1, "x": 1e999}'))
    assert not is_same(profile(b'{"delay": 1, "x": 1e999}'), profile(b'{"delay": 1}'))


@pytest.mark.parametrize("text", ["9" * 400 + ":0:0", "0:0:inf", "0:0:nan", "-1:0:0", "1:2", "x"])
def test_run_times_that_cannot_be(text: str) -> None:
    with pytest.raises(InputError, match="not a run time"):
        qcg_workload.parse_rtime(text, "report:1")


def test_a_duration_that_no_float_can_hold() -> None:
    spec = {"version": 1, "resources": [{"type": "slot", "count": 1, "label": "t", "with": [{"type": "core", "count": 1}]}],
            "tasks": [{"command": ["x"], "slot": "t", "count": {"per_slot": 1}}],
            "attributes": {"system": {"duration": 10**400}}}  # fmt: skip
    with pytest.raises(InputError, match="not a duration"):
        jobspec.parse(json.dumps(spec).encode())


def test_a_long_text_that_is_no_quantity_is_refused_at_once() -> None:
    """A minute if every digit may belong to either of two parts."""
    assert quantity("1" * 200_000 + "!", SPEED_UNITS) is None
    assert [quantity(text, SPEED_UNITS) for text in ("1.f", ".5kf", "2", "1.5.5f")] == [1.0, 500.0, 2.0, None]


@pytest.mark.parametrize("words", [["::::"], [":::", "a", "::::"], [":::", "a", "::::+"]])
def test_a_mark_of_files_without_a_file(words: list[str]) -> None:
    with pytest.raises(InputError, match="no file is named"):
        read_arguments(words, lambda name: iter(()), Reading())
