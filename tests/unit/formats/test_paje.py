"""The Pajé trace of a schedule."""

from __future__ import annotations

from pathlib import Path

from pilothouse.formats.paje import COLOURS, PajeTrace


def test_a_small_schedule(tmp_path: Path) -> None:
    path = tmp_path / "s.trace"
    trace = PajeTrace(path.open("w"), ["a", "b"])
    trace.compute(1.0, "w0!1", [0, 1])
    trace.kill(2.0, "w0!1", [0, 1])
    trace.wait(2.0, [0, 1])
    trace.close(3.0)
    text = path.read_text()
    head, events = text.split("# Begin of events\n")
    assert head.count("%EventDef Paje") == head.count("%EndEventDef") == 10
    assert '2 0.000000 machine_ct m1 "b" root\n' in head
    assert events.splitlines() == [
        "6 0.000000 machine_state m0 w",
        "6 0.000000 machine_state m1 w",
        '5 jw0!1 machine_state "w0!1" "1.000000 0.000000 0.000000"',
        "6 1.000000 machine_state m0 jw0!1",
        "6 1.000000 machine_state m1 jw0!1",
        '8 2.000000 kk k "w0!1"',
        '8 2.000000 km m0 "w0!1"',
        '8 2.000000 km m1 "w0!1"',
        "6 2.000000 machine_state m0 w",
        "6 2.000000 machine_state m1 w",
        "",
        "# End of events, containers destruction",
        "3 3.000000 m0 machine_ct",
        "3 3.000000 m1 machine_ct",
        "3 3.000000 root root_ct",
    ]


def test_neighbouring_jobs_have_different_colours(tmp_path: Path) -> None:
    path = tmp_path / "s.trace"
    trace = PajeTrace(path.open("w"), ["a"])
    for number in range(COLOURS + 1):
        trace.compute(float(number), f"w0!{number}", [0])
    trace.close(99.0)
    colours = [line.split('" ')[1] for line in path.read_text().splitlines() if line.startswith("5 jw0!")]
    assert len(set(colours[:COLOURS])) == COLOURS and colours[COLOURS] == colours[0]
