"""Recorded conversations of the real Batsim 5 with a random component, as they are and with decisions written otherwise.

`batsim5/random` holds a few small recordings, one or two for each class of mistakes that the whole sets found; the whole sets
are used where they are at hand. A random component of ours is in test_batsim5_fuzz.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

from golden.batsim5_replay import HERE, RecordedComponent, Recording, difference, same

SHARED = Path(__file__).resolve().parents[3] / "shared/reference"
OWN = {folder.name: folder for folder in sorted((HERE / "random").iterdir())}
FOUND = [SHARED / "batsim5/random", SHARED / "batsim5/random2"]
ALL = OWN | {folder.name: folder for found in FOUND if found.is_dir() for folder in found.iterdir() if folder.is_dir()}
RANDOM = "recorded conversations with a random component, messages and all files"


def plain(message: Any) -> Any:
    """Without the order of profiles, which has no meaning; no profiles are the same as an empty list of them."""
    for item in message["events"]:
        event = item["event"]
        event["profiles"] = sorted(event.get("profiles") or [], key=lambda profile: str(profile["id"]))
    return message


def replay(name: str, folder: Path, seed: int | None = None) -> None:
    """Compares all messages and files; with a seed the recorded decisions are written in another way."""
    found = Recording(ALL[name], HERE / "inputs" if ALL[name] is OWN.get(name) else SHARED / "inputs/v5")
    sent, answered = found.messages()
    if seed is not None:
        answered = [rewritten(answer, Random(f"{seed} {name} {number}")) for number, answer in enumerate(answered)]
    component = RecordedComponent(answered)
    code, _ = found.run(component, f"{folder}/")
    for number, (want, got) in enumerate(zip(sent, component.heard, strict=False)):
        assert same(plain(want), plain(got)), f"message {number}: {got}, expected {want}"
    assert len(component.heard) == len(sent)
    assert code == (-6 if found.exit_code == 134 else found.exit_code)
    if found.exit_code:
        return
    for file in sorted((found.folder / "out").iterdir()):
        kind = file.name.removesuffix(".gz")
        want = (found.text(f"out/{kind}") or "").replace('"5.0.0-rc2"', '"v5.0.0-rc2"')  # another build of it
        problem = difference(kind, want, (folder / kind).read_text())
        assert not problem, problem


@pytest.mark.peer("batsim5", RANDOM)
@pytest.mark.parametrize("name", sorted(ALL))
def test_a_recorded_random_component_hears_and_leaves_the_same(name: str, tmp_path: Path) -> None:
    replay(name, tmp_path)


# ---- the same decisions, written in another way

INTERVALS = re.compile(r"\d+(-\d+)?( \d+(-\d+)?)*")


@pytest.mark.peer("batsim5", "the same with decisions that are written in another way")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", sorted(ALL))
def test_decisions_that_mean_the_same_have_the_recorded_outcome(name: str, seed: int, tmp_path: Path) -> None:
    replay(name, tmp_path, seed)


def rewritten(value: Any, dice: Random, key: str = "") -> Any:
    """The same in other words: host lists in other intervals, members in another order, jobs to kill named twice."""
    if isinstance(value, dict):
        # The kind of a union comes before it.
        names = sorted(value, key=lambda name: (not name.endswith("_type"), dice.random()))
        return {name: rewritten(value[name], dice, name) for name in names}
    if isinstance(value, list):
        items = [rewritten(item, dice, key) for item in value]
        return [*items, items[0]] if key == "job_ids" and items and dice.random() < 0.5 else items
    if isinstance(value, str) and key in ("host_allocation", "host_ids") and INTERVALS.fullmatch(value):
        return other_intervals(value, dice)
    return value


def other_intervals(text: str, dice: Random) -> str:
    """The same hosts: one by one, in pieces that overlap, or in another order."""
    hosts: list[int] = []
    for part in text.split():
        first, _, last = part.partition("-")
        hosts += range(int(first), int(last or first) + 1)
    pieces = [text.split(), [str(host) for host in hosts], [*text.split(), str(dice.choice(hosts))]]
    chosen = dice.choice(pieces)
    dice.shuffle(chosen)
    return " ".join(chosen)
