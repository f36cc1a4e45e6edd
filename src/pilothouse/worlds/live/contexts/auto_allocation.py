"""Carries out automatic allocation for a live world: asks the Allocator every few seconds, and does what it decides.

The batch system may take seconds to answer, so it is asked in a thread of its own, one question at a time; the world is
only looked at, and asked to let engines go, from the world's thread (`look`, about twice a second).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from pilothouse.model.errors import PeerError
from pilothouse.worlds.live.contexts.allocator import Action, Allocator, Cancel, Release, Submit
from pilothouse.worlds.live.contexts.slurm_queue import SlurmQueue
from pilothouse.worlds.live.world import LiveWorld

ASK_EVERY_S = 5.0
"""The batch system is asked no more often than this."""


class AutoAllocation:
    """Add `look` to the world's on_tick, and call `close` at the end: no allocation outlives the run."""

    def __init__(
        self,
        world: LiveWorld,
        allocator: Allocator,
        queue: SlurmQueue,
        warn: Callable[[str], None],
        *,
        every_s: float = ASK_EVERY_S,
    ) -> None:
        self._world = world
        self._allocator = allocator
        self._queue = queue
        self._warn = warn
        self._every_s = every_s
        self._asked_at = -every_s
        self._worker: threading.Thread | None = None
        self._known: set[str] | None = set()
        self._submitted: list[str] = []
        self._refusals: list[str] = []
        self._told = ""

    def look(self) -> None:
        """Notes engines that joined; every few seconds, decides what to do and starts a thread that does it."""
        world, allocator = self._world, self._allocator
        if self._worker is not None and self._worker.is_alive():
            return
        now = world.now()
        self._take_answers(now)
        for engine in world.engines():
            allocator.engine_joined(engine.context.removeprefix("J"))
        if now - self._asked_at < self._every_s or world.over:
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
        if allocator.stopped_because and allocator.stopped_because != self._told:
            self._told = allocator.stopped_because
            self._warn(self._told)
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
                    self._submitted.append(self._queue.submit(self._allocator.plan.options))
                except PeerError as error:
                    self._refusals.append(str(error))
        try:
            self._known = self._queue.known([*self._allocator.all_present(), *self._submitted])
        except PeerError as error:
            # Not knowing is not the same as gone: nothing is decided until the batch system answers again.
            self._known = None
            self._warn(str(error))
