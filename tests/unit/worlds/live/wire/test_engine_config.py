"""What an engine is told reaches it whole, and before the end of the stream."""

from __future__ import annotations

import io
import os

import pytest

from pilothouse.worlds.live.wire.sockets import EngineConfig, read_config

CONFIG = EngineConfig(("tcp://127.0.0.1:1",), "a", "b", "c", "local", 2, deal=("GPUS",))


def test_an_engine_need_not_wait_for_the_end_of_its_standard_input() -> None:
    read_fd, write_fd = os.pipe()
    with open(read_fd, "rb") as stream, open(write_fd, "wb", buffering=0) as kept_open:
        kept_open.write(CONFIG.framed())
        assert read_config(stream) == CONFIG


@pytest.mark.parametrize("length", [0, 3, 4, 20])
def test_a_configuration_that_was_cut_off_is_none(length: int) -> None:
    with pytest.raises(EOFError, match="ended before"):
        read_config(io.BytesIO(CONFIG.framed()[:length]))
