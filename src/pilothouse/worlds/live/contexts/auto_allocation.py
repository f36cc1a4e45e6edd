"""Carries out automatic allocation for a live world: asks the Allocator every few seconds, and does what it decides.

The batch system may take seconds to answer, so its commands run in a thread, one at a time. The world is used from its own
thread only (`_look`, about twice a second).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from pilothouse.model.errors import PeerError
from pilothouse.worlds.live.contexts.allocator import Action, AllocationPlan, Allocator, Cancel, Release, Submit
from pilothouse.worlds.live.contexts.batch_queue import BatchQueue
from pilothouse.worlds.live.contexts.batch_systems import BATCH_SYSTEMS, BatchJob, job_name
from pilothouse.worlds.live.world import LiveWorld

ASK_EVERY_S = 5.0
"""The batch system is asked no more often than this."""


class AutoAllocation:
    """Batch jobs that run `script` for a world. Call `close` at the end: no allocation outlives the run."""

    def __init__(self, world: LiveWorld, plan: AllocationPlan, script: Path, warn: Callable[[str], None]) -> None:
        self._world = world
        self._allocator = Allocator(plan)
        job = BatchJob(str(script), job_name(world.folder.name), str(world.folder), plan.options)
        self._queue = BatchQueue(BATCH_SYSTEMS[plan.system], job)
        self._warn = warn
        self._asked_at = -ASK_EVERY_S
        self._worker: threading.Thread | None = None
        self._known: set[str] | None = set()
        self._submitted: list[str] = []
        self._refusals: list[str] = []
        self._warned = ""
        world.on_tick.append(self._look)

    def _look(self) -> None:
        """Notes engines that joined; every few seconds, decides what to do and starts a thread that does it."""
        world, allocator = self._world, self._allocator
        if self._worker is not None and self._worker.is_alive():
            return
        now = world.now()
        self._take_answers(now)
        for engine in world.engines():
            allocator.engine_joined(engine.context.removeprefix("J"))
        if now - self._asked_at < ASK_EVERY_S or world.over:
            return
        self._asked_at = now
        actions: list[Action] = []
        if self._known is not None:
            wanted = world.demand()
            busy = [name.removeprefix("J") for name in wanted.busy]
            actions = allocator.decide(now, waiting=wanted.waiting, free=wanted.free, known=self._known, busy=busy)
        for action in actions:
            if isinstance(action, Release):
                world.stop_context(f"J{action.job_id}")
        if allocator.stopped_because and allocator.stopped_because != self._warned:
            self._warned = allocator.stopped_because
            self._warn(self._warned)
        if allocator.hopeless and not world.slots:
            world.stop("no allocation could be had")
            return
        self._worker = threading.Thread(target=self._ask, args=(actions,), name="batch system", daemon=True)
        self._worker.start()

    def close(self) -> None:
        """Gives every allocation back."""
        if self._worker is not None:
            self._worker.join()
        self._take_answers(self._world.now())
        try:
            self._queue.cancel(self._allocator.all_present())
        except PeerError as error:
            self._warn(str(error))

    def _take_answers(self, now: float) -> None:
        for job_id in self._submitted:
            self._allocator.submitted(job_id, now)
            if self._known is not None:
                self._known.add(job_id)
        for reason in self._refusals:
            self._allocator.refused(reason)
        self._submitted, self._refusals = [], []

    def _ask(self, actions: list[Action]) -> None:
        """In the worker: carries actions out, then asks which jobs there are."""
        cancelled = [action.job_id for action in actions if isinstance(action, Cancel)]
        try:
            self._queue.cancel(cancelled)
        except PeerError as error:
            self._warn(str(error))
        for action in actions:
            if isinstance(action, Submit):
                try:
                    self._submitted.append(self._queue.submit())
                except PeerError as error:
                    self._refusals.append(str(error))
        try:
            self._known = self._queue.known([*self._allocator.all_present(), *self._submitted])
        except PeerError as error:
            # Not knowing is not the same as gone: nothing is decided until the batch system answers again.
            self._known = None
            self._warn(str(error))
