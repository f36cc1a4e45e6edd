"""The physics of running jobs: a Run is a job on its units; Physics starts, kills and ends runs.

In: runs, with their units and placement. Out: `ended(run, state, return_code)` when a job is over by itself. A plain
delay is the fast path: one agenda entry, about 1 µs. Everything else is a tree of activities (activities.py) whose
parallel tasks are flows over the platform (demand.py, sharing.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from pilothouse.model.decisions import PartPlacement, Placement, Strategy
from pilothouse.model.errors import InputError, RunError
from pilothouse.model.events import ProbeData, Progress
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import (
    Delay,
    ForkJoin,
    HomogeneousTask,
    Merge,
    ParallelTask,
    Profile,
    ReceiveMessage,
    SendMessage,
    Sequence,
    Spread,
    StagingTask,
    StorageTask,
    TraceKind,
    TraceReplay,
)
from pilothouse.worlds.simulated.physics.activities import TIMED_OUT, Activity, Fork, Hear, Parts, Sleep, Task, Tell
from pilothouse.worlds.simulated.physics.agenda import Agenda
from pilothouse.worlds.simulated.physics.demand import Demands
from pilothouse.worlds.simulated.physics.machines import Machines
from pilothouse.worlds.simulated.physics.platform import Platform
from pilothouse.worlds.simulated.physics.sharing import SOLVERS, Flow, Fluid

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.physics.probes import Probes

SHORTEST_RUN_S = 1e-5
"""What is written down as the duration of a job that took no time at all."""


_SUCCEEDED = JobState.SUCCEEDED


class Run(msgspec.Struct, eq=False):
    """A job that runs on its units."""

    job: Job
    units: IdSet
    started_at: float
    placement: Placement | None = None
    overrides: dict[str, PartPlacement] = {}
    storage: dict[str, int] = {}
    io_job: Profile | None = None
    end_entry: int = 0
    activity: Activity | None = None
    kill_code: int = -1
    """The return code of a killed job: -2 if it was in a parallel task, -1 otherwise (Batsim's codes)."""
    task_was_cut: bool = False
    """A parallel task reached the walltime and had to be cancelled."""
    inbox: deque[str] | None = None

    @property
    def messages(self) -> deque[str]:
        """What the decider told the job and it has not heard yet."""
        if self.inbox is None:
            self.inbox = deque()
        return self.inbox


Ended = Callable[[Run, JobState, int], None]
Tells = Callable[[Run, msgspec.Raw, Callable[[], None]], None]


def _drop_message(run: Run, message: msgspec.Raw, heard: Callable[[], None]) -> None:
    del run, message
    heard()


class Physics:
    """Runs profiles on hosts.

    `profiles` resolves the parts of compositions; the mapping may grow during the run. `tells(run, message, heard)`
    passes on what a job says to the decider and calls heard() when it has got through. `machines` keeps states and
    power states of hosts, `energy` meters them too.
    """

    def __init__(
        self,
        agenda: Agenda,
        ended: Ended,
        platform: Platform | None = None,
        *,
        profiles: Mapping[str, Profile] | None = None,
        machines: bool = False,
        energy: bool = False,
        exact_energy: bool = False,
        stay_computing: bool = False,
        solver: str = "fair-bottleneck",
        tells: Tells = _drop_message,
    ) -> None:
        self.agenda = agenda
        self.platform = platform
        self.tell = tells
        self._ended = ended
        self._profiles: Mapping[str, Profile] = {} if profiles is None else profiles
        self._demands: Demands | None = None
        self._fluid: Fluid | None = None
        self._solver = solver
        self.machines: Machines | None = None
        self.probes: Probes | None = None
        if machines or energy:
            self.machines = Machines(self, energy=energy, exact=exact_energy, stay_computing=stay_computing)

    # ---- runs

    def start(self, run: Run) -> None:
        job = run.job
        profile = job.profile
        if profile is None:
            raise RunError(f"job {job.id} has no profile to simulate")
        spec = profile.spec
        if type(spec) is Delay and run.io_job is None:
            # A delay equal to the walltime is cut: only a shorter one succeeds.
            seconds = spec.seconds if spec.seconds < job.walltime else job.walltime
            run.end_entry = self.agenda.after(seconds, self._delay_is_over, run)
            return
        activity = run.activity = self.activity(run, profile)
        activity.begin(job.walltime, lambda code, left: self._run_is_over(run, code))

    def kill(self, run: Run) -> Progress:
        """Stops the run now; `ended` is not called."""
        if run.activity is not None:
            run.kill_code = run.activity.current_kill_code()
            return run.activity.cancel()
        self.agenda.cancel(run.end_entry)
        profile = run.job.profile
        assert profile is not None and type(profile.spec) is Delay
        return Progress(profile.name, min(1.0, (self.agenda.now - run.started_at) / profile.spec.seconds))

    def _delay_is_over(self, run: Run) -> None:
        profile = run.job.profile
        assert profile is not None
        if profile.spec.seconds >= run.job.walltime:  # type: ignore[union-attr]
            self._ended(run, JobState.TIMED_OUT, -1)
        elif profile.return_code:
            self._ended(run, JobState.FAILED, profile.return_code)
        else:
            self._ended(run, _SUCCEEDED, 0)

    def _run_is_over(self, run: Run, code: int) -> None:
        state = JobState.SUCCEEDED if code == 0 else JobState.TIMED_OUT if code == TIMED_OUT else JobState.FAILED
        self._ended(run, state, code)

    # ---- flows

    @property
    def demands(self) -> Demands:
        """What turns amounts into flows; made when the first parallel task starts."""
        if self._demands is None:
            if self.platform is None:
                raise RunError("this world has no platform: only delays can be simulated")
            self._demands = Demands(self.platform)
        return self._demands

    @property
    def fluid(self) -> Fluid:
        if self._fluid is None:
            self._fluid = Fluid(self.agenda, SOLVERS[self._solver])
            self._fluid.changing, self._fluid.ending = self._hooks()
        return self._fluid

    def _hooks(self) -> tuple[Callable[[Iterable[Flow]], None] | None, Callable[[Flow], None] | None]:
        """Who must look before the rates of flows change, and before a flow ends."""
        machines, probes = self.machines, self.probes
        if machines is not None and not machines.meters:
            machines = None
        if probes is None:
            return (None, None) if machines is None else (machines.before_rates_change, machines.read)

        def changing(flows: Iterable[Flow]) -> None:
            probes.before_change(flows)
            if machines is not None:
                machines.before_rates_change(flows)

        def ending(flow: Flow) -> None:
            probes.before_change((flow,))
            if machines is not None:
                machines.read(flow)

        return changing, ending

    def need_machines(self) -> Machines:
        """The machines; made when they are needed for the first time."""
        if self.machines is None:
            self.machines = Machines(self, energy=False)
        return self.machines

    def need_probes(self, tell: Callable[[ProbeData], None]) -> Probes:
        """The probes; made when they are needed for the first time. Their data go to `tell`."""
        if self.probes is None:
            from pilothouse.worlds.simulated.physics.probes import Probes

            self.probes = Probes(self, tell)
            self.fluid.changing, self.fluid.ending = self._hooks()
        return self.probes

    def settle(self) -> None:
        """Gives all flows their rates, for those who must read them now."""
        if self._fluid is not None:
            self._fluid.settle()

    def start_flow(self, flow: Flow) -> None:
        if self.machines is not None:
            self.machines.before_start(flow)
        self.fluid.start(flow)

    def stop_flow(self, flow: Flow) -> float:
        """Takes a flow out; returns the part of its work that was left."""
        return self.fluid.stop(flow)

    # ---- profiles

    def profile(self, name: str) -> Profile:
        found = self._profiles.get(name)
        if found is None:
            raise RunError(f"profile {name!r} does not exist")
        return found

    def is_empty(self, profile: Profile) -> bool:
        """Whether a profile is a sequence of nothing, or of nothing but such sequences that succeed: it takes no time."""
        spec = profile.spec
        if type(spec) is not Sequence:
            return False
        if not spec.repeat:
            return True
        parts = [self.profile(name) for name in dict.fromkeys(spec.parts)]
        return all(not part.return_code and self.is_empty(part) for part in parts)

    def activity(self, run: Run, profile: Profile) -> Activity:
        """What a profile becomes when it runs as a part of this job."""
        return _MAKERS[type(profile.spec)](self, run, profile)

    def executors(self, run: Run, profile: Profile, wanted: int = 0) -> list[int]:
        """The hosts of the executors, in order; a host may come several times.

        A strategy places `wanted` of them, as many as the job has units if that is 0.
        """
        override = run.overrides.get(profile.name) if run.overrides else None
        units, placement = (run.units, run.placement) if override is None else (override.units, override.placement)
        hosts = list(units)
        if placement is None:
            return hosts
        if placement.mapping is not None:
            return [hosts[index] for index in placement.mapping]
        count = wanted or run.job.units or len(hosts)
        if placement.strategy is Strategy.FILL:
            hosts = [host for host in hosts for _ in range(self._cores(host))]
        return [hosts[i % len(hosts)] for i in range(count)]

    def _cores(self, number: int) -> int:
        return self.platform.hosts[number].cores if self.platform is not None else 1

    def storage_of(self, run: Run, label: str, profile: Profile) -> int:
        """The number of the storage that a label stands for: as ordered, else of that name, else the only one."""
        platform = self.platform
        assert platform is not None
        number = run.storage.get(label)
        if number is None:
            storages = platform.storage
            named = [host for host in storages if host.name == label]
            if not named and len(storages) != 1:
                problem = f"job {run.job.id}, profile {profile.name}: storage {label!r} is not placed"
                raise InputError(
                    platform.where, f"{problem}, and the platform has {len(storages)} storages to choose from"
                )
            return (named or storages)[0].number
        if not platform.compute_count <= number < len(platform.hosts):
            raise InputError(
                platform.where, f"job {run.job.id}: storage {label!r} is placed on {number}, which is no storage"
            )
        return number

    def task_of(self, run: Run, profile: Profile) -> Flow:
        """The flow of a profile that is one parallel task."""
        make = _FLOWS.get(type(profile.spec))
        if make is None:
            raise InputError(profile.name, "only parallel tasks can be merged", found=type(profile.spec).__name__)
        return make(self, run, profile, profile.spec)


def _no_flow(flow: Flow) -> None:
    raise AssertionError("a flow ended before its task began")


def _parallel(physics: Physics, run: Run, profile: Profile, spec: ParallelTask) -> Flow:
    hosts = physics.executors(run, profile)
    wanted = len(spec.flop) or round(len(spec.bytes) ** 0.5)
    if len(hosts) != wanted:
        problem = f"job {run.job.id}: profile {profile.name} describes {wanted} executors"
        raise RunError(f"{problem}, but {len(hosts)} were placed")
    return physics.demands.task(hosts, spec.flop, spec.bytes, _no_flow)


def _homogeneous(physics: Physics, run: Run, profile: Profile, spec: HomogeneousTask) -> Flow:
    hosts = physics.executors(run, profile)
    count = len(hosts)
    flop, size = spec.flop, spec.bytes
    if spec.spread is not Spread.EACH:
        flop /= count
        size /= count if spec.spread is Spread.TOTAL else max(1, count * count - count)
    return physics.demands.homogeneous(hosts, flop, size, _no_flow)


def _on_storage(physics: Physics, run: Run, profile: Profile, spec: StorageTask) -> Flow:
    hosts = physics.executors(run, profile)
    count = len(hosts)
    read, write = spec.read_bytes, spec.write_bytes
    if spec.spread is not Spread.EACH:
        read, write = read / count, write / count
    size = count + 1
    matrix = [0.0] * (size * size)
    for executor in range(count):
        matrix[count * size + executor] = read
        matrix[executor * size + count] = write
    places = [*hosts, physics.storage_of(run, spec.storage, profile)]
    return physics.demands.task(places, (), matrix, _no_flow)


def _staging(physics: Physics, run: Run, profile: Profile, spec: StagingTask) -> Flow:
    places = [physics.storage_of(run, label, profile) for label in (spec.source, spec.target)]
    return physics.demands.task(places, (), (0.0, spec.bytes, 0.0, 0.0), _no_flow)


def _merged(physics: Physics, run: Run, profile: Profile, spec: Merge) -> Flow:
    return _sum_of(physics, run, [physics.profile(name) for name in spec.parts])


def _sum_of(physics: Physics, run: Run, profiles: Iterable[Profile]) -> Flow:
    first, *others = (physics.task_of(run, profile) for profile in profiles)
    for other in others:
        physics.demands.add(first, other)
    return first


_FLOWS: dict[type, Callable[[Physics, Run, Profile, Any], Flow]] = {
    ParallelTask: _parallel,
    HomogeneousTask: _homogeneous,
    StorageTask: _on_storage,
    StagingTask: _staging,
    Merge: _merged,
}


def _task(physics: Physics, run: Run, profile: Profile) -> Activity:
    flow = physics.task_of(run, profile)
    if run.io_job is not None:
        physics.demands.add(flow, physics.task_of(run, run.io_job))
    return Task(physics, run, profile, flow)


def _sleep(physics: Physics, run: Run, profile: Profile) -> Activity:
    assert type(profile.spec) is Delay
    return Sleep(physics, run, profile, profile.spec.seconds)


def _sequence(physics: Physics, run: Run, profile: Profile) -> Activity:
    assert type(profile.spec) is Sequence
    return Parts(physics, run, profile, [physics.profile(name) for name in profile.spec.parts], profile.spec.repeat)


def _fork(physics: Physics, run: Run, profile: Profile) -> Activity:
    assert type(profile.spec) is ForkJoin
    return Fork(physics, run, profile, [physics.profile(name) for name in profile.spec.parts])


def _tell(physics: Physics, run: Run, profile: Profile) -> Activity:
    assert type(profile.spec) is SendMessage
    return Tell(physics, run, profile, profile.spec)


def _hear(physics: Physics, run: Run, profile: Profile) -> Activity:
    assert type(profile.spec) is ReceiveMessage
    return Hear(physics, run, profile, profile.spec)


def _replay(physics: Physics, run: Run, profile: Profile) -> Activity:
    from pilothouse.worlds.simulated.physics.replay_smpi import MpiReplay
    from pilothouse.worlds.simulated.physics.replay_usage import UsageReplay

    assert type(profile.spec) is TraceReplay
    make = MpiReplay if profile.spec.kind is TraceKind.SMPI else UsageReplay
    return make(physics, run, profile, profile.spec)


_MAKERS: dict[type, Callable[[Physics, Run, Profile], Activity]] = {
    Delay: _sleep,
    ParallelTask: _task,
    HomogeneousTask: _task,
    StorageTask: _task,
    StagingTask: _task,
    Merge: _task,
    Sequence: _sequence,
    ForkJoin: _fork,
    TraceReplay: _replay,
    SendMessage: _tell,
    ReceiveMessage: _hear,
}
