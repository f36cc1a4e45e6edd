"""Reading runs back: any way to name one, files that are being written, step functions, metrics as they were in the run."""

from __future__ import annotations

import tempfile
from array import array
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import components
from pilothouse.core.session import Session
from pilothouse.journal.store import Journal
from pilothouse.launch import naming
from pilothouse.launch.outputs import Outputs
from pilothouse.launch.simulation import load
from pilothouse.model.errors import InputError
from pilothouse.model.job import Command, Job
from pilothouse.model.lifecycle import JobState
from pilothouse.views import plot_data, plots
from pilothouse.views.difference import difference
from pilothouse.views.metrics import Metrics, metrics_of
from pilothouse.views.moments import Moments
from pilothouse.views.read_run import add_users, find, read_run, read_runs
from pilothouse.views.schedule import Schedule, Steps, overtakers
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.flow import _known
from pilothouse.worlds.live.wire.messages import Task

TRACE = str(components.ROOT / "examples/kth-sp2-5000.swf.gz")


def simulated(prefix: str, policy: str = "easy", platform: str = "100") -> Metrics:
    """Simulates, and returns the metrics that the run itself came to."""
    setup = load(platform, [TRACE])
    outputs = Outputs(prefix)
    outputs.describe(decider=policy, units=setup.begins.units, jobs=len(setup.jobs), workloads=[TRACE])
    Session(setup.world(outputs.record), naming.decider(policy), name=policy).run()
    return outputs.close(setup.begins.units, complete=True)


@pytest.fixture(scope="module")
def easy(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Metrics]:
    prefix = f"{tmp_path_factory.mktemp('run')}/easy/"
    return prefix, simulated(prefix)


def test_metrics_of_a_run_that_was_read_back_are_those_of_the_run(easy: tuple[str, Metrics]) -> None:
    prefix, metrics = easy
    schedule = read_run(prefix)
    assert metrics_of(schedule) == metrics
    assert (schedule.name, schedule.policy, schedule.units, schedule.total) == ("easy", "easy", 100, metrics.jobs)
    assert schedule.over
    assert not schedule.live


def test_timelines_are_the_metrics(easy: tuple[str, Metrics]) -> None:
    prefix, metrics = easy
    schedule = read_run(prefix)
    begin, end = schedule.first_submission(), schedule.last_end()
    assert schedule.busy().mean(begin, end) / schedule.units == pytest.approx(metrics.utilisation, rel=1e-12)
    assert schedule.waiting().integral(begin, end) / len(schedule.ran()) == pytest.approx(metrics.wait.mean, rel=1e-12)
    ran = schedule.ran()
    assert len(overtakers(schedule.submitted, schedule.started, ran)) == round(metrics.backfilled * len(ran))
    boxes = [0] * len(schedule)
    for row, first, last in schedule.boxes(schedule.ran()):
        boxes[row] += last - first + 1
    assert boxes == list(schedule.widths)


def test_a_run_has_several_names(easy: tuple[str, Metrics], tmp_path: Path) -> None:
    prefix, _ = easy
    for name in (prefix, prefix.rstrip("/"), prefix + "jobs.csv"):
        assert find(name).prefix == prefix
    batsim = tmp_path / "out_jobs.csv"
    batsim.write_bytes(Path(prefix + "jobs.csv").read_bytes())
    assert find(str(tmp_path / "out")).prefix == f"{tmp_path}/out_"
    assert read_run(str(tmp_path / "out")).units == 100  # no run.json: as many as were used
    (tmp_path / "names_run").mkdir()
    Journal(tmp_path / "names_run").close()
    for name in ("names_run", "names_run/journal.sqlite", "names_status.txt"):
        assert find(str(tmp_path / name)).journal == tmp_path / "names_run"


def test_a_mistyped_name_gets_a_suggestion(easy: tuple[str, Metrics]) -> None:
    prefix, _ = easy
    folder = Path(prefix).parent
    with pytest.raises(InputError, match=r"no run of that name.*did you mean .*easy\?"):
        read_run(str(folder / "eazy"))
    with pytest.raises(InputError, match="runs in it: easy"):
        read_run(str(folder))


def test_equal_names_are_told_apart(easy: tuple[str, Metrics], tmp_path: Path) -> None:
    prefix, _ = easy
    simulated(f"{tmp_path}/other/")
    assert len({run.name for run in read_runs((prefix, f"{tmp_path}/other/"))}) == 2


def test_a_file_that_is_being_written(easy: tuple[str, Metrics], tmp_path: Path) -> None:
    """Wherever the writer stands, the whole rows are there."""
    prefix, _ = easy
    text = Path(prefix + "jobs.csv").read_text()
    lines = text.splitlines(keepends=True)
    begin = sum(map(len, lines[:3]))
    for cut in range(begin, begin + len(lines[3]) + len(lines[4]) + 1):
        (tmp_path / "jobs.csv").write_text(text[:cut])
        (tmp_path / "run.json").write_text('{"decider": "easy", "units": 100, "jobs": 5000}')
        schedule = read_run(str(tmp_path))
        assert len(schedule) in (2, 3, 4)
        assert len(schedule) >= text[:cut].count("\n") - 1
        assert not schedule.over


def test_a_new_run_takes_no_file_of_an_earlier_one(tmp_path: Path) -> None:
    prefix = f"{tmp_path}/"
    for name in ("schedule.json", "consumed_energy.csv", "machine_states.csv", "jobs.jsonl"):
        (tmp_path / name).write_text("of another run")
    simulated(prefix)
    schedule = read_run(prefix)
    assert schedule.energy is None
    assert not schedule.machine_states


def test_users_come_from_the_workload(easy: tuple[str, Metrics]) -> None:
    schedule = read_run(easy[0])
    assert not any(schedule.users)
    add_users(schedule)
    assert all(schedule.users)
    assert len(set(schedule.users)) > 20


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 5))))
def test_steps_merge_equal_dates(spans: list[tuple[int, int, int]]) -> None:
    changes = [c for a, b, n in spans for c in ((float(min(a, b)), float(n)), (float(max(a, b)), float(-n)))]
    steps = Steps.summed(changes)
    assert list(steps.dates) == sorted(set(steps.dates))
    assert all(one != other for one, other in zip(steps.values, steps.values[1:], strict=False))
    for date in range(21):
        assert steps.at(date) == sum(n for a, b, n in spans if min(a, b) <= date < max(a, b))
    assert steps.integral(0, 21) == sum(abs(b - a) * n for a, b, n in spans)


def ended(task_id: int, at: float, job: str, state: JobState = JobState.SUCCEEDED) -> r.TaskEnded:
    code = 0 if state is JobState.SUCCEEDED else 3
    return r.TaskEnded(
        task_id, task_id + 1, -1, 1, "N", state, code, 0, "n0", 5, at, at + 10, 0, b"", 9, b"one\nlast words\n", b"false",
        "", True, job, memory_kb=2048, last_line=b"last words",
    )  # fmt: skip


def live_run(folder: Path) -> Schedule:
    """Two engines of two slots; the second one comes later. One task each succeeded, failed, runs, and one job waits."""
    journal = Journal(folder)
    journal.put_notes(started=1000.0, total=5, decider="fcfs")
    for rank in (0, 1):
        journal.write([r.EngineJoined(f"e{rank}", rank, "local", f"n{rank}", 2, rank * 2, 77, 1000.0 + 5 * rank)])
    for number, (job, units) in enumerate((("0", "0"), ("1", "1"), ("2", "2-3")), 1):
        engine = "e0" if number < 3 else "e1"
        task = Task(number - 1, line=b"true")
        journal.write([r.Assigned(number, job, engine, units, 1001.0, [task], submitted_at=1000.5 if number == 2 else 0.0)])
    journal.write([ended(0, 1002.0, "0"), ended(1, 1003.0, "1", JobState.FAILED), r.Closed(1, 1012.0), r.Closed(2, 1013.0)])
    journal.write([_known(Job("waits", 3, submitted_at=2.5, command=Command(line="true")), 7)])
    journal.close()
    return read_run(str(folder))


def test_a_live_run_that_goes_on(tmp_path: Path) -> None:
    schedule = live_run(tmp_path)
    assert schedule.live
    assert not schedule.over
    assert schedule.policy == "fcfs"
    assert schedule.units == 4
    assert [node.name for node in schedule.nodes] == ["n0", "n1"]
    assert schedule.ids == ["2", "0", "1", "waits"]
    assert schedule.states == [JobState.RUNNING, JobState.SUCCEEDED, JobState.FAILED, JobState.WAITING]
    assert list(schedule.started[:3]) == [1.0, 2.0, 3.0]
    assert list(schedule.ended[1:3]) == [12.0, 13.0]
    assert isnan(schedule.ended[0])
    assert isnan(schedule.ended[3])
    assert schedule.widths == array("l", [2, 1, 1, 0])
    assert schedule.requested[3] == 3
    assert list(schedule.submitted) == [0.0, 0.0, 0.5, 2.5]
    assert schedule.allocated == ["2-3", "0", "1", ""]
    assert schedule.last_words == {2: "last words"}
    assert schedule.memory[1] == 2048 * 1024
    assert isnan(schedule.memory[3])
    assert schedule.capacity is not None
    assert [schedule.capacity.at(date) for date in (0, 5)] == [2, 4]
    assert schedule.busy().at(2.5) == 3
    assert metrics_of(schedule).jobs == 2


NASTY = ("", "nan", "inf", "-inf", "1e300", "-1", "9" * 30, "x", "0-", "5-2", "0-99999999999", "-5", '"', "é", "0x10")


@given(st.integers(0, 16), st.sampled_from(NASTY), st.integers(1, 6))
def test_any_cell_of_a_jobs_csv_is_read_or_refused(column: int, text: str, line: int) -> None:
    """Whatever stands in a cell: one line that names it, or a schedule that every view can take."""
    with tempfile.TemporaryDirectory() as folder:
        lines = TINY.splitlines()
        cells = lines[line].split(",")
        cells[column] = text
        lines[line] = ",".join(cells)
        Path(folder, "jobs.csv").write_text("\n".join(lines) + "\n")
        try:
            schedule = read_run(folder)
        except InputError as refused:
            assert "jobs.csv" in str(refused)
            return
        schedule.check()
        metrics_of(schedule)
        difference(schedule, schedule)
        list(Moments(schedule))
        assert schedule.waiting().integral(0, schedule.now) >= 0
        assert 0 <= plot_data.density(schedule, 0, schedule.now + 1, 50, 4).max(initial=0.0) <= 1


TINY = """\
job_id,workload_name,profile,submission_time,requested_number_of_resources,requested_time,success,final_state,\
starting_time,execution_time,finish_time,waiting_time,turnaround_time,stretch,allocated_resources,consumed_energy,metadata
1,w0,w0!a,0.000000,3,110.000000,1,COMPLETED_SUCCESSFULLY,0.000000,100.000000,100.000000,0.000000,100.000000,1.000000,0-2,-1.000000,
3,w0,w0!b,10.000000,1,95.000000,1,COMPLETED_SUCCESSFULLY,10.000000,80.000000,90.000000,0.000000,80.000000,1.000000,3,-1.000000,
5,w0,w0!c,20.000000,1,15.000000,0,COMPLETED_WALLTIME_REACHED,90.000000,15.000000,105.000000,70.000000,85.000000,5.666667,3,-1.000000,
7,w0,w0!c,20.000000,9,15.000000,0,REJECTED,,,,,,,,,
2,w0,w0!d,5.000000,4,60.000000,1,COMPLETED_SUCCESSFULLY,105.000000,50.000000,155.000000,100.000000,150.000000,3.000000,0-3,-1.000000,
6,w0,w0!e,90.000000,1,12.000000,1,COMPLETED_SUCCESSFULLY,155.000000,10.000000,165.000000,65.000000,75.000000,7.500000,2,-1.000000,
"""


@pytest.mark.parametrize("rows", [0, 4])
def test_runs_without_a_started_job(rows: int, tmp_path: Path) -> None:
    """Nothing has ended yet, or everything was refused: views say so, and nothing divides by it."""
    lines = TINY.splitlines(keepends=True)
    (tmp_path / "jobs.csv").write_text("".join([lines[0], *([lines[4]] if rows else [])]))
    schedule = read_run(str(tmp_path))
    assert metrics_of(schedule).utilisation == 0
    assert difference(schedule, schedule).first is None
    assert len(list(Moments(schedule))) == (1 if rows else 0)
    plots.draw([schedule], [f"{tmp_path}/{rows}.png"], plots.OF_ONE_RUN)
    plots.draw([schedule, schedule], [f"{tmp_path}/two.png"], plots.OF_SEVERAL)


def test_energy_and_states_of_machines_are_read(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(TINY)
    table = "time,energy,event_type,wattmin,epower\n0,0,s,1,NA\n10,500,e,1,50\n10,500,s,1,NA\n20,9"
    (tmp_path / "consumed_energy.csv").write_text(table)
    (tmp_path / "machine_states.csv").write_text(
        "time,nb_sleeping,nb_switching_on,nb_switching_off,nb_idle,nb_computing\n0,0,0,0,4,0\n0,0,0,0,1,3\n90,0,0,0,2,2\n"
    )
    schedule = read_run(str(tmp_path))
    assert schedule.energy is not None
    assert list(schedule.energy.dates) == [0, 10]
    assert schedule.energy.values[-1] == 500
    assert [schedule.machine_states[state].at(0) for state in ("computing", "idle", "sleeping")] == [3, 1, 0]
    (tmp_path / "consumed_energy.csv").write_text("time,energy,event_type,wattmin,epower\n")
    assert read_run(str(tmp_path)).energy is None
    (tmp_path / "consumed_energy.csv").write_text("time,energy\n0,x\n")
    with pytest.raises(InputError, match=r"consumed_energy\.csv:2"):
        read_run(str(tmp_path))
