"""The life of a job: one enum, one total table, and what each state is called elsewhere.

Theory. A job is KNOWN when somebody has described it, HELD while others must end first, WAITING while only resources are
missing. A decider's order makes it STARTING (its units are taken), the world's confirmation RUNNING; a world without a
launch phase (the simulated one) goes through both at once. Every life ends in exactly one final state, and a final state
is never left. Only a node that is lost sends a job back (REQUEUED), and only where the user allows it to run twice.

    KNOWN ──► HELD ──► WAITING ──► STARTING ──► RUNNING ──► SUCCEEDED | FAILED | TIMED_OUT | KILLED | LOST
                │         ▲  │         └── requeued ──┘
                ▼         └──┘────► REFUSED | KILLED        (before it ever started)
             OMITTED

`step` is the only way from one state to another; an illegal pair is None in the table and a LifecycleError.
"""

from __future__ import annotations

import enum


class JobState(enum.Enum):
    # Members are single objects: their address will do, and costs a third of Enum's own hash.
    __hash__ = object.__hash__

    KNOWN = "known"
    HELD = "held"
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    KILLED = "killed"
    LOST = "lost"
    REFUSED = "refused"
    OMITTED = "omitted"


class Stimulus(enum.Enum):
    """What can happen to a job, in the order of the table's columns."""

    __hash__ = object.__hash__

    HELD = "must wait for others"
    QUEUED = "only resources are missing"
    ALLOCATED = "a decider gave it units"
    LAUNCHED = "it runs"
    SUCCEEDED = "ended with code 0"
    FAILED = "ended with another code, or could not start"
    TIMED_OUT = "reached its walltime"
    KILLED = "killed or withdrawn"
    LOST = "its node was lost"
    REQUEUED = "its node was lost, and it may run again"
    REFUSED = "a decider will never start it"
    OMITTED = "a job that it waits for did not succeed"

    __hash__ = object.__hash__


class LifecycleError(AssertionError):
    """Something happened to a job that cannot happen in its state."""


_S = JobState
_NO = None
_FINAL_ROW: tuple[JobState | None, ...] = (_NO,) * len(Stimulus)

_ROWS: dict[JobState, tuple[JobState | None, ...]] = {
    #               HELD     QUEUED      ALLOCATED    LAUNCHED    SUCCEEDED      FAILED     TIMED_OUT     KILLED
    #               LOST     REQUEUED    REFUSED      OMITTED
    _S.KNOWN: (
        _S.HELD, _S.WAITING, _NO, _NO, _NO, _S.FAILED, _NO, _S.KILLED,
        _NO, _NO, _S.REFUSED, _S.OMITTED,
    ),
    _S.HELD: (
        _S.HELD, _S.WAITING, _NO, _NO, _NO, _NO, _NO, _S.KILLED,
        _NO, _NO, _S.REFUSED, _S.OMITTED,
    ),
    _S.WAITING: (
        _S.HELD, _S.WAITING, _S.STARTING, _NO, _NO, _S.FAILED, _NO, _S.KILLED,
        _NO, _NO, _S.REFUSED, _S.OMITTED,
    ),
    _S.STARTING: (
        _NO, _NO, _NO, _S.RUNNING, _S.SUCCEEDED, _S.FAILED, _S.TIMED_OUT, _S.KILLED,
        _S.LOST, _S.WAITING, _NO, _NO,
    ),
    _S.RUNNING: (
        _NO, _NO, _NO, _S.RUNNING, _S.SUCCEEDED, _S.FAILED, _S.TIMED_OUT, _S.KILLED,
        _S.LOST, _S.WAITING, _NO, _NO,
    ),
    _S.SUCCEEDED: _FINAL_ROW,
    _S.FAILED: _FINAL_ROW,
    _S.TIMED_OUT: _FINAL_ROW,
    _S.KILLED: _FINAL_ROW,
    _S.LOST: _FINAL_ROW,
    _S.REFUSED: _FINAL_ROW,
    _S.OMITTED: _FINAL_ROW,
}  # fmt: skip

TRANSITIONS: dict[tuple[JobState, Stimulus], JobState | None] = {
    (state, stimulus): target for state, row in _ROWS.items() for stimulus, target in zip(Stimulus, row, strict=True)
}

FINAL: frozenset[JobState] = frozenset(state for state, row in _ROWS.items() if row is _FINAL_ROW)


def step(state: JobState, stimulus: Stimulus) -> JobState:
    """The state after the stimulus; LifecycleError where the table has none."""
    target = TRANSITIONS[state, stimulus]
    if target is None:
        raise LifecycleError(f"a job that is {state.value} cannot be told: {stimulus.value}")
    return target


def launched(state: JobState) -> JobState:
    """The state after ALLOCATED and LAUNCHED in one: for worlds without a launch phase."""
    return _LAUNCHED.get(state) or step(step(state, Stimulus.ALLOCATED), Stimulus.LAUNCHED)


_LAUNCHED = {JobState.WAITING: step(step(JobState.WAITING, Stimulus.ALLOCATED), Stimulus.LAUNCHED)}

ENDS: dict[JobState, Stimulus] = {
    JobState.SUCCEEDED: Stimulus.SUCCEEDED,
    JobState.FAILED: Stimulus.FAILED,
    JobState.TIMED_OUT: Stimulus.TIMED_OUT,
    JobState.KILLED: Stimulus.KILLED,
    JobState.LOST: Stimulus.LOST,
    JobState.REFUSED: Stimulus.REFUSED,
    JobState.OMITTED: Stimulus.OMITTED,
}
"""Which stimulus brings a final state about."""

BATSIM: dict[JobState, str] = {
    JobState.KNOWN: "NOT_SUBMITTED",
    JobState.HELD: "SUBMITTED",
    JobState.WAITING: "SUBMITTED",
    JobState.STARTING: "RUNNING",
    JobState.RUNNING: "RUNNING",
    JobState.SUCCEEDED: "COMPLETED_SUCCESSFULLY",
    JobState.FAILED: "COMPLETED_FAILED",
    JobState.TIMED_OUT: "COMPLETED_WALLTIME_REACHED",
    JobState.KILLED: "COMPLETED_KILLED",
    JobState.LOST: "COMPLETED_FAILED",
    JobState.REFUSED: "REJECTED",
    JobState.OMITTED: "REJECTED",
}
"""Batsim 2 to 4 job states."""

FROM_BATSIM: dict[str, JobState] = {
    "NOT_SUBMITTED": JobState.KNOWN,
    "SUBMITTED": JobState.WAITING,
    "RUNNING": JobState.RUNNING,
    "COMPLETED_SUCCESSFULLY": JobState.SUCCEEDED,
    "COMPLETED_FAILED": JobState.FAILED,
    "COMPLETED_WALLTIME_REACHED": JobState.TIMED_OUT,
    "COMPLETED_KILLED": JobState.KILLED,
    "REJECTED": JobState.REFUSED,
}

BATPROTOCOL: dict[JobState, str] = {state: BATSIM[state] for state in JobState if state in FINAL}
"""batprotocol's FinalJobState: it only names final states."""

FLUX: dict[JobState, tuple[str, str]] = {
    JobState.KNOWN: ("NEW", ""),
    JobState.HELD: ("DEPEND", ""),
    JobState.WAITING: ("SCHED", ""),
    JobState.STARTING: ("RUN", "alloc"),
    JobState.RUNNING: ("RUN", "start"),
    JobState.SUCCEEDED: ("INACTIVE", "finish"),
    JobState.FAILED: ("INACTIVE", "finish"),
    JobState.TIMED_OUT: ("INACTIVE", "exception timeout"),
    JobState.KILLED: ("INACTIVE", "exception cancel"),
    JobState.LOST: ("INACTIVE", "exception node-failure"),
    JobState.REFUSED: ("INACTIVE", "exception alloc"),
    JobState.OMITTED: ("INACTIVE", "exception dependency"),
}
"""RFC 21: the state, and the event that brings a job of ours there."""

QCG: dict[JobState, str] = {
    JobState.KNOWN: "QUEUED",
    JobState.HELD: "QUEUED",
    JobState.WAITING: "QUEUED",
    JobState.STARTING: "SCHEDULED",
    JobState.RUNNING: "EXECUTING",
    JobState.SUCCEEDED: "SUCCEED",
    JobState.FAILED: "FAILED",
    JobState.TIMED_OUT: "FAILED",
    JobState.KILLED: "CANCELED",
    JobState.LOST: "FAILED",
    JobState.REFUSED: "FAILED",
    JobState.OMITTED: "OMITTED",
}
"""QCG PilotJob states (the specification's dialect has no SCHEDULED: it says QUEUED)."""
