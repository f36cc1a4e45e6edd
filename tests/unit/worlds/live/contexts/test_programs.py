"""Engines are started again where the system is short of processes or descriptors, and not for ever."""

from __future__ import annotations

import errno
import os
import resource
import signal
import time

import pytest

from pilothouse.model.errors import RunError
from pilothouse.worlds.live.contexts import Departure, Launch, programs
from pilothouse.worlds.live.contexts.programs import MOST_STARTS, ProgramContext
from pilothouse.worlds.live.engine import process
from second_user import as_second_user

LAUNCH = Launch(("tcp://127.0.0.1:9",), "", "", "", "/", "/nowhere", "python")
LIMITS = {"RLIMIT_NPROC": os.strerror(errno.EAGAIN), "RLIMIT_NOFILE": os.strerror(errno.EMFILE)}


class Reader(ProgramContext):
    """Its programs read their configuration and end well."""

    remote = False
    program = "/bin/cat"

    def command(self, part: str, launch: Launch) -> list[str]:
        return [self.program]


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "FIRST_PAUSE_S", 0.05)


def departures(context: ProgramContext) -> list[Departure]:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if gone := context.ended():
            return gone
        time.sleep(0.01)
    return []


@pytest.mark.parametrize("name", LIMITS)
def test_an_engine_that_the_system_has_no_room_for_is_started_later(name: str, short_pauses: None) -> None:
    limit = getattr(resource, name)

    def act() -> tuple[list[Departure], bool, list[Departure]]:
        before = resource.getrlimit(limit)
        context = Reader("lab", {"": 1})
        resource.setrlimit(limit, (1, before[1]))
        context.start(LAUNCH)
        first = departures(context)
        resource.setrlimit(limit, before)
        again = context.again(first[0].key, LAUNCH, had_joined=False)
        return first, again, departures(context)

    [refused], again, [ended] = as_second_user(act)
    assert refused.text == f"cannot run /bin/cat: {LIMITS[name]}"
    assert refused.code
    assert refused.engine_ended
    assert again
    assert (ended.code, ended.text) == (0, "")


def test_the_attempts_have_a_limit_and_growing_pauses(short_pauses: None) -> None:
    def act() -> list[float]:
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
        context = Reader("lab", {"": 1})
        pauses, began = [], time.monotonic()
        context.start(LAUNCH)
        while True:
            [refused] = departures(context)
            pauses.append(time.monotonic() - began)
            began = time.monotonic()
            if not context.again(refused.key, LAUNCH, had_joined=False):
                return pauses

    pauses = as_second_user(act)
    assert len(pauses) == MOST_STARTS
    assert all(pause >= 0.05 * 2**attempt for attempt, pause in enumerate(pauses))


def test_a_program_that_is_not_there_ends_the_run_at_once() -> None:
    context = Reader("lab", {"": 1})
    context.program = "/no/such/program"
    with pytest.raises(RunError, match="lab: cannot run /no/such/program: No such file or directory"):
        context.start(LAUNCH)


@pytest.mark.parametrize("patience", [0, 3])
def test_a_program_that_does_not_end_with_its_run_is_killed(patience: int) -> None:
    class Stopped(Reader):
        def command(self, part: str, launch: Launch) -> list[str]:
            return ["/bin/sh", "-c", "kill -STOP $$"]

    context = Stopped("lab", {"": 1})
    context.start(LAUNCH)
    ((_, child, _),) = context._children.values()
    waits = [True] * patience + [False]
    context.close(context.keys, lambda: waits.pop(0))
    assert not waits and child.returncode == -signal.SIGKILL


def test_a_warden_waits_for_a_process(capfd: pytest.CaptureFixture[str]) -> None:
    """EAGAIN at fork: its engine, its cylinders and those that replace them are started when there is room."""

    def act() -> int:
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
        signal.signal(signal.SIGALRM, lambda *_: resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard)))
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        child = process.fork()
        if child == 0:
            os._exit(7)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert as_second_user(act) == 7
    assert "cannot fork: Resource temporarily unavailable; trying again after 0.05 s" in capfd.readouterr().err
