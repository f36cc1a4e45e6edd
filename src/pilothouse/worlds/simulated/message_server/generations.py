"""The rules of Batsim 2, of Batsim 4, of Batsim 5, and of our own server (`pilothouse simulate --control-latency`)."""

from __future__ import annotations

from typing import NoReturn

import msgspec

from pilothouse.core.decision_table import DECISIONS, nothing, table
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.worlds.simulated.message_server import calls, jobs, power, registration
from pilothouse.worlds.simulated.message_server.rules import Handler, Rules
from pilothouse.worlds.simulated.message_server.server import Server


def _on_estimate(server: Server, decision: d.AnswerEstimate) -> None:
    server.answered(decision)


_COMMON: dict[type, Handler] = {
    d.StartJob: jobs.on_start,
    d.RejectJob: jobs.on_reject,
    d.KillJobs: jobs.on_kill,
    d.CallAt: calls.on_call,
    d.RegisterJob: registration.on_register_job,
    d.RegisterProfile: registration.on_register_profile,
    d.FinishRegistration: registration.on_registration_finished,
}
_NOT_IN_5: dict[type, Handler] = {
    d.ResumeRegistration: registration.on_registration_resumed,
    d.SetMetadata: jobs.on_metadata,
    d.SendToJob: jobs.on_send_to_job,
    d.MeasureEnergy: power.on_measure_energy,
    d.AnswerEstimate: _on_estimate,
}
_ALL_PROBES: dict[type, Handler] = dict.fromkeys(
    (d.CreateProbe, d.TriggerProbe, d.ResetProbe, d.StopProbe), calls.on_probe
)


def _on_stop(server: Server, decision: d.StopWorld) -> None:
    server.stop()


def _unhandled(server: Server, decision: d.Decision) -> NoReturn:
    """The real Batsim 5 handles neither triggers nor resets of probes."""
    raise server.refuse("unhandled", f"Unhandled event type: {type(decision).__name__}")


BATSIM4 = Rules(
    table(
        _COMMON
        | _NOT_IN_5
        | {
            d.SetJobState: jobs.on_job_state,
            d.SetPowerState: power.on_resource_state,
            d.SwitchUnits: power.on_resource_state,
        },
        "Batsim 4",
    )
)

BATSIM4_ANY = msgspec.structs.replace(BATSIM4, handlers={**BATSIM4.handlers, d.SetJobState: jobs.on_any_job_state})
"""Batsim 4 with a scheduler of any generation."""

BATSIM2 = Rules(
    {
        **BATSIM4.handlers,
        d.SetJobState: jobs.on_job_state_of_2,
        d.SetPowerState: power.on_resource_state_of_2,
        d.SwitchUnits: power.on_resource_state_of_2,
        d.MeasureEnergy: power.on_measure_energy_of_2,
    },
    tiny_messages=True,
    writes_at_once=True,
    submits_singly=True,
    notifies=False,
    ends_in_last_message=True,
    keeps_jobs=True,
    kill_code=-1,
    any_workload=True,
)

BATSIM5 = Rules(
    dict.fromkeys(DECISIONS, _unhandled)
    | _COMMON
    | {
        d.CallEvery: calls.on_periodic_calls,
        d.StopCalls: calls.on_stop_periodic_calls,
        d.CreateProbe: calls.on_periodic_probe,
        d.StopProbe: calls.on_stop_periodic_probe,
        d.SetPowerState: power.on_power_state,
        d.SwitchUnits: power.on_switch,
        d.StopWorld: _on_stop,
    },
    in_words_of_5=True,
    first_turn=True,
    keeper=True,
    # QUIRK: these events are dated like the last message or the last event of another kind (pinned by tests/golden).
    stale_dates=frozenset((e.ExternalEvent, e.PowerStateChanged, e.UnitsSwitched, e.JobsKilled)),
    exact_count=False,
    judges_sharing=False,
    judges_mappings=True,
    late_call_is_wrong=False,
    cut_takes_turn=False,
    hosts_asked_first=True,
    kill_takes_turn=True,
    own_return_codes=True,
    tasks_linger=True,
    messages_share_links=True,
    switch_ends_metered=True,
    stay_computing=True,
    registered_when_read=False,
    any_workload=True,
    profiles_outlive_jobs=False,
)

BATSIM5_ALL_PROBES = msgspec.structs.replace(BATSIM5, handlers={**BATSIM5.handlers, **_ALL_PROBES})
"""The same with the probes of our own server, which know triggers and resets."""

OURS = Rules(
    table(
        _COMMON
        | _NOT_IN_5
        | _ALL_PROBES
        | {
            d.CallEvery: calls.on_calls,
            d.StopCalls: calls.on_stop_calls,
            d.SetJobState: jobs.on_any_job_state,
            d.SetMetadata: jobs.on_any_metadata,
            d.SetPowerState: power.on_power_state,
            d.SwitchUnits: power.on_switch,
            d.StopWorld: _on_stop,
            **dict.fromkeys((d.Annotate, d.AnswerFeasibility, d.ConfirmWithdrawal), nothing),
        },
        "sim",
    ),
    exact_count=False,
    late_call_is_wrong=False,
    holds_dependents=True,
    confirms_all_kills=True,
    any_workload=True,
)
"""Messages cost time as in Batsim 4. What decisions do is what they do without messages (worlds/simulated/world.py)."""
