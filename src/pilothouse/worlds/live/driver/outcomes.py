"""What the ends of tasks mean: results, losses, retries, and with them the ends of lots. Sans-IO.

Every task has one final record; a task that failed and may be tried again, or was lost and may run again, goes back to
where tasks come from. A lot ends when nothing of it is on an engine and nothing of it is left.
"""

from __future__ import annotations

import msgspec

from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.lifecycle import ENDS, FINAL, JobState, Stimulus
from pilothouse.worlds.live.driver import records as r
from pilothouse.worlds.live.driver.engines import Proxy
from pilothouse.worlds.live.driver.ledger import KILL, Ledger
from pilothouse.worlds.live.driver.task_groups import NODE_LOST, Lot, order_of
from pilothouse.worlds.live.wire.messages import (
    LOST_CODE,
    Finished,
    Report,
    Result,
    TaskOrder,
)

_KINDS_OF_END = {"walltime": JobState.TIMED_OUT, "killed": JobState.KILLED, "dismissed": JobState.LOST}


class Outcomes(Ledger):
    """The part of the driver that hears how tasks ended."""

    def _report(self, proxy: Proxy, report: Report, now: float) -> None:
        for result in report.per_engine:
            self._per_engine_result(proxy, result, now)
        for finished in report.finished:
            self._finished(proxy, finished, now)

    def _finished(self, proxy: Proxy, finished: Finished, now: float) -> None:
        lot = self._assignments.get(finished.assignment)
        if lot is None:
            return  # told twice, or taken away from it meanwhile
        for result in finished.results:
            order = lot.tasks.get(result.task_id)
            if order is not None and order.attempt == result.attempt:
                self._task_result(lot, order, result, proxy, now)
        returned = tuple(task_id for task_id in finished.returned if task_id in lot.tasks)
        if returned and lot.from_file and not lot.kill_reason:
            self._record(r.Returned(finished.assignment, returned), now)
        if finished.closed:
            self._release(lot, proxy, now)
            self._settle_lot(lot, proxy, NODE_LOST, now)

    def _settle_lot(self, lot: Lot, proxy: Proxy, reason: str, now: float) -> None:
        """It is on no engine any more: what is left of it waits again, unless it was to be ended."""
        if lot.killed:
            for order in list(lot.tasks.values()):
                self._unbegun_end(lot, order, proxy, now)
        if lot.tasks:
            self._requeue(lot, reason, now)
        else:
            self._finish_lot(lot, now)

    def _task_result(self, lot: Lot, order: TaskOrder, result: Result, proxy: Proxy, now: float) -> None:
        if result.reason == NODE_LOST:
            self._lose(lot, order, proxy, NODE_LOST, now)
            return
        if not result.reason:
            state = JobState.FAILED if result.return_code else JobState.SUCCEEDED
            self.backlog.pace.note(result.ended_at - result.started_at)
        else:
            state = _KINDS_OF_END.get(result.reason, JobState.FAILED)
        retry = (
            state in (JobState.FAILED, JobState.TIMED_OUT)
            and order.attempt - self._losses.get(order.task_id, 0) <= self.options.retries
            and not self._stopping
            and lot.from_file
        )
        cut_off = state is JobState.KILLED and bool(self._stopping)
        self._record(self._ended(order, result, state, lot, proxy, final=not retry and not cut_off), now)
        if cut_off:
            del lot.tasks[order.task_id]
            self.running_tasks -= 1
        elif retry:
            del lot.tasks[order.task_id]
            self.running_tasks -= 1
            self.backlog.give_back(msgspec.structs.replace(order, attempt=order.attempt + 1))
        elif state is JobState.SUCCEEDED:
            proxy.done += 1
        else:
            proxy.failed += 1
            if self.options.fail_fast:
                self._fail_fast = True

    def _lose(self, lot: Lot, order: TaskOrder, proxy: Proxy, reason: str, now: float) -> None:
        """A task that was begun, or may have been, on an engine that is gone."""
        losses = self._losses.get(order.task_id, 0) + 1
        again = self.options.reissue and not self.options.at_most_once and losses < self.options.most_losses
        again = again and (bool(self._stopping) or not lot.killed)
        at = now + self._unix_offset
        result = Result(order.task_id, order.attempt, LOST_CODE, -1, at, at, reason=reason or "its engine left")
        state = JobState.KILLED if lot.killed and not self._stopping else JobState.LOST
        self._record(self._ended(order, result, state, lot, proxy, final=not again), now)
        if again and self._stopping:
            del lot.tasks[order.task_id]  # not in this life, but in a resumed one
            self.running_tasks -= 1
        elif again:
            lot.tasks[order.task_id] = msgspec.structs.replace(order, attempt=order.attempt + 1)

    def _unbegun_end(self, lot: Lot, order: TaskOrder, proxy: Proxy | None, now: float) -> None:
        """A task of a killed lot that had not been begun."""
        if self._stopping:
            del lot.tasks[order.task_id]
            return
        at = now + self._unix_offset
        result = Result(order.task_id, order.attempt, -15, -1, at, at, reason=lot.kill_reason or "not begun")
        self._record(self._ended(order, result, JobState.KILLED, lot, proxy, final=True), now)

    def _per_engine_result(self, proxy: Proxy, result: Result, now: float) -> None:
        feeder = self.backlog.feeder
        if feeder is None:
            return
        stopping = result.task_id < 0
        lines = feeder.engine_stop if stopping else feeder.engine_start
        index = -1 - result.task_id if stopping else result.task_id
        state = JobState.FAILED if result.return_code else JobState.SUCCEEDED
        line = next((line for line in lines if line.task_id == index), None)
        if line is not None:
            order = msgspec.structs.replace(order_of(line), task_id=index)
            result.task_id = index
            self._record(self._ended(order, result, state, None, proxy, kind="P"), now)
            if state is JobState.FAILED:
                feeder.engine_command_failed()

    def _ended(
        self, order: TaskOrder, result: Result, state: JobState, lot: Lot | None, proxy: Proxy | None,
        *, kind: str = "N", final: bool = True,
    ) -> r.TaskEnded:  # fmt: skip
        return r.TaskEnded(
            order.task_id, order.line_number, order.repeat_index, order.attempt, kind, state, result.return_code,
            proxy.joined.rank if proxy else -1, proxy.joined.node if proxy else "", result.pid, result.started_at,
            result.ended_at, result.out_bytes, result.out_snippet, result.err_bytes, result.err_snippet,
            order.line or b" ".join(order.argv), result.reason, final, lot.job.id if lot else "",
        )  # fmt: skip

    def _requeue(self, lot: Lot, reason: str, now: float) -> None:
        if self._stopping:
            # Nothing is begun any more: what is left of it is for a resumed run.
            lot.tasks.clear()
            lot.worst, lot.code = JobState.KILLED, -15
            self._finish_lot(lot, now)
            return
        lot.step(Stimulus.REQUEUED)
        lot.units, lot.worst, lot.code, lot.kill_reason = IdSet(), JobState.SUCCEEDED, 0, ""
        self._spanning.discard(lot.job.id)
        self.waiting += 1
        self.events.append(e.JobRequeued(now, lot.job.id, reason))

    def _release(self, lot: Lot, proxy: Proxy, now: float) -> None:
        self._record(r.Closed(lot.assignment, now + self._unix_offset), now)
        proxy.free_gpus.extend(lot.gpus)
        lot.gpus = ()

    def _finish_lot(self, lot: Lot, now: float) -> None:
        """All of it has ended or was given back."""
        del self.lots[lot.job.id]
        self._spanning.discard(lot.job.id)
        lot.step(ENDS[lot.worst])
        self.events.append(e.JobEnded(now, lot.job.id, lot.worst, lot.code, lot.units))
        self._check_kills(lot.job.id, now)

    def _kill_for_good(self, lot: Lot, now: float) -> None:
        """Somebody wants it ended. Written down: its engine may hear of it from the next driver only."""
        self._record(r.Note(f"{KILL}{lot.job.id}", b"killed"), now)
        self._kill_lot(lot, "killed")

    def _withdraw(self, lot: Lot, now: float) -> None:
        """A job that waits is taken back."""
        self.events.append(e.JobWithdrawn(now, lot.job.id))
        self._end_unstarted(lot, JobState.KILLED, "cancelled", now)

    def _end_unstarted(self, lot: Lot, state: JobState, reason: str, now: float) -> None:
        at = now + self._unix_offset
        for order in list(lot.tasks.values()):
            result = Result(order.task_id, order.attempt, 1, -1, at, at, reason=reason or state.value)
            self._record(self._ended(order, result, state, lot, None), now)
        if lot.state not in FINAL:
            lot.step(ENDS[state])
        if self.lots.pop(lot.job.id, None) is not None:
            self.waiting -= 1

    def _check_kills(self, ended: str, now: float) -> None:
        """JobsKilled follows when the last job of a KillJobs has ended."""
        for pending, _ in self._kills:
            pending.discard(ended)
        for pending, job_ids in [entry for entry in self._kills if not entry[0]]:
            self.events.append(e.JobsKilled(now, job_ids, {}))
            self._kills.remove((pending, job_ids))

    def _release_dependents(self, now: float) -> None:
        """What the ends of submitted jobs mean for those that wait for them."""
        while self._ended_jobs:
            job_id, succeeded = self._ended_jobs.pop()
            free, omitted = self._dependencies.ended(job_id, succeeded=succeeded)
            for lot in free:
                self.backlog.add(lot)
            for lot in omitted:
                self._end_unstarted(lot, JobState.OMITTED, f"job {job_id} did not succeed", now)


def barrier_record(kind: str, order: TaskOrder, at: float) -> r.TaskEnded:
    return r.TaskEnded(
        order.task_id, order.line_number, order.repeat_index, 1, kind, JobState.SUCCEEDED, 0, -1, "", -1, at, at,
        0, b"", 0, b"", order.line,
    )  # fmt: skip
