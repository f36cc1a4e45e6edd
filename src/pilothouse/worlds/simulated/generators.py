"""Workloads that are made, not read: `lublin:jobs=5000,seed=3`, `poisson:load=0.8`, `bursts:size=50`, wherever a file may stand.

In: the text of the request and the number of units of the machine. Out: a Workload. The same text gives the same jobs.

* lublin: the model of Lublin and Feitelson (J. Parallel Distrib. Comput. 63, 2003) with the parameters that it gives for
  jobs of all kinds: sizes from a two-stage uniform distribution of their logarithm, run times from a hyper-gamma
  distribution that depends on the size, arrivals that follow a daily cycle.
* poisson: exponential gaps and run times, sizes that are powers of two.
* bursts: the same, but users submit several equal jobs at once; the number in a burst is geometric.

No model says what users request: the walltime is the run time times a factor between 1 and `overestimate`, and a second
more; that is counted under `Workload.oddities`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from math import exp, inf, isfinite, lgamma, log, log2
from random import Random

import msgspec

from pilothouse.formats.accounting import GUESSED_MORE_S
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, quoted, suggestion
from pilothouse.model.job import Job
from pilothouse.model.profile import Delay, Profile

DAY_S = 86400.0
MOST_JOBS = 50_000_000


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a generator. A load or a mean of None is that of the model."""

    jobs: int = 1000
    seed: int = 0
    load: float | None = None
    """Work that arrives, as a share of what the machine can do in that time."""
    overestimate: float = 1.0
    """A walltime is at most so many times the run time."""
    widest: int = 0
    """Units of the largest job; 0: those of the machine."""
    runtime: float = 3600.0
    """Mean run time in seconds (poisson, bursts)."""
    size: float = 20.0
    """Mean number of jobs in a burst (bursts)."""


class Drawn(msgspec.Struct):
    """A job before it has a name. `gap` is the time since the one before."""

    gap: float
    units: int
    run_s: float
    user: str = ""


def is_generated(text: str) -> bool:
    """Whether this names a generator."""
    return text.partition(":")[0] in GENERATORS


def with_seed(text: str, seed: int) -> str:
    """The request with that seed, unless it says one."""
    name, _, options = text.partition(":")
    if any(part.partition("=")[0].strip() == "seed" for part in options.split(",")):
        return text
    return f"{name}:{options + ',' if options else ''}seed={seed}"


def check(text: str) -> None:
    """InputError if the text asks for what no generator makes."""
    kind, _, options = text.partition(":")
    if kind not in GENERATORS:
        raise InputError(text, "no such generator", expected=", ".join(GENERATORS))
    _request(text, kind, options)


def generate(text: str, units: int, name: str = "w0") -> Workload:
    """The workload that the text asks for, on a machine of so many units. InputError."""
    kind, _, options = text.partition(":")
    request = _request(text, kind, options)
    if units < 1:
        raise InputError(text, "the size of the machine is not known", hint="name a platform: -p 128")
    widest = min(request.widest or units, units)
    rng = Random(f"{kind} {request.seed}")  # its bytes: the same on every machine
    drawn = list(GENERATORS[kind][0](request, widest, rng))
    if request.load is not None:
        _scale(drawn, request.load, units)
    profiles: dict[float, Profile] = {}
    jobs: list[Job] = []
    now = -drawn[0].gap
    for number, job in enumerate(drawn, 1):
        now += job.gap
        run_s = max(1.0, float(round(job.run_s)))
        if run_s not in profiles:
            profiles[run_s] = Profile(f"{name}!delay{run_s:g}", Delay(run_s))
        walltime = float(round(run_s * rng.uniform(1.0, request.overestimate))) + GUESSED_MORE_S
        jobs.append(
            Job(f"{name}!{number}", job.units, walltime, float(round(now)), profiles[run_s],
                user=job.user or str(number % 50), runtime=run_s)
        )  # fmt: skip
    factor = f" times 1 to {request.overestimate:g}" if request.overestimate > 1 else ""
    invented = f"walltime invented: the run time{factor} and a second"
    return Workload(name, text, units, jobs, {profile.name: profile for profile in profiles.values()}, {invented: len(jobs)})


def _request(text: str, kind: str, options: str) -> Request:
    known = GENERATORS[kind][1]
    given: dict[str, str] = {}
    for part in filter(None, options.split(",")):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or key not in known:
            raise InputError(text, f"no option {key!r}", expected=", ".join(known), hint=suggestion(key, known))
        given[key] = value
    try:
        request = msgspec.convert(given, Request, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError) as problem:
        raise InputError(text, f"not a generated workload: {problem}") from None
    for key, least, most in (("jobs", 1, MOST_JOBS), ("widest", 0, inf), ("overestimate", 1, 1e6)):
        if not least <= getattr(request, key) <= most:
            raise InputError(text, key, expected=f"{least} to {most:g}", found=str(getattr(request, key)))
    for key in ("load", "runtime", "size"):
        value = getattr(request, key)
        if value is not None and not (isfinite(value) and value > 0):
            raise InputError(text, key, expected="a number above 0", found=quoted(value))
    return request


def _scale(drawn: list[Drawn], load: float, units: int) -> None:
    """Stretches the gaps so that the work which arrives is that share of what the machine can do until the last arrival."""
    work = sum(job.units * job.run_s for job in drawn)
    span = sum(job.gap for job in drawn[1:])
    factor = work / (load * units * span) if span else 1.0
    for job in drawn:
        job.gap *= factor


# ---- Poisson and bursts


def _poisson(request: Request, widest: int, rng: Random) -> Iterator[Drawn]:
    for _ in range(request.jobs):
        yield Drawn(rng.expovariate(1 / request.runtime), _power_of_two(widest, rng), rng.expovariate(1 / request.runtime))


def _bursts(request: Request, widest: int, rng: Random) -> Iterator[Drawn]:
    made = burst = 0
    while made < request.jobs:
        burst += 1
        count = 1 + int(log(1 - rng.random()) / log(1 - 1 / request.size)) if request.size > 1 else 1
        units, mean_s = _power_of_two(widest, rng), rng.expovariate(1 / request.runtime)
        gap = rng.expovariate(1 / (request.runtime * request.size))
        for number in range(min(count, request.jobs - made)):
            yield Drawn(0.0 if number else gap, units, mean_s * rng.uniform(0.9, 1.1), f"burst{burst}")
        made += count


def _power_of_two(widest: int, rng: Random) -> int:
    return 1 << rng.randint(0, widest.bit_length() - 1)


# ---- Lublin and Feitelson

_SERIAL, _POWER_OF_TWO = 0.244, 0.576
"""Shares of jobs of one unit, and of parallel ones whose size is a power of two."""
_LOG_LOWEST, _MEDIUM_BELOW_TOP, _LOWER_HALF = 0.8, 2.5, 0.86
"""The two uniform stages of log2(size): from 0.8 to log2(widest) - 2.5 with probability 0.86, and from there to the top."""
_SHORT, _LONG = (4.2, 0.94), (312.0, 0.03)
"""Gamma distributions (shape, scale) of the natural logarithm of short and of long run times."""
_SHORT_SLOPE, _SHORT_BASE = -0.0054, 0.78
"""The share of short jobs is linear in the size, and 0 from 144 units on."""
_GAP = (10.2303 * 1.0225, 0.4871)
"""Gamma distribution of the logarithm of gaps, for all hours of a day."""
_CYCLE = (8.1737, 3.9631)
"""Gamma distribution of arrivals over the half hours of a day that begins at 5:30."""
_LONGEST_LOG_RUN, _LONGEST_LOG_GAP = 12.0, 13.0
_SLOTS, _FIRST_SLOT = 48, 11


def _lublin(request: Request, widest: int, rng: Random) -> Iterator[Drawn]:
    to_date = _daily_cycle()
    busy = before = 0.0
    for _ in range(request.jobs):
        busy += exp(_at_most(lambda: rng.gammavariate(*_GAP), _LONGEST_LOG_GAP)) / (DAY_S / _SLOTS)
        date = to_date(busy)
        units = _lublin_size(widest, rng)
        short = min(1.0, max(0.0, _SHORT_SLOPE * units + _SHORT_BASE))

        def log_run(short: float = short) -> float:
            return rng.gammavariate(*(_SHORT if rng.random() <= short else _LONG))

        yield Drawn(date - before, units, exp(_at_most(log_run, _LONGEST_LOG_RUN)), str(rng.randrange(50)))
        before = date


def _lublin_size(widest: int, rng: Random) -> int:
    chance = rng.random()
    top = log2(widest)
    if chance <= _SERIAL or top < 1:
        return 1
    medium = max(_LOG_LOWEST, top - _MEDIUM_BELOW_TOP)
    exponent = rng.uniform(_LOG_LOWEST, medium) if rng.random() <= _LOWER_HALF else rng.uniform(medium, top)
    if chance <= _SERIAL + _POWER_OF_TWO:
        exponent = min(int(top), round(exponent))
    size: float = 2.0**exponent
    return max(2, min(widest, round(size)))


def _at_most(draw: Callable[[], float], most: float) -> float:
    while True:
        found = draw()
        if found <= most:
            return found


def _daily_cycle() -> Callable[[float], float]:
    """From time that counts arrivals (1: as many as in a mean half hour) to dates: it passes fast in the rush hours."""
    weights = [0.0] * _SLOTS
    for slot in range(_FIRST_SLOT, _FIRST_SLOT + _SLOTS):
        weights[(slot - 1) % _SLOTS] = _gamma_share(slot + 0.5, *_CYCLE) - _gamma_share(slot - 0.5, *_CYCLE)
    mean = sum(weights) / _SLOTS
    weights = [weight / mean for weight in weights]
    ends = list(accumulate(weights))

    def to_date(busy: float) -> float:
        days, rest = divmod(busy, ends[-1])
        slot = min(_SLOTS - 1, bisect_right(ends, rest))
        return days * DAY_S + (slot + 1 - (ends[slot] - rest) / weights[slot]) * DAY_S / _SLOTS

    return to_date


def _gamma_share(x: float, shape: float, scale: float) -> float:
    """The share of a gamma distribution below x, by the series of the incomplete gamma function."""
    x /= scale
    term = total = 1 / shape
    step = shape
    while term > total * 1e-15:
        step += 1
        term *= x / step
        total += term
    return total * exp(shape * log(x) - x - lgamma(shape))


_COMMON = ("jobs", "seed", "load", "overestimate", "widest")
GENERATORS: dict[str, tuple[Callable[[Request, int, Random], Iterator[Drawn]], tuple[str, ...]]] = {
    "lublin": (_lublin, _COMMON),
    "poisson": (_poisson, (*_COMMON, "runtime")),
    "bursts": (_bursts, (*_COMMON, "runtime", "size")),
}
"""Name -> what draws the jobs, and the options that it has."""
