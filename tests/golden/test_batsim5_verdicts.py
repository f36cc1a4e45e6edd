"""Odd decisions and inputs, and what the real Batsim 5 made of them: ours accepts and refuses the same.

The recorded verdicts are used where they are at hand; a few are copied into `batsim5/verdicts.json`.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from golden.batsim5_replay import HERE, OneByOne
from pilothouse.dropins.batsim5.inputs import Batsim5Inputs
from pilothouse.dropins.batsim5.options import parse
from pilothouse.dropins.batsim5.outputs import Batsim5Outputs
from pilothouse.dropins.batsim5.run import Log, run
from pilothouse.model.errors import PilothouseError
from pilothouse.protocols.batprotocol.channel import Channel
from pilothouse.protocols.batprotocol.decider import EdcDecider

SHARED = Path(__file__).resolve().parents[3] / "shared/reference"
FILE = SHARED / "batsim5/verdicts2.json"
OWN = json.loads((HERE / "verdicts.json").read_text())
CASES = {case["name"]: case for case in (json.loads(FILE.read_text()) if FILE.exists() else OWN)}
INPUTS = SHARED / "inputs/v5" if FILE.exists() else HERE / "inputs"
OTHERWISE = {
    "decision_reg_seq_short_names": "Parts of a registered sequence may be named without their workload here. There it aborts.",
    "decision_twice_the_key_now": "Of a key that a message holds twice the last value counts here. There the message is refused.",
    "input_wl_job_key_twice": "Of a key that a job of a workload holds twice the last value counts here, the first there.",
}
COMMAND_LINE = ("input_cli_", "input_config_")
"""What is decided before inputs are read: the tests of the command line have it."""


class Recorded:
    """Answers as recorded, in either format."""

    name = "recorded"

    def __init__(self, case: Any) -> None:
        self._flags = case["flags"]
        self._answers = iter([_bytes(case["hello"]), *map(_bytes, case["replies"])])
        self.beyond = False

    def hello(self, init: bytes) -> tuple[int, bytes]:
        return self._flags, next(self._answers)

    def exchange(self, message: bytes) -> bytes:
        answer = next(self._answers, None)
        self.beyond = self.beyond or answer is None
        if answer is None:
            raise PilothouseError("nothing was recorded to say to this")
        return answer

    def close(self) -> None:
        """Nothing is held open."""


def _bytes(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else base64.b64decode(text["base64"])


def verdict(component: Channel, arguments: list[str]) -> tuple[int, list[str]]:
    """The exit code, and the rows of jobs.csv."""
    try:
        options = parse([*arguments, "-q"] if "-q" not in arguments else arguments)
        outputs = Batsim5Outputs(options.export, energy=options.energy_host)
        code = run(Batsim5Inputs(options, arguments).server(outputs), outputs, EdcDecider(component), Log("quiet"))
    except (PilothouseError, SystemExit):
        return -6, []
    return code, Path(f"{options.export}jobs.csv").read_text().splitlines()[1:]


def found(case: Any, folder: Path) -> tuple[int, list[str]]:
    for name, text in (case.get("files") or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(_bytes(text))
    if case["name"].startswith("input_"):
        (folder / "small_platform.xml").write_bytes(next(INPUTS.rglob("small_platform.xml")).read_bytes())
        arguments = list(case["args"])
        if "-l" in arguments:
            arguments[arguments.index("-l") : arguments.index("-l") + 3] = ["-s", "inproc://x", "{}"]
        return verdict(OneByOne(), arguments)
    workload = case["workload"]
    if isinstance(workload, dict):
        (folder / "w.json").write_text(json.dumps(workload))
        workload = "w.json"
    else:
        workload = str(next(INPUTS.rglob(workload)))
    platform = str(next(INPUTS.rglob(case["platform"])))
    component = Recorded(case)
    code, rows = verdict(component, ["-p", platform, "-w", workload, "-e", "out/", "-s", "inproc://x", "x", *case["args"]])
    assert not component.beyond, "it went on where the real one ended"
    return code, rows


@pytest.mark.peer("batsim5", "odd decisions and inputs, accepted and refused alike")
@pytest.mark.parametrize("name", sorted(name for name in CASES if name not in OTHERWISE and not name.startswith(COMMAND_LINE)))
def test_odd_decisions_and_inputs_are_accepted_and_refused_as_by_the_real_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    monkeypatch.chdir(tmp_path)
    code, rows = found(case, tmp_path)
    assert (code == 0) == (case["verdict"] == "accepted"), case.get("message")
    if code == 0 and name.startswith("decision_") and "jobs_csv" in case:
        assert rows == case["jobs_csv"]


@pytest.mark.peer_difference("batsim5", OTHERWISE["decision_reg_seq_short_names"])
@pytest.mark.peer_difference("batsim5", OTHERWISE["decision_twice_the_key_now"])
@pytest.mark.peer_difference("batsim5", OTHERWISE["input_wl_job_key_twice"])
@pytest.mark.parametrize("name", sorted(OTHERWISE.keys() & CASES.keys()))
def test_what_ours_takes_otherwise(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    monkeypatch.chdir(tmp_path)
    try:
        code, rows = found(case, tmp_path)
    except AssertionError:
        return  # It went on.
    assert code != 0 or rows != case.get("jobs_csv"), "ours does the same now: take it off the list"
