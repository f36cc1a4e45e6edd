"""What a running job is made of: a tree of activities that mirrors its profile.

Leaves take time (Sleep, Task, replays, messages); Parts runs others one after the other, Fork at once. Every activity
is begun with the walltime that is left, calls `over(code, left)` once when it ends (code 0: success; TIMED_OUT: the
walltime ran out), or is cancelled, which returns how far it had come. The walltime is handed on by subtraction as in
Batsim: a delay as long as what is left times out, and a sequence of delays never drifts from the sum of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from pilothouse.model.events import Progress
from pilothouse.model.profile import Profile, ReceiveMessage, SendMessage
from pilothouse.worlds.simulated.physics.agenda import WORK_PRECISION
from pilothouse.worlds.simulated.physics.sharing import Flow

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.physics.execution import Physics, Run

TIMED_OUT: Final = -1
CANCELLED: Final = -2
"""Return codes of Batsim for a reached walltime and for a parallel task that was killed."""

NOTHING_LEFT: Final = 1e-12
"""A task with less than this part of its work left is done."""

Over = Callable[[int, float], None]


class Activity:
    """The base of all: knows its profile, its run, and whom to tell."""

    __slots__ = ("_over", "physics", "profile", "run")

    kill_code = TIMED_OUT
    """The return code of a job that is killed while this is under way (Batsim's)."""

    def __init__(self, physics: Physics, run: Run, profile: Profile) -> None:
        self.physics = physics
        self.run = run
        self.profile = profile
        self._over: Over = _not_begun

    def begin(self, left: float, over: Over) -> None:
        """Starts now, with so many seconds of walltime left."""
        raise NotImplementedError

    def cancel(self) -> Progress:
        """Stops now; `over` is not called."""
        raise NotImplementedError

    def current_kill_code(self) -> int:
        return self.kill_code


def _not_begun(code: int, left: float) -> None:
    raise AssertionError("an activity ended that had not begun")


class Sleep(Activity):
    """A delay; uses no processor."""

    __slots__ = ("_began", "_entry", "_left", "_seconds")

    def __init__(self, physics: Physics, run: Run, profile: Profile, seconds: float) -> None:
        super().__init__(physics, run, profile)
        self._seconds = seconds
        self._began = self._left = 0.0
        self._entry = 0

    def begin(self, left: float, over: Over) -> None:
        self._over, self._left = over, left
        agenda = self.physics.agenda
        self._began = agenda.now
        # Only a delay shorter than the walltime succeeds.
        self._entry = agenda.after(min(self._seconds, left), self._wake)

    def _wake(self, _: object) -> None:
        if self.physics.machines is not None:
            self.physics.machines.woke(self.run.units.first())
        if self._seconds < self._left:
            self._over(self.profile.return_code, self._left - self._seconds)
        else:
            self._over(TIMED_OUT, 0.0)

    def cancel(self) -> Progress:
        agenda = self.physics.agenda
        agenda.cancel(self._entry)
        return Progress(self.profile.name, min(1.0, (agenda.now - self._began) / self._seconds))


class Task(Activity):
    """A parallel task: one flow over hosts and links."""

    __slots__ = ("_began", "_entry", "_flow", "_left")

    kill_code = CANCELLED

    def __init__(self, physics: Physics, run: Run, profile: Profile, flow: Flow) -> None:
        super().__init__(physics, run, profile)
        self._flow = flow
        self._began = self._left = 0.0
        self._entry = 0

    def begin(self, left: float, over: Over) -> None:
        self._over, self._left = over, left
        physics = self.physics
        self._began = physics.agenda.now
        self._flow.done = self._done
        physics.start_flow(self._flow)
        if left < inf:
            self._entry = (physics.demands.alarm or physics.agenda.after)(left, self._timed_out)

    def _done(self, _: Flow) -> None:
        agenda = self.physics.agenda
        if self._entry:
            agenda.cancel(self._entry)
        self._over(self.profile.return_code, max(0.0, self._left - (agenda.now - self._began)))

    def _timed_out(self, _: object) -> None:
        self._entry = 0
        physics, flow = self.physics, self._flow
        # A task that is done at the very date of its walltime has succeeded (a delay has not): so it is in SimGrid.
        done = physics.fluid.left(flow) < (NOTHING_LEFT if physics.demands.alarm is None else WORK_PRECISION)
        self.run.task_was_cut = not done
        linger = physics.demands.linger
        if done or linger is None:
            physics.stop_flow(flow)
        else:
            flow.done = _ended_unheard
            linger(self.run.job.id, flow)
        self._over(self.profile.return_code if done else TIMED_OUT, 0.0)

    def cancel(self) -> Progress:
        if self._entry:
            self.physics.agenda.cancel(self._entry)
        return Progress(self.profile.name, 1.0 - self.physics.stop_flow(self._flow))


def _ended_unheard(_: Flow) -> None:
    """The job has ended already."""


class Parts(Activity):
    """A sequence: parts one after the other, several times over; the first code other than 0 ends it."""

    __slots__ = ("_current", "_index", "_left", "_parts", "_repeat", "_repetition")

    def __init__(self, physics: Physics, run: Run, profile: Profile, parts: Sequence[Profile], repeat: int) -> None:
        super().__init__(physics, run, profile)
        self._parts = parts
        self._repeat = repeat
        self._repetition = self._index = 0
        self._left = inf
        self._current: Activity | None = None

    def begin(self, left: float, over: Over) -> None:
        self._over = over
        self._left = left
        if self.physics.is_empty(self.profile):
            over(self.profile.return_code, left)
        else:
            self._next()

    def _next(self) -> None:
        while self.physics.is_empty(self._parts[self._index]) and not self._parts[self._index].return_code:
            if self._step_is_last():
                return
        self._current = self.physics.activity(self.run, self._parts[self._index])
        self._current.begin(self._left, self._part_over)

    def _part_over(self, code: int, left: float) -> None:
        self._left = left
        if code:
            self._current = None
            self._over(code, left)
            return
        if not self._step_is_last():
            self._next()

    def _step_is_last(self) -> bool:
        """Goes on to the next part; True: there is none, and the sequence is over."""
        self._index += 1
        if self._index == len(self._parts):
            self._index = 0
            self._repetition += 1
            if self._repetition == self._repeat:
                self._current = None
                self._over(self.profile.return_code, self._left)
                return True
        return False

    def cancel(self) -> Progress:
        inner = self._current.cancel() if self._current is not None else None
        all_parts = self._repeat * len(self._parts)
        done = (self._repetition * len(self._parts) + self._index) / all_parts if all_parts else 1.0
        parts = (inner,) if inner is not None else ()
        return Progress(self.profile.name, done, self._repetition, self._index, parts)

    def current_kill_code(self) -> int:
        return self._current.current_kill_code() if self._current is not None else self.kill_code


class Fork(Activity):
    """A fork-join: all parts at once on the same hosts; over with the last, or as soon as one fails."""

    __slots__ = ("_branches", "_done", "_left", "_running")

    def __init__(self, physics: Physics, run: Run, profile: Profile, parts: Sequence[Profile]) -> None:
        super().__init__(physics, run, profile)
        self._branches = [physics.activity(run, part) for part in parts]
        self._running: dict[int, Activity] = {}
        self._done: dict[int, Progress] = {}
        self._left = inf

    def begin(self, left: float, over: Over) -> None:
        self._over = over
        self._left = left
        self._running = dict(enumerate(self._branches))
        for number, branch in enumerate(self._branches):
            if number in self._running:  # Unless a branch that failed at once has stopped the others.
                branch.begin(left, partial(self._branch_over, number))

    def _branch_over(self, number: int, code: int, left: float) -> None:
        branch = self._running.pop(number)
        self._done[number] = Progress(branch.profile.name, 1.0)
        self._left = min(self._left, left)
        if code:
            self._stop_others()
            self._over(code, left)
        elif not self._running:
            self._over(self.profile.return_code, self._left)

    def _stop_others(self) -> None:
        for number, branch in self._running.items():
            if branch._over is not _not_begun:
                self._done[number] = branch.cancel()
        self._running.clear()

    def cancel(self) -> Progress:
        self._stop_others()
        parts = tuple(self._done[number] for number in sorted(self._done))
        share = sum(part.done for part in parts) / len(self._branches)
        return Progress(self.profile.name, share, parts=parts)

    def current_kill_code(self) -> int:
        return min((branch.current_kill_code() for branch in self._running.values()), default=self.kill_code)


class Tell(Activity):
    """Tells the decider something, and sleeps once the message has got through."""

    __slots__ = ("_began", "_entry", "_left", "_seconds", "_spec")

    def __init__(self, physics: Physics, run: Run, profile: Profile, spec: SendMessage) -> None:
        super().__init__(physics, run, profile)
        self._spec = spec
        self._entry = 0
        self._began = self._left = 0.0
        self._seconds = spec.seconds

    def begin(self, left: float, over: Over) -> None:
        self._over, self._left = over, left
        self._began = self.physics.agenda.now
        self.physics.tell(self.run, self._spec.message, self._told)

    def _told(self) -> None:
        if self._over is _not_begun:
            return  # Cancelled while the message was on its way.
        agenda = self.physics.agenda
        # QUIRK: the walltime does not count the time of the message itself (tests/unit/worlds/simulated).
        self._entry = agenda.after(min(self._seconds, self._left), self._wake)

    def _wake(self, _: object) -> None:
        if self._seconds < self._left:
            self._over(self.profile.return_code, self._left - self._seconds)
        else:
            self._over(TIMED_OUT, 0.0)

    def cancel(self) -> Progress:
        self._over = _not_begun
        if self._entry:
            self.physics.agenda.cancel(self._entry)
        return Progress(self.profile.name, 0.0)


class Hear(Activity):
    """Waits for a message from the decider; what it says selects how to go on."""

    __slots__ = ("_current", "_entry", "_left", "_spec")

    def __init__(self, physics: Physics, run: Run, profile: Profile, spec: ReceiveMessage) -> None:
        super().__init__(physics, run, profile)
        self._spec = spec
        self._entry = 0
        self._left = inf
        self._current: Activity | None = None

    def begin(self, left: float, over: Over) -> None:
        self._over, self._left = over, left
        self._poll(None)

    def _poll(self, _: object) -> None:
        self._entry = 0
        spec = self._spec
        mailbox = self.run.messages
        if mailbox:
            message = mailbox.popleft()
            self._go_on(spec.on_match if re.fullmatch(spec.pattern, message) else spec.on_other)
        elif spec.on_timeout:
            self._go_on(spec.on_timeout)
        else:
            agenda = self.physics.agenda
            if spec.poll_seconds < self._left:
                self._left -= spec.poll_seconds
                self._entry = agenda.after(spec.poll_seconds, self._poll)
            else:
                self._entry = agenda.after(self._left, self._timed_out)

    def _go_on(self, name: str) -> None:
        if not name:
            self._over(self.profile.return_code, self._left)
            return
        self._current = self.physics.activity(self.run, self.physics.profile(name))
        self._current.begin(self._left, self._part_over)

    def _part_over(self, code: int, left: float) -> None:
        self._current = None
        self._over(code or self.profile.return_code, left)

    def _timed_out(self, _: object) -> None:
        self._over(TIMED_OUT, 0.0)

    def cancel(self) -> Progress:
        if self._current is not None:
            return Progress(self.profile.name, parts=(self._current.cancel(),))
        if self._entry:
            self.physics.agenda.cancel(self._entry)
        return Progress(self.profile.name, 0.0)

    def current_kill_code(self) -> int:
        return self._current.current_kill_code() if self._current is not None else self.kill_code
