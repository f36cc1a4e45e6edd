"""The table of decisions: every world answers to every decision.

A world lists the decisions that it carries out; `table` makes that list total. A decision that is not listed raises a
DecisionError that says what this world cannot do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar, get_args

from pilothouse.model import decisions as d
from pilothouse.model.errors import DecisionError

Handler = TypeVar("Handler", bound=Callable[..., Any])

DECISIONS: tuple[type, ...] = get_args(d.Decision)

WHAT: dict[type, str] = {
    d.StartJob: "start jobs",
    d.RejectJob: "reject jobs",
    d.ConfirmWithdrawal: "withdraw jobs",
    d.KillJobs: "kill jobs",
    d.CallAt: "call the decider at a date",
    d.CallEvery: "call the decider periodically",
    d.StopCalls: "stop periodic calls",
    d.RegisterJob: "register jobs",
    d.RegisterProfile: "register profiles",
    d.FinishRegistration: "finish registrations",
    d.ResumeRegistration: "resume registrations",
    d.SetPowerState: "set power states",
    d.SwitchUnits: "switch units on or off",
    d.Annotate: "annotate jobs",
    d.SetMetadata: "set the metadata of jobs",
    d.SetJobState: "set the state of jobs",
    d.CreateProbe: "create probes",
    d.TriggerProbe: "trigger probes",
    d.ResetProbe: "reset probes",
    d.StopProbe: "stop probes",
    d.MeasureEnergy: "measure energy",
    d.AnswerEstimate: "take an estimate of a waiting time",
    d.AnswerFeasibility: "take an answer about feasibility",
    d.SendToJob: "send messages to jobs",
    d.StopWorld: "be stopped by the decider",
}
"""What a decision asks of a world; a test keeps it total."""


def cannot(decision: d.Decision, world: str, decider: str = "decider", index: int = 0) -> DecisionError:
    """The error for a decision that a world cannot carry out."""
    kind = type(decision)
    return DecisionError(decider, index, "not in this world", f"{kind.__name__}: this world ({world}) cannot {WHAT[kind]}")


def table(handlers: Mapping[type, Handler], world: str) -> dict[type, Handler]:
    """A handler for every decision. Handlers take the decision as their second argument."""

    def refuse(_owner: object, decision: d.Decision, *_: object) -> NoReturn:
        raise cannot(decision, world)

    unknown = [kind.__name__ for kind in handlers if kind not in WHAT]
    assert not unknown, f"not decisions: {unknown}"
    return {kind: handlers.get(kind, refuse) for kind in DECISIONS}  # type: ignore[misc]


def nothing(_owner: object, _decision: d.Decision) -> None:
    """Carries out a decision that changes nothing here, such as a note for people."""
