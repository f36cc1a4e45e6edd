"""A second local user for tests: a forked child that gives up root's rights. Skips aloud where the tests are not root's."""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from typing import TypeVar

import pytest

NOBODY = 65534
T = TypeVar("T")


def as_second_user(act: Callable[[], T]) -> T:
    """What `act` returns when another user calls it; its exceptions are raised here as AssertionErrors."""
    if os.getuid() != 0:
        pytest.skip("only root can act as a second user")
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read_fd)
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            try:
                answer = pickle.dumps((True, act()))
            except BaseException:
                answer = pickle.dumps((False, traceback.format_exc()))
            with os.fdopen(write_fd, "wb") as stream:
                stream.write(answer)
        finally:
            os._exit(0)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as stream:
        data = stream.read()
    os.waitpid(child, 0)
    good, result = pickle.loads(data)
    assert good, result
    return result  # type: ignore[no-any-return]
