"""What a Batsim 5 does with each order, and the words with which it refuses one.

In: the server and an order, at the date at which the order takes effect. Out: a changed server and actors to start, or
a DecisionError whose detail has the words that users of the real Batsim 5 look for. It judges as little as the real
one: sharing and sizes of allocations only where the component's constraints are to be enforced (`server.strict`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import BATSIM, JobState
from pilothouse.model.profile import (
    Delay,
    ForkJoin,
    HomogeneousTask,
    Merge,
    ParallelTask,
    Profile,
    Spread,
    StagingTask,
    StorageTask,
    TraceKind,
    TraceReplay,
    parts_of,
)
from pilothouse.worlds.simulated.message_server.decisions4 import on_reject
from pilothouse.worlds.simulated.message_server.machine_book import Machine
from pilothouse.worlds.simulated.message_server.rounds import Actor, sleep, turn
from pilothouse.worlds.simulated.physics.execution import Run
from pilothouse.worlds.simulated.physics.machines import MachineState

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Known
    from pilothouse.worlds.simulated.message_server.server5 import Batsim5Server


def _known(server: Batsim5Server, job_id: str, verb: str) -> Known:
    known = server.jobs.get(job_id)
    if known is None:
        raise server.refuse("unknown job", f"Invalid {verb}: job '{job_id}' does not exist (or has been deleted)")
    return known


# ---- jobs


def on_start(server: Batsim5Server, order: d.StartJob) -> Sequence[Actor]:
    known = _known(server, order.job_id, "job execution")
    job, units = known.job, order.units
    if known.state is not JobState.WAITING:
        state = BATSIM[known.state]
        raise server.refuse("state", f"Cannot execute job '{job.id}': its state is {state} instead of SUBMITTED")
    if not units:
        raise server.refuse("empty allocation", f"Cannot execute job '{job.id}': its allocation is empty")
    _judge_units(server, job.id, units)
    for part in order.overrides.values():
        _judge_units(server, job.id, part.units)
    if order.overrides or (order.placement is not None and order.placement.mapping is not None):
        _judge_mappings(server, job, job.profile, order)
    if server.strict is not None:
        _judge_constraints(server, server.strict, known, order)
    _refuse_impossible(server, job.profile, order)
    profile = _as_executed(job.profile)
    if profile is not job.profile:
        job = msgspec.structs.replace(job, profile=profile)
    run = Run(job, units, server.agenda.now, order.placement, order.overrides, order.storage)
    return server.start(known, run)


def _judge_units(server: Batsim5Server, job_id: str, units: IdSet) -> None:
    if units.mask >> len(server.machines):
        unknown = IdSet(units.mask >> len(server.machines) << len(server.machines))
        raise server.refuse("unknown machine", f"Cannot execute job '{job_id}': machines {unknown} do not exist")
    unable = units.mask & server.machines.unable_mask
    if unable:
        machine = server.machines[IdSet(unable).first()]
        who = f"machine {machine.number} ('{machine.name}')"
        detail = f"{who} cannot compute jobs now (the machine is not computing nor idle"
        state = machine.state.name.lower()
        raise server.refuse("machine state", f"Job '{job_id}': {detail}, its state is '{state}')")


def _judge_mappings(server: Batsim5Server, job: Job, profile: Profile | None, order: d.StartJob) -> None:
    """Executors must be mapped to units of the allocation; rigid profiles need as many as the job asks for."""
    if profile is None:
        return
    part = order.overrides.get(profile.name)
    units, placement = (order.units, order.placement) if part is None else (part.units, part.placement)
    mapping = None if placement is None else placement.mapping
    if mapping is not None:
        count = len(units)
        for place, index in enumerate(mapping):
            if index >= count:
                detail = (
                    f"bad custom mapping at index={place}: value={index} is not below allocated_hosts.size()={count}"
                )
                raise server.refuse("mapping", f"Cannot execute job '{job.id}': {detail}")
        kind = _rigid_kind(profile)
        if kind and len(mapping) != job.units:
            detail = (
                f"inconsistent placement for job='{job.id}': profile '{profile.name}' is rigid (profile_type='{kind}') "
                f"but user-given custom mapping has size={len(mapping)}, "
                f"which is not equal to nb_res={job.units} requested by the job"
            )
            raise server.refuse("mapping", detail)
    for name in parts_of(profile.spec):
        _judge_mappings(server, job, server.profiles.get(name), order)


def _rigid_kind(profile: Profile) -> str:
    """Batsim's name for a kind of profile that needs as many executors as its job asks for; "" for the others."""
    spec = profile.spec
    if isinstance(spec, ParallelTask):
        return "PTASK"
    if isinstance(spec, StagingTask):
        return "PTASK_DATA_STAGING_BETWEEN_STORAGES"
    if isinstance(spec, TraceReplay) and spec.kind is TraceKind.SMPI:
        return "REPLAY_SMPI"
    return ""


def _judge_constraints(server: Batsim5Server, rules: d.Wants, known: Known, order: d.StartJob) -> None:
    """The scheduling constraints of the component's hello, which the real Batsim ignores."""
    job, units = known.job, order.units
    mapping = None if order.placement is None else order.placement.mapping
    given = len(units) if mapping is None else len(mapping)
    if (rules.exact_count and given != job.units) or (rules.least_count and given < job.units):
        least = "at least " if rules.least_count else ""
        detail = f"it requests {least}{job.units} resources, and {given} were given"
        raise server.refuse("allocation validation", f"Cannot execute job '{job.id}': {detail}")
    for unit in units:
        users = server.machines[unit].users
        shared = rules.compute_sharing if unit < server.machines.compute_count else rules.storage_sharing
        if users and not shared:
            detail = f"machine {unit} is used by {', '.join(users[:5])}, and sharing is not allowed"
            raise server.refuse("sharing", f"Cannot execute job '{job.id}': {detail}")


def _refuse_impossible(server: Batsim5Server, profile: Profile | None, order: d.StartJob) -> None:
    """Profiles that the real Batsim accepts and cannot run, or not on these machines."""
    if profile is None:
        return
    spec = profile.spec
    if type(spec) is Delay:
        return
    if isinstance(spec, StorageTask):
        _judge_storage(server, profile.name, spec.storage, order)
    if isinstance(spec, StagingTask):
        # QUIRK: the matrix of a data staging has two entries instead of four.
        detail = "bytes_amounts must be a matrix of size host_count * host_count (2*2), but it's of size 2."
        raise server.refuse("data staging", detail)
    if isinstance(spec, HomogeneousTask) and not spec.flop and not spec.bytes:
        raise server.refuse("empty task", f"Profile '{profile.name}': no flops_amount defined for the parallel task")
    for part in parts_of(spec):
        _refuse_impossible(server, server.profiles.get(part), order)


def _judge_storage(server: Batsim5Server, profile: str, label: str, order: d.StartJob) -> None:
    """A label stands for the host that the order names, or else for the host of that name; it must be a storage."""
    compute = server.machines.compute_count
    number = order.storage.get(label)
    if number is None:
        number = next((node.first for node in server.begins.storage if node.name == label), -1)
        if number < 0:
            detail = f"storage '{label}' has no placement, and no storage host has this name"
            raise server.refuse("storage", f"Job '{order.job_id}', profile '{profile}': {detail}")
    if not compute <= number < len(server.machines):
        detail = f"host {number}, on which storage '{label}' is placed, does not have the storage role"
        raise server.refuse("storage", f"Job '{order.job_id}', profile '{profile}': {detail}")


def _as_executed(profile: Profile | None) -> Profile | None:
    """QUIRK: with the default strategy, what is written to a storage is the amount that is to be read."""
    if profile is None or not isinstance(profile.spec, StorageTask) or profile.spec.spread is not Spread.EACH:
        return profile
    spec = msgspec.structs.replace(profile.spec, write_bytes=profile.spec.read_bytes)
    return msgspec.structs.replace(profile, spec=spec)


def on_kill(server: Batsim5Server, order: d.KillJobs) -> Sequence[Actor] | None:
    asked: list[Known] = []
    for job_id in order.job_ids:
        known = _known(server, job_id, "kill")
        if known.state is JobState.WAITING:
            detail = "its state must be RUNNING or COMPLETED_*, and it is SUBMITTED"
            raise server.refuse("state", f"Cannot kill job '{job_id}': {detail}")
        if not known.kill_asked:
            known.kill_asked = True
            asked.append(known)
    if not asked:
        raise server.refuse("empty kill", "Invalid kill: the list of jobs to kill is empty")
    server.pending += 1
    return [_killer(server, asked)]


def _killer(server: Batsim5Server, asked: list[Known]) -> Actor:
    progress: dict[str, e.Progress] = {}
    killed: list[Known] = []
    for known in asked:
        if known.state is JobState.RUNNING and known.run is not None:
            yield turn()
            progress[known.job.id] = server.physics.kill(known.run)
            server.release(known, JobState.KILLED, known.run.kill_code)
            killed.append(known)

    def done(_: object) -> None:
        server.pending -= 1
        for known in killed:
            server.over(known)
        server.tell(e.JobsKilled(server.agenda.now, tuple(known.job.id for known in asked), progress))

    yield server.send(done)


# ---- registration


def on_register_profile(server: Batsim5Server, order: d.RegisterProfile) -> None:
    profile = order.profile
    workload, bang, _ = profile.name.partition("!")
    if not bang:
        raise server.refuse("profile id", f"Invalid new profile registration: '{profile.name}' has no workload name")
    if profile.name in server.findable:
        detail = f"Invalid new profile registration: '{profile.name}' already exists in the workload."
        raise server.refuse("duplicate profile", detail)
    if isinstance(profile.spec, ForkJoin | Merge):
        kind = type(profile.spec).__name__
        raise server.refuse("profile", f"Invalid new profile registration: '{profile.name}': {kind} is not implemented")
    for part in parts_of(profile.spec):
        if part not in server.findable:
            detail = f"'{profile.name}' is made of '{part}', which does not exist"
            raise server.refuse("profile", f"Invalid new profile registration: {detail}")
    server.workloads.add(workload)
    server.profiles[profile.name] = profile
    server.findable.add(profile.name)


def on_register_job(server: Batsim5Server, order: d.RegisterJob) -> None:
    job = order.job
    if job.id.count("!") != 1:
        what = "has more than one '!'" if "!" in job.id else "has no workload name"
        raise server.refuse("job id", f"Invalid new job registration: '{job.id}' {what}")
    if job.id in server.met or job.id in server.jobs:
        detail = f"Invalid new job registration: Job '{job.id}' already exists in the workload."
        raise server.refuse("duplicate job", detail)
    if job.profile is None or job.profile.name not in server.findable:
        detail = "its profile does not exist (or has been garbage collected)"
        raise server.refuse("profile", f"Invalid new job registration: '{job.id}': {detail}")
    spec = job.profile.spec
    if isinstance(spec, ParallelTask):
        size = len(spec.flop) or round(len(spec.bytes) ** 0.5)
        if size != job.units:
            detail = f"it requests {job.units} resources, and its profile describes {size}"
            raise server.refuse("size", f"Invalid new job registration: '{job.id}': {detail}")
    server.workloads.add(job.workload)
    server.met.add(job.id)
    job.submitted_at = server.agenda.now
    known = server.jobs[job.id] = server.new_known(job)
    known.energy_j = 0.0  # QUIRK: without energy, static jobs have -1 and registered ones 0 (golden: p_dynreg)
    server.unfinished += 1
    if server.begins.acknowledge_registration:
        server.tell(e.JobSubmitted(server.agenda.now, job))


def on_registration_finished(server: Batsim5Server, order: d.FinishRegistration) -> None:
    server.registering = False


# ---- machines


def on_power_state(server: Batsim5Server, order: d.SetPowerState) -> None:
    """At once, without any question."""
    units = order.units
    for unit in units:
        machine = _machine(server, unit)
        if order.power_state >= machine.power_states:
            detail = f"machine {unit} ('{machine.name}') has {machine.power_states} pstates"
            raise server.refuse("pstate", f"Cannot change to pstate {order.power_state}: {detail}")
    server.watcher.before_switch(server)
    for unit in units:
        server.set_power_state(unit, order.power_state)
    server.watcher.switch_done(server, units, order.power_state)
    server.tell(e.PowerStateChanged(server.agenda.now, units, order.power_state))


def _machine(server: Batsim5Server, unit: int) -> Machine:
    if unit >= len(server.machines):
        raise server.refuse("unknown machine", f"Machine {unit} does not exist")
    return server.machines[unit]


def on_switch(server: Batsim5Server, order: d.SwitchUnits) -> Sequence[Actor]:
    units, target = order.units, order.power_state
    transitions = [_transition(server, _machine(server, unit), target) for unit in units]
    if not transitions:
        raise server.refuse("empty switch", "Asked to switch no host at all")
    server.watcher.before_switch(server)
    machines = server.machines
    machines.grouped_switches += 1
    machines.switched_machines += len(units)
    goes_off = target in machines[units.first()].sleep_states
    server.watcher.switch_asked(server, units, -2 if goes_off else -1)
    server.pending += 1
    missing = len(transitions)

    def arrived(_: object) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            server.pending -= 1
            server.watcher.switch_done(server, units, target)
            server.watcher.machines_changed(server)
            server.tell(e.UnitsSwitched(server.agenda.now, units, target))

    def switch(machine: Machine, transition: int) -> Actor:
        server.set_power_state(machine.number, transition)
        yield sleep(1.0 / server.speed(machine.number, transition))
        server.set_power_state(machine.number, target)
        machines.to(machine, MachineState.SLEEPING if goes_off else MachineState.IDLE, server.agenda.now)
        yield server.send(arrived, unit=machine.number)

    actors = []
    for unit, transition in zip(units, transitions, strict=True):
        machine = machines[unit]
        machines.to(machine, MachineState.SWITCHING_OFF if goes_off else MachineState.SWITCHING_ON, server.agenda.now)
        actors.append(switch(machine, transition))
    server.watcher.machines_changed(server)
    return actors


def _transition(server: Batsim5Server, machine: Machine, target: int) -> int:
    """The virtual power state on the way to the target, or why there is none."""
    name = f"Invalid turning ON/OFF of host {machine.number} ('{machine.name}')"
    states = f"(current: {machine.power_state} target: {target})"
    if machine.users:
        raise server.refuse("machine in use", f"{name}: jobs are running on machine {machine.number}")
    if machine.state in (MachineState.SWITCHING_ON, MachineState.SWITCHING_OFF):
        raise server.refuse("machine is switching", f"{name}: it is {machine.state.name.lower()} already {states}")
    if target >= machine.power_states:
        raise server.refuse("pstate", f"{name}: it has no pstate {target}")
    asleep = machine.sleep_states.get(machine.power_state)
    if asleep is None:
        if target not in machine.sleep_states:
            raise server.refuse("switch", f"{name}: Asked to turn ON a host already in a computing pstate {states}")
        return machine.sleep_states[target].going_off
    if not machine.is_computation_state(target):
        raise server.refuse("switch", f"{name}: Asked to turn OFF a host already in a sleep pstate {states}")
    return asleep.coming_on


# ---- calls, probes, end


def on_call(server: Batsim5Server, order: d.CallAt) -> Sequence[Actor]:
    """A call for a date that has passed comes at once."""
    if order.call_id in server.calls or order.call_id in server.periodic:
        raise server.refuse("id in use", f"Cannot create call '{order.call_id}': this id is in use")
    server.calls.add(order.call_id)
    server.pending += 1
    return [_caller(server, order)]


def _caller(server: Batsim5Server, order: d.CallAt) -> Actor:
    wait = order.when - server.agenda.now
    if wait > 0:
        yield sleep(max(wait, server.rules.shortest_wait_s))

    def due(_: object) -> None:
        server.pending -= 1
        server.calls.discard(order.call_id)
        server.tell(e.CallArrived(server.agenda.now, order.call_id))

    yield server.send(due)


def on_calls(server: Batsim5Server, order: d.CallEvery) -> Actor:
    return server.periodic.add_calls(order)


def on_stop_calls(server: Batsim5Server, order: d.StopCalls) -> Actor | None:
    return server.periodic.stop(order.call_id)


def on_probe(server: Batsim5Server, order: d.CreateProbe) -> Actor:
    return server.periodic.add_probe(order)


def on_stop_probe(server: Batsim5Server, order: d.StopProbe) -> Actor | None:
    return server.periodic.stop(order.probe_id)


def on_stop(server: Batsim5Server, order: d.StopWorld) -> None:
    server.stop()


HANDLERS: dict[type, Callable[[Any, Any], Sequence[Actor] | Actor | None]] = {
    d.StartJob: on_start,
    d.RejectJob: on_reject,
    d.KillJobs: on_kill,
    d.CallAt: on_call,
    d.CallEvery: on_calls,
    d.StopCalls: on_stop_calls,
    d.RegisterJob: on_register_job,
    d.RegisterProfile: on_register_profile,
    d.FinishRegistration: on_registration_finished,
    d.SetPowerState: on_power_state,
    d.SwitchUnits: on_switch,
    d.CreateProbe: on_probe,
    d.StopProbe: on_stop_probe,
    d.StopWorld: on_stop,
}
"""Triggering and resetting a probe are missing on purpose: the real Batsim 5 does not handle them."""
