"""How long tasks take, as a forecast knows it: given, or learned from tasks that have run.

In: numbers of seconds, or `Observed` tasks (the journals of earlier runs; of a run that goes on, also the tasks that have not
ended, which take longer than they have run). Out: `Draw`s: one of them says how long every task takes in one simulation.

A task that ran before (the same command, the same repeat index) takes as long again, give or take what tasks varied by from run
to run, each by itself (spread) and all together (drift: a slower machine, a busier file system). Another one takes as long as
similar tasks: those of the same command, else those whose commands differ in numbers only, else those of the same program, else
all.

Forecasts are of new tasks, not of the mean of old ones: every task has a length of its own, and it may be shorter or longer than
any that was observed. After n observations a new task lies in each of the n+1 gaps between them, before the least and behind the
largest, with the same probability (Hill's assumption). How many of all tasks each gap holds is drawn anew for each simulation
(Bayesian bootstrap), so that few observations make a forecast less certain. An observation counts for half: where few tasks take
most of the time, observed ones say less than their number suggests. `bench/fidelity.py --virtual --lengths all` shows how often
the ranges hold.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from math import exp, inf, log
from random import Random
from statistics import fmean

import msgspec

from pilothouse.worlds.live.wire.messages import Task

ASSUMED_SPREAD = 0.03
"""By how much the same task is taken to vary from run to run, if it was seen only once (standard deviation of the logarithm)."""
ASSUMED_DRIFT = 0.01
"""By how much all tasks together are taken to vary from run to run, if one run was seen."""
LONE_TAIL = 0.5
"""By how much other tasks are taken to be longer or shorter than the only one that was seen (mean of the logarithm)."""
MOST_TAIL = 1.0
"""By how much lengths beyond the observed ones are at most apart from these (mean of the logarithm)."""
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
        self._lengths: dict[str, Lengths] = {}
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
        drawn: dict[str, Callable[[float], float]] = {}
        drift = random.gauss(0.0, self.drift)

        def seconds(task: Task, age: float) -> float:
            command = os.fsdecode(task.line or b" ".join(task.argv))
            logs = self._same.get((command, task.repeat_index))
            if logs is not None:
                apart = random.gauss(0.0, self.spread) + drift
                return max(exp(fmean(logs.values()) + apart * (1 + 1 / len(logs)) ** 0.5), age)
            name = next(name for name in groups_of(command) if name in self._similar or not name)
            if name not in drawn:
                if name not in self._lengths:
                    self._lengths[name] = Lengths(self._similar.get(name, [])[-MOST_OBSERVED:])
                drawn[name] = self._lengths[name].likely(random)
            return drawn[name](age)

        return seconds


class Lengths:
    """What tasks of a group took, with those that have not ended."""

    def __init__(self, observed: Sequence[Observed]) -> None:
        self._ordered = sorted(observed, key=lambda task: (task.seconds, not task.ended))
        self._seconds = ended = [max(task.seconds, SHORTEST_S) for task in self._ordered if task.ended]
        self._longest = self._ordered[-1].seconds if self._ordered else SHORTEST_S
        self._shorter = self._longer = LONE_TAIL
        self._excess_s = LONE_TAIL * self._longest
        if len(ended) > 1:
            # The tails, from the shortest and the longest observations: how far they lie beyond the next one.
            count = int(len(ended) ** 0.5)
            logs = [log(seconds) for seconds in ended]
            self._shorter = min(logs[count] - fmean(logs[:count]), MOST_TAIL)
            self._longer = min(fmean(logs[-count:]) - logs[-count - 1], MOST_TAIL)
            self._excess_s = fmean(ended[-count:]) - ended[-count - 1]

    def likely(self, random: Random) -> Callable[[float], float]:
        """One distribution that may have led to these observations: (how long a task has run) -> how long it takes in all."""
        ended, longest = self._seconds, self._longest
        later = random.gauss(0.0, 1.0) ** 2  # gamma distributed, with shape 1/2; together they are a Dirichlet distribution
        left: list[float] = []
        for task in reversed(self._ordered):
            here = random.gauss(0.0, 1.0) ** 2
            if task.ended:
                left.append(later / (here + later))
            later += here
        below: list[float] = []
        """The share of tasks that take no longer than each that has ended."""
        rest = 1.0
        for part in reversed(left):
            rest *= part
            below.append(1 - rest)

        def seconds(age: float) -> float:
            if not ended or age >= longest:
                # It has run for longer than any: up to as long again.
                return max(longest, age) * (1 + random.random())
            before = self._share(below, age) if age > 0.0 else 0.0
            share = before + (1 - random.random()) * (1 - before)
            place = bisect_right(below, share)
            if place == 0:
                found = ended[0] * exp(log(share / below[0]) * self._shorter)
            elif place < len(below):
                part = (share - below[place - 1]) / (below[place] - below[place - 1])
                found = ended[place - 1] + part * (ended[place] - ended[place - 1])
            elif longest > ended[-1]:
                return longest * (1 + random.random())
            else:
                # Between an exponential tail and a power law.
                beyond = random.expovariate(1.0)
                found = ((longest + self._excess_s * beyond) * longest * exp(self._longer * beyond)) ** 0.5
            return max(found, age)

        return seconds

    def _share(self, below: list[float], age: float) -> float:
        """The share of tasks that take no longer than that."""
        ended = self._seconds
        place = bisect_right(ended, age)
        if place == 0:
            return below[0] * exp(log(age / ended[0]) / self._shorter) if self._shorter else 0.0
        if place == len(ended):
            return below[-1]
        part = (age - ended[place - 1]) / (ended[place] - ended[place - 1])
        return below[place - 1] + part * (below[place] - below[place - 1])


def groups_of(command: str) -> tuple[str, str, str, str]:
    """The groups of tasks that a command belongs to, the narrowest first: the command; numbers left out; the program; all."""
    words = command.split(None, 1)
    return f"command {command}", f"like {_NUMBER.sub('#', command)}", f"program {words[0] if words else ''}", ""
