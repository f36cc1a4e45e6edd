"""The policies by name: `easy`, `easy:estimate=2x`, `priority:score=r*n,backfill=easy`, `random:seed=7`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pilothouse.model.errors import InputError, quoted, suggestion
from pilothouse.model.numerals import whole_number
from pilothouse.policies import score, variants
from pilothouse.policies.base import Policy
from pilothouse.policies.conservative import Conservative
from pilothouse.policies.qcg import Qcg
from pilothouse.policies.queueing import ESTIMATES, Estimate, Queueing
from pilothouse.policies.random_order import RandomOrder
from pilothouse.policies.variants import Variant

Options = dict[str, str]


class Listing(msgspec.Struct, frozen=True):
    """One line of `pilothouse policies`: what it is, what options it takes, how it is made."""

    summary: str
    options: dict[str, str]
    """Option -> what it may be."""
    make: Callable[[Options], Policy]
    variant: Variant
    """Which variant of its algorithm it is."""


_ESTIMATE = {"estimate": " | ".join(ESTIMATES)}
_BACKFILL = {"backfill": "none | fill | easy"}


def _estimate(options: Options) -> Estimate:
    name = options.get("estimate", "requested")
    if name not in ESTIMATES:
        raise InputError("estimate", "unknown estimate", expected=f"one of {', '.join(ESTIMATES)}", found=quoted(name))
    return ESTIMATES[name]


def _by_score(text: str, options: Options) -> Policy:
    backfill = options.get("backfill", "none")
    if backfill not in ("none", "fill", "easy"):
        raise InputError("backfill", "unknown way to backfill", expected="none, fill or easy", found=quoted(backfill))
    expression = score.Expression(text)
    return Queueing(backfill, score=expression, ages=expression.ages, estimate=_estimate(options))


def _priority(options: Options) -> Policy:
    if "score" not in options:
        raise InputError("priority", "option 'score' is missing", hint="for example priority:score=r*n,backfill=easy")
    text = options["score"]
    return _by_score(score.KNOWN[text][0] if text in score.KNOWN else text, options)


def _known_score(text: str) -> Callable[[Options], Policy]:
    return lambda options: _by_score(text, options)


def _random_order(options: Options) -> Policy:
    text = options.get("seed", "0")
    seed = whole_number(text)
    if seed is None:
        raise InputError("seed", "not a seed", expected="a whole number", found=quoted(text))
    return RandomOrder(seed)


CATALOG: dict[str, Listing] = {
    "fcfs": Listing("first come, first served: nothing overtakes", {}, lambda options: Queueing("none"), variants.FCFS),
    "filler": Listing(
        "first fit: whatever fits starts, large jobs may starve", {}, lambda options: Queueing("fill"), variants.FILLER
    ),
    "easy": Listing(
        "EASY backfilling: only the head of the queue has a reservation",
        _ESTIMATE,
        lambda options: Queueing("easy", estimate=_estimate(options)),
        variants.EASY,
    ),
    "easy-sjbf": Listing(
        "EASY with the shortest jobs backfilled first",
        _ESTIMATE,
        lambda options: Queueing("easy", shortest_first=True, estimate=_estimate(options)),
        variants.EASY_SJBF,
    ),
    "conservative": Listing(
        "conservative backfilling: every waiting job has a reservation",
        _ESTIMATE,
        lambda options: Conservative(estimate=_estimate(options)),
        variants.CONSERVATIVE,
    ),
    "priority": Listing(
        "smallest score first, with or without backfilling",
        {"score": f"an expression over r, n, s, w, p, or one of {', '.join(score.KNOWN)}", **_BACKFILL, **_ESTIMATE},
        _priority,
        variants.BY_SCORE,
    ),
    **{
        name: Listing(f"{about} ({text})", {**_BACKFILL, **_ESTIMATE}, _known_score(text), variants.BY_SCORE)
        for name, (text, about) in score.KNOWN.items()
    },
    "random": Listing("a seeded random order", {"seed": "a whole number"}, _random_order, variants.RANDOM),
    "qcg": Listing(
        "the rules of the QCG PilotJob Manager: FIFO, as much as possible, go on past what does not fit",
        {},
        lambda options: Qcg(),
        variants.QCG,
    ),
}


def make(name: str, options: Options) -> Policy:
    """A policy of the catalog; InputError for a name or an option that it does not have."""
    listing = CATALOG.get(name)
    if listing is None:
        expected = f"one of {', '.join(CATALOG)}, or file.py:Class"
        raise InputError(name, "no such policy", expected=expected, hint=suggestion(name, CATALOG))
    for option in options:
        if option not in listing.options:
            known = ", ".join(listing.options) or "none"
            raise InputError(name, f"no option {option!r}", expected=known, hint=suggestion(option, listing.options))
    return listing.make(options)


def parse_options(text: str, where: str) -> Options:
    """`a=1,b=2` as a dictionary. A comma inside brackets belongs to the value."""
    options: Options = {}
    depth = start = 0
    for index, character in enumerate(text + ","):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            key, equals, value = text[start:index].partition("=")
            if not equals or not key.strip():
                raise InputError(where, "options", expected="name=value,name=value", found=quoted(text))
            options[key.strip()] = value.strip()
            start = index + 1
    return options
