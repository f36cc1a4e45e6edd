"""Pool: functions in workers that are used again, next to commands, as an Executor."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest
from tests.e2e.live_runs import alive, rows
from tests.storms.processes import parent

from pilothouse import Pool
from pilothouse.model.errors import RunError
from pilothouse.worlds.live.options import LiveOptions


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(slots=2) as made:
        yield made


def test_workers_are_used_again(pool: Pool) -> None:
    pids = {future.result() for future in [pool.submit(os.getpid) for _ in range(50)]}
    assert 1 <= len(pids) <= 2 and os.getpid() not in pids


def test_functions_of_a_script_and_what_they_refer_to(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("factor = 3\n")
    (tmp_path / "script.py").write_text(
        "import helper\nfrom pilothouse import Pool\noffset = 1\n"
        "class Point:\n    def __init__(self, x): self.x = x\n"
        "def f(x): return Point(helper.factor * x + offset)\n"
        "with Pool(slots=1) as pool:\n    print(pool.submit(f, 2).result().x, *pool.map(lambda a, b: a * b, (1, 2), (3, 4)))\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "7 3 8\n", done.stderr


def divided(x: int) -> float:
    return 6 / x


def test_chunks_keep_what_came_before_an_exception(pool: Pool) -> None:
    got: list[float] = []
    with pytest.raises(ZeroDivisionError) as caught:
        got.extend(pool.map(divided, [1, 2, 3, 0, 6], chunksize=5))
    assert got == [6.0, 3.0, 2.0]
    told = "".join(traceback.format_exception(caught.value))
    assert "in divided" in told and "return 6 / x" in told


def test_results_are_streamed_from_arguments_without_end(pool: Pool) -> None:
    got = set(islice(pool.stream(divided, count(1), chunksize=2), 6))
    assert len(got) == 6 and got <= {6 / x for x in range(1, 100)}


def test_a_worker_that_dies_fails_its_call_alone(pool: Pool) -> None:
    doomed, other = pool.submit(os._exit, 7), pool.submit(divided, 2)
    with pytest.raises(RunError, match="ended with code 7"):
        doomed.result(60)
    assert other.result(60) == 3.0 and pool.submit(divided, 3).result(60) == 2.0


def test_what_cannot_be_sent_back_is_said(pool: Pool) -> None:
    with pytest.raises(TypeError, match="cannot be sent back"):
        pool.submit(threading.Lock).result(60)


def test_commands_find_slots_although_workers_are_kept(pool: Pool) -> None:
    pool.submit(divided, 1).result(60)
    futures = [pool.submit(time.sleep, 0.05) for _ in range(20)]
    both = pool.command("echo both", units=2, mem="50M")
    assert both.result(60).out_snippet == b"both\n"
    late = pool.submit(divided, 2)
    assert late.result(60) == 3.0 and all(future.result(60) is None for future in futures)


def test_it_is_an_executor() -> None:
    pool = Pool(slots=1)
    running = pool.submit(time.sleep, 0.3)
    waiting = [pool.submit(divided, 1) for _ in range(5)]
    while not running.running():
        time.sleep(0.01)
    assert not running.cancel() and waiting[0].cancel()
    folder = pool.folder
    pool.shutdown(wait=True, cancel_futures=True)
    assert running.result() is None and all(future.cancelled() for future in waiting)
    assert not folder.exists()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(divided, 1)
    with Pool(slots=1) as pool:
        futures = [pool.submit(divided, x) for x in (1, 2)]
        pool.shutdown(wait=False)
        assert {future.result() for future in concurrent.futures.as_completed(futures, 60)} == {6.0, 3.0}


def test_joblib_runs_on_it(pool: Pool) -> None:
    joblib = pytest.importorskip("joblib")
    from pilothouse.joblib_backend import PoolBackend

    offset = 1
    with joblib.parallel_config(backend=PoolBackend(pool)):
        assert joblib.Parallel()(joblib.delayed(lambda x: x + offset)(x) for x in range(50)) == list(range(1, 51))
        assert set(joblib.Parallel(n_jobs=2)(joblib.delayed(os.getpid)() for _ in range(10))).isdisjoint({os.getpid()})
        assert joblib.effective_n_jobs(-1) == 2
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divided)(x) for x in (1, 0, 2))
    assert pool.submit(divided, 2).result(60) == 3.0, "the pool goes on"


def test_dask_computes_on_it(pool: Pool) -> None:
    delayed = pytest.importorskip("dask").delayed
    total = delayed(sum)([delayed(divided)(x) for x in (1, 2, 3)])
    assert total.compute(scheduler=pool) == 11.0


def begin_and_wait(record: Path, others: int) -> int:
    """How often it was begun, up to now; waits for its end until it has been begun more often."""
    with record.open("a") as file:
        file.write("begun\n")
    while record.read_text().count("begun") <= others:
        time.sleep(0.01)
    return record.read_text().count("begun")


def kill_engine_during_a_call(pool: Pool, record: Path, begun: int) -> None:
    while not record.exists() or record.read_text().count("begun") < begun:
        time.sleep(0.01)
    ((pid,),) = rows(pool.folder, "SELECT pid FROM engines WHERE left_at IS NULL")
    os.kill(int(str(pid)), signal.SIGKILL)


def test_a_call_that_was_lost_with_its_engine_runs_again(tmp_path: Path) -> None:
    with Pool(slots=1, folder=tmp_path / "pool") as pool:
        future = pool.submit(begin_and_wait, tmp_path / "record", 1)
        kill_engine_during_a_call(pool, tmp_path / "record", 1)
        assert future.result(60) == 2
        assert pool.submit(divided, 2).result(60) == 3.0


def test_a_call_that_was_lost_is_begun_once_where_that_was_asked_for(tmp_path: Path) -> None:
    with Pool(slots=1, folder=tmp_path / "pool", options=LiveOptions(at_most_once=True)) as pool:
        future = pool.submit(begin_and_wait, tmp_path / "record", 1)
        kill_engine_during_a_call(pool, tmp_path / "record", 1)
        with pytest.raises(RunError, match="the call gave no answer"):
            future.result(60)
        assert pool.submit(divided, 2).result(60) == 3.0
    assert (tmp_path / "record").read_text() == "begun\n"


def test_a_call_that_is_lost_again_and_again_fails(tmp_path: Path) -> None:
    with Pool(slots=1, folder=tmp_path / "pool", options=LiveOptions(most_losses=2)) as pool:
        future = pool.submit(begin_and_wait, tmp_path / "record", 2)
        for begun in (1, 2):
            kill_engine_during_a_call(pool, tmp_path / "record", begun)
        with pytest.raises(RunError, match="the call gave no answer"):
            future.result(60)


def leave_thread(_future: object) -> None:
    raise SystemExit("a callback ended the thread")


def test_no_result_waits_for_a_thread_that_died(tmp_path: Path) -> None:
    """Callbacks of futures run in the thread of the calls."""
    pool = Pool(slots=1, folder=tmp_path / "pool")
    first = pool.submit(time.sleep, 0.5)
    others = [pool.submit(divided, 1) for _ in range(3)]
    command = pool.command("sleep 100")
    first.add_done_callback(leave_thread)
    for future in (*others, command):
        with pytest.raises(RunError, match="a callback ended the thread"):
            future.result(60)
    pool._thread.join(60)
    with pytest.raises(RunError, match=r"the pool has ended: .*a callback ended the thread"):
        pool.submit(divided, 1)
    pool.shutdown()


def test_nothing_of_a_pool_is_alive_when_it_is_closed() -> None:
    with Pool(slots=1) as pool:
        cylinder = pool.submit(os.getppid).result(60)
        warden = parent(cylinder)
    assert not alive(cylinder) and not alive(warden) and not pool.folder.exists()
