"""A run in a child process whose files keep every line, however the child ends."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pilothouse.dropins.batsim5.guard import ROOM_BYTES, Guard


class Told(list[tuple[str, float, str]]):
    def __call__(self, text: str, now: float, master: str) -> None:
        self.append((text, now, master))


def test_a_run_that_ends_well(tmp_path: Path) -> None:
    guard, told = Guard(), Told()

    def work() -> int:
        stream = guard.opened(f"{tmp_path}/folder/a.csv")
        stream.write("one\n")
        stream.close()
        return 7

    assert guard.run(work, 0.0, told, "lib.so") == 7
    assert not told
    assert (tmp_path / "folder/a.csv").read_text() == "one\n"


def test_lines_survive_a_crash(tmp_path: Path) -> None:
    guard, told = Guard(), Told()
    line = "é" * 100 + "\n"
    long = "x" * (ROOM_BYTES + 5) + "\n"

    def work() -> int:
        guard.note_master("chief")
        first, second = guard.opened(f"{tmp_path}/a.csv"), guard.opened(f"{tmp_path}/b.csv")
        for _ in range(20_000):
            first.write(line)
        second.write("short\n")
        second.write(long)
        second.write("last\n")
        os.kill(os.getpid(), signal.SIGKILL)
        return 0

    assert guard.run(work, 0.0, told, "lib.so") == -signal.SIGABRT
    assert told == [("the component crashed (SIGKILL) (lib.so)", 0.0, "chief")]
    assert (tmp_path / "a.csv").read_text() == line * 20_000
    assert (tmp_path / "b.csv").read_text() == "short\n" + long + "last\n"


def test_a_component_that_ends_the_process(tmp_path: Path) -> None:
    guard, told = Guard(), Told()

    def work() -> int:
        guard.opened(f"{tmp_path}/a.csv").write("kept\n")
        os._exit(0)

    assert guard.run(work, 30.0, told, "lib.so") == -signal.SIGABRT
    assert told[0][0] == "the component ended its process with code 0 (lib.so)"
    assert (tmp_path / "a.csv").read_text() == "kept\n"


def test_our_own_mistake_is_shown(capfd: object) -> None:
    guard = Guard()

    def work() -> int:
        sys.stderr = open(os.dup(2), "w")  # noqa: SIM115
        raise AssertionError("broken")

    assert guard.run(work, 0.0, Told(), "lib.so") == 1
    assert "AssertionError: broken" in capfd.readouterr().err  # type: ignore[attr-defined]
