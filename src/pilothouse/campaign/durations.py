"""How long tasks take, as a forecast knows it: given, or learned from tasks that have run.

In: numbers of seconds, or `Observed` tasks (the journals of earlier runs; of a run that goes on, also the tasks that have not
ended, which take longer than they have run). Out: `Draw`s: one of them says how long every task takes in one simulation.

A task that ran before (the same command, the same repeat index) takes as long again, give or take what tasks varied by from run
to run, each by itself (spread) and all together (drift: a slower machine, a busier file system). Another one takes as long as
similar tasks: those of the same command, else those whose commands differ in numbers only, else those of the same program, else
all.

Each simulation draws the observed tasks again before it draws from them (bootstrap), so that few observations make a forecast
less certain. A bootstrap alone makes ranges too narrow, the more so the fewer observations there are: what the mean moves by is
stretched as Student's t is wider than the normal distribution, and the spread is drawn as well (chi-squared). Forecasts are of
new tasks, not of their mean: every task has a length of its own.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from math import exp, inf, log
from random import Random
from statistics import fmean, stdev

import msgspec

from pilothouse.campaign.significance import widening
from pilothouse.worlds.live.wire.messages import Task

ASSUMED_SPREAD = 0.03
"""By how much the same task is taken to vary from run to run, if it was seen only once (standard deviation of the logarithm)."""
ASSUMED_DRIFT = 0.01
"""By how much all tasks together are taken to vary from run to run, if one run was seen."""
LONE_SPREAD = 0.5
"""By how much similar tasks are taken to vary if only one was seen (standard deviation of the logarithm)."""
MOST_WIDER = 2.0
"""The spread of similar tasks is taken to be at most so many times the observed one."""
MOST_OBSERVED = 1000
"""Of each group of similar tasks the last ones count."""
SHORTEST_S = 1e-4
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")

Key = tuple[str, int]
"""A task: its command and its repeat index."""
Draw = Callable[[Task, float], float]
"""(task, for how long it has run) -> how long it takes in all."""


class Observed(msgspec.Struct, frozen=True):
    """A task that ran, or runs."""

    command: str
    repeat_index: int
    seconds: float
    ended: bool = True
    """If not, it will have taken longer."""


class Match(msgspec.Struct, frozen=True):
    """How many tasks of a file were seen before."""

    same: int
    similar: int
    unknown: int
    """No task of the same program was seen."""

    @property
    def tasks(self) -> int:
        return self.same + self.similar + self.unknown


class GivenDurations:
    """One length for all tasks, or several, of which each task takes one."""

    def __init__(self, seconds: Sequence[float]) -> None:
        self._seconds = tuple(seconds)
        self.certain = len(set(self._seconds)) == 1
        """Every simulation has the same outcome."""

    @property
    def mean_s(self) -> float:
        return fmean(self._seconds)

    def draw(self, random: Random) -> Draw:
        seconds = self._seconds
        return lambda task, age: max(random.choice(seconds), age)


class LearnedDurations:
    """What tasks took before. `runs`: the observed tasks of each run."""

    certain = False

    def __init__(self, runs: Iterable[Iterable[Observed]]) -> None:
        self._same: dict[Key, dict[int, float]] = {}
        """The logarithms of what a task took, by the number of the run."""
        self._similar: dict[str, list[Observed]] = {}
        for number, run in enumerate(runs):
            in_run: dict[Key, list[float]] = {}
            for task in run:
                if task.ended:
                    in_run.setdefault((task.command, task.repeat_index), []).append(log(max(task.seconds, SHORTEST_S)))
                for name in groups_of(task.command):
                    self._similar.setdefault(name, []).append(task)
            for key, logs in in_run.items():
                if len(logs) == 1:  # several tasks of one run are similar, whatever their command
                    self._same.setdefault(key, {})[number] = logs[0]
        self._similar = {name: found for name, found in self._similar.items() if any(task.ended for task in found)}
        self.spread, self.drift = ASSUMED_SPREAD, ASSUMED_DRIFT
        self.measured_spread = self._measure()

    def _measure(self) -> bool:
        """Finds out how much tasks vary from run to run, each by itself and all together. False: no task was seen twice."""
        apart: dict[int, list[float]] = {}
        """What the tasks of each run took, beside what they took on average."""
        tasks = [logs for logs in self._same.values() if len(logs) > 1]
        for logs in tasks:
            for number, one in logs.items():
                apart.setdefault(number, []).append(one - fmean(logs.values()))
        if not tasks:
            return False
        together = {number: fmean(logs) for number, logs in apart.items()}
        self.drift = (sum(one**2 for one in together.values()) / (len(together) - 1)) ** 0.5
        squares = sum((one - together[number]) ** 2 for number, logs in apart.items() for one in logs)
        freedom = sum(len(logs) - 1 for logs in tasks) - (len(together) - 1)
        self.spread = (squares / freedom) ** 0.5 if freedom else self.drift
        return True

    @property
    def mean_s(self) -> float:
        """Of all tasks that have ended; inf: none has."""
        ended = [task.seconds for task in self._similar.get("", ()) if task.ended]
        return fmean(ended) if ended else inf

    def match(self, tasks: Iterable[Key]) -> Match:
        """How many of these tasks were seen before, or tasks like them."""
        same = similar = unknown = 0
        for key in tasks:
            if key in self._same:
                same += 1
            elif any(name in self._similar for name in groups_of(key[0])[:-1]):
                similar += 1
            else:
                unknown += 1
        return Match(same, similar, unknown)

    def draw(self, random: Random) -> Draw:
        drawn: dict[str, Lengths] = {}
        drift = random.gauss(0.0, self.drift)

        def seconds(task: Task, age: float) -> float:
            command = os.fsdecode(task.line or b" ".join(task.argv))
            logs = self._same.get((command, task.repeat_index))
            if logs is not None:
                apart = random.gauss(0.0, self.spread) + drift
                return max(exp(fmean(logs.values()) + apart * (1 + 1 / len(logs)) ** 0.5), age)
            name = next(name for name in groups_of(command) if name in self._similar or not name)
            if name not in drawn:
                drawn[name] = Lengths(self._similar.get(name, [])[-MOST_OBSERVED:], random)
            return drawn[name].one(random, age)

        return seconds


class Lengths:
    """The lengths that tasks of a group have, with those that have not ended (the Kaplan-Meier estimate).

    With a source of chance: one of the distributions that may have led to these observations."""

    def __init__(self, observed: Sequence[Observed], random: Random | None = None) -> None:
        known = _logs(observed)
        again = observed if random is None else [random.choice(observed) for _ in observed]
        rest, at_risk = 1.0, len(again)
        self._seconds: list[float] = []
        self._below: list[float] = []
        """The share of tasks that take no longer."""
        for task in sorted(again, key=lambda task: (task.seconds, not task.ended)):
            if task.ended:
                rest *= 1 - 1 / at_risk
                self._seconds.append(task.seconds)
                self._below.append(1 - rest)
            at_risk -= 1
        self._longest = max((task.seconds for task in again), default=SHORTEST_S)
        self._logs = [log(max(seconds, SHORTEST_S)) for seconds in self._seconds]
        self._middle = fmean(self._logs) if self._logs else 0.0
        # Other lengths than the observed ones are possible as well, the more so the fewer there are (smoothed bootstrap,
        # Silverman's rule). What this adds to the variance is taken off again.
        count = len(known)
        spread = stdev(known) if count > 1 else 0.0
        self._blur = 1.06 * spread * count**-0.2 if count > 1 else LONE_SPREAD if random is not None else 0.0
        self._scale = (spread**2 / (spread**2 + self._blur**2) * count / (count - 1)) ** 0.5 if spread else 1.0
        self._centre = self._middle
        if random is not None and count > 1 and self._logs:
            squares = random.gammavariate((count - 1) / 2, 2.0)  # chi-squared
            wider = min(((count - 1) / squares) ** 0.5, MOST_WIDER) if squares else MOST_WIDER
            self._scale *= wider
            self._centre = fmean(known) + (self._middle - fmean(known)) * widening(count, 0.1) * wider

    def one(self, random: Random, age: float = 0.0) -> float:
        """How long a task takes that has run for so long already: about as long as one of the observed ones. One that has run
        for longer than any takes up to as long again."""
        longer = bisect_right(self._seconds, age)
        before = self._below[longer - 1] if longer else 0.0
        index = bisect_right(self._below, before + random.random() * (1 - before))
        if longer < len(self._seconds) and index < len(self._seconds):
            apart = self._logs[index] - self._middle + random.gauss(0.0, self._blur)
            return max(exp(self._centre + self._scale * apart), age)
        return max(self._longest, age) * (1 + random.random())


def _logs(observed: Iterable[Observed]) -> list[float]:
    return [log(max(task.seconds, SHORTEST_S)) for task in observed if task.ended]


def groups_of(command: str) -> tuple[str, str, str, str]:
    """The groups of tasks that a command belongs to, the narrowest first: the command; numbers left out; the program; all."""
    words = command.split(None, 1)
    return f"command {command}", f"like {_NUMBER.sub('#', command)}", f"program {words[0] if words else ''}", ""
