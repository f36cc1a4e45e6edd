"""Settings and log controls of SimGrid: what is known passes, everything else is one line."""

from __future__ import annotations

import pytest

from pilothouse.dropins.simgrid_settings import check_log, settings
from pilothouse.model.errors import InputError


def test_settings_of_several_words() -> None:
    words = ["network/loopback-bw:1e9,network/TCP-gamma:20000", "host/model:ptask_L07", "tracing:no"]
    assert settings(words) == {
        "network/loopback-bw": "1e9",
        "network/TCP-gamma": "20000",
        "host/model": "ptask_L07",
        "tracing": "no",
    }


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("nonsense", "expected name:value"),
        ("nonsense:1", "no such setting"),
        ("network/loopback_bw:1e9", "did you mean network/loopback-bw?"),
        ("network/loopback-bw:fast", "expected a number"),
        ("tracing:perhaps", "expected yes or no"),
    ],
)
def test_a_bad_setting_is_one_line(word: str, told: str) -> None:
    with pytest.raises(InputError, match="--sg-cfg") as found:
        settings([word])
    assert told in str(found.value).replace("\n", " ")


def test_log_controls() -> None:
    check_log(["root.thresh:debug", "root.fmt:%m%n server.add:no", "root.t=info", "root.app:file:x"])


@pytest.mark.parametrize("word", ["root", "root.thresh", "root:debug", "root.colour:red", "root.thresh:loud"])
def test_a_bad_log_control_is_one_line(word: str) -> None:
    with pytest.raises(InputError, match="--sg-log"):
        check_log([word])
