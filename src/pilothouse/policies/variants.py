"""Which variant of its algorithm each policy is: the choices that a name such as EASY leaves open.

The reference of policies is made from this, and catalog.py lists one with every policy. Two schedulers that share a name and
differ in one of these choices give different schedules.
"""

from __future__ import annotations

import msgspec


class Variant(msgspec.Struct, frozen=True):
    """The choices of one policy, each in a sentence or two."""

    reserved: str
    """What a waiting job is promised, and in what terms."""
    passes: str
    """When the queue is looked at."""
    ties: str
    """In what order jobs are looked at, and what decides between equals."""
    estimates: str
    """What it believes about running times."""
    early_ends: str
    """What happens when a job ends before its estimate."""
    equals: str
    """Whose schedules it gives, and from whose it differs."""


_EACH_EVENT = (
    "One pass for each event. At one date submissions come before terminations. The units of all jobs that end at a date are "
    "free at that date; those of a job that ends before its estimate count from its own event on."
)
_EACH_DATE = "One pass for each date, after all of its events."
_ARRIVAL = (
    "The more urgent job first (in a trace all are equally urgent), then by date of submission, then in the workload's order."
)
_REQUESTED = "The requested time, by default; `estimate=2x` doubles it, `estimate=clairvoyant` is the running time."
_NOT_USED = "Not used."
_LOOKS_AGAIN = "The whole queue is looked at again."

EASY = Variant(
    reserved=(
        "A number of units at a date, for the head of the queue only: the date when, by the estimates, enough units will be "
        "free (shadow time). Which units is left open. Another job may start now if it ends by that date (now + estimate <= "
        "shadow time), or fits into the units that the reservation leaves over. For a head that asks for nodes, GPUs or "
        "memory particular units are reserved, with the GPUs and the memory of their nodes that it needs. Where it asks for "
        "nodes alone, they are units that are busy now, as far as these are enough."
    ),
    passes=_EACH_EVENT,
    ties=_ARRIVAL + " Candidates for backfilling are looked at in the same order.",
    estimates=_REQUESTED + " A running job whose estimated end is now counts as ended.",
    early_ends="The reservation is computed anew from the jobs that still run, and the whole queue is looked at again.",
    equals=(
        "Equals the schedules published with Gaussier, Glesser, Reis and Trystram (SC'15), job by job: KTH-SP2 and SDSC-SP2. "
        "Differs from batsched's easy_bf, which reserves particular machines, and from easy_bf_fast: on the first 2,000 jobs "
        "of KTH-SP2 324 starts are other ones, and the mean wait differs by 9 %. Differs from CQSim and AccaSim."
    ),
)
EASY_SJBF = msgspec.structs.replace(
    EASY,
    ties=_ARRIVAL + " Candidates for backfilling are looked at by estimate, the shortest first; equals in order of arrival.",
    equals=(
        "Equals the schedule of EASY-SJBF published with Gaussier, Glesser, Reis and Trystram (SC'15), job by job: KTH-SP2 with "
        "`estimate=clairvoyant`."
    ),
)
FCFS = Variant(
    reserved="Nothing. No job starts before one that is ahead of it.",
    passes=_EACH_EVENT,
    ties=_ARRIVAL,
    estimates=_NOT_USED,
    early_ends="Jobs start from the head as long as they fit.",
    equals=(
        "There is one FCFS: on 10,000 jobs of SDSC-BLUE the mean wait is that of AccaSim, of CQSim and of Batsim with batsched."
    ),
)
FILLER = Variant(
    reserved="Nothing. Any job that fits starts; a large one may starve.",
    passes=_EACH_EVENT,
    ties=_ARRIVAL,
    estimates=_NOT_USED,
    early_ends=_LOOKS_AGAIN,
    equals="None published is known to be the same.",
)
CONSERVATIVE = Variant(
    reserved=(
        "A number of units at a date, for every waiting job: the earliest gap that holds it for its whole estimate beside the "
        "running jobs and the reservations of all jobs ahead. Which units is left open. While a job that asks for nodes, GPUs or "
        "memory waits, reservations are for particular nodes and hold everything that a job asks for. Then only the first 50 "
        "jobs that cannot start have one, and those behind them wait."
    ),
    passes=_EACH_DATE,
    ties=_ARRIVAL + " A more urgent job that arrives gets its reservation first.",
    estimates=_REQUESTED + " A job that runs longer is taken to end now.",
    early_ends=(
        "After every end all reservations are made again from nothing, in order. Most move earlier; one may move later, where a "
        "job ahead of it found a better gap. Compression, which moves one reservation at a time and never back, is another "
        "variant."
    ),
    equals="None published is known to be the same.",
)
BY_SCORE = Variant(
    reserved="By `backfill`: nothing (none), nothing and any job that fits may start (fill), or as `easy` for the head (easy).",
    passes=_EACH_EVENT,
    ties=(
        "The smallest score first; equals in order of arrival. A job without a score (a division by zero, a logarithm of zero) "
        "is first, one whose score is not a number last. A score that depends on the wait is computed for all jobs before every "
        "pass in which a unit is free."
    ),
    estimates="The score uses the requested time. Backfilling believes " + _REQUESTED[0].lower() + _REQUESTED[1:],
    early_ends=_LOOKS_AGAIN,
    equals="The functions are those of the literature; no published schedule is known to be the same.",
)
RANDOM = Variant(
    reserved="Nothing. What fits starts.",
    passes=_EACH_DATE,
    ties="All waiting jobs are shuffled before each pass in which a unit is free, by Python's `Random(seed).shuffle`.",
    estimates=_NOT_USED,
    early_ends=_LOOKS_AGAIN,
    equals="Itself, for one seed.",
)
QCG = Variant(
    reserved="Nothing. A job that does not fit stays, and the next is looked at; a large one may starve.",
    passes=_EACH_DATE,
    ties="By date of arrival; jobs of one request by their number. A job gets as many free units as it can use.",
    estimates=_NOT_USED,
    early_ends=_LOOKS_AGAIN,
    equals="The rules of the QCG PilotJob Manager, section Queue & Scheduler of its specification.",
)
