"""The options of a live run: one struct, kept in the journal so that a resumed run goes on in the same way."""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.model.job import Shape
from pilothouse.worlds.live.wire.messages import LINGER_S, TaskEnvironment

TASK_ENV = "\0".join(
    (
        "PILOTHOUSE_TASK={task}",
        "PILOTHOUSE_LINE={line}",
        "PILOTHOUSE_REPEAT_INDEX={repeat}",
        "PILOTHOUSE_ATTEMPT={attempt}",
        "DISBATCH_TASKID={task}",
        "DISBATCH_TASKID_ZP={task:06d}",
        "DISBATCH_STREAM_INDEX={line}",
        "DISBATCH_STREAM_INDEX_ZP={line:06d}",
        "DISBATCH_REPEAT_INDEX={repeat}",
        "DISBATCH_REPEAT_INDEX_ZP={repeat:06d}",
    )
)
"""What every task finds in its environment, besides what its engine has."""


MOST_SLOTS = 1024
"""Slots that one engine may have, unless an option says otherwise: each slot in use is a process of about 3 MB and its task."""


class LiveOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Choices of one run. Durations in seconds."""

    units: int = 1
    """Units (slots, cores) of each line of the task file."""
    shape: Shape | None = None
    walltime: float = inf
    environment: TaskEnvironment = msgspec.field(default=TaskEnvironment(), name="surroundings")
    """Named as in journals of earlier versions."""
    retries: int = 0
    """How often a task that failed is tried again."""
    retry_memory: float = 0.0
    """A task that was ended for its memory runs again with so many times as much, if a node has that; 0: it does not."""
    reissue: bool = True
    """Tasks whose engine was lost run again elsewhere; else they are reported as lost."""
    at_most_once: bool = False
    """Never start a task that may have been begun before."""
    most_losses: int = 5
    """A task that was lost with this many engines is not tried again: it may be what kills them."""
    fail_fast: bool = False
    bundle: int = 1000
    """The most tasks in one bundle; 1: every task is decided about by itself."""
    window: int = 0
    """Jobs that the decider sees waiting at once; 0: as many as there are units, and some more."""
    most_slots: int = MOST_SLOTS
    heartbeat_s: float = 2.0
    lost_after_s: float = 60.0
    wait_for_driver_s: float = 600.0
    engines_within_s: float = 5.0
    """How long a run waits for its other engines before it begins, once there is one; later ones join it."""
    enough_engines: float = 1.0
    """And the share of all engines with which it need not wait any longer."""
    return_within_s: float = 60.0
    """How long a resumed driver waits for the engines that it had."""
    grace_s: float = 10.0
    """Between TERM and KILL."""
    output_bytes: int = 0
    """The most that is kept of the output of all tasks together; `environment.keep` is the most of one."""
    linger_s: float = LINGER_S
    """How long a slot waits for the output of commands that its task left in the background."""
    env: dict[str, str] = {}
    task_env: str = TASK_ENV
    """Variables of each task; "" for jobs of another system, which find none of disBatch's."""
    retire_idle: bool = False
    """Engines leave as soon as no task is left for them, while others still work."""
    service: bool = False
    """The run goes on without engines and without work until `no_more` is called."""
    context_limits: dict[str, int] = {}
    """Context -> the most tasks that it may be given."""
