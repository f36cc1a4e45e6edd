"""The driver's state: all tables of one live run, and what each record changes in them. Sans-IO.

`update` runs for what happens now (`record`) and, after a restart, for what the journal holds (restore.py): both lead to
the same state. The other files of this package are free functions that take this state, one file per stimulus:

    flow                        jobs come in or are cancelled; new work reaches the decider; the run ends
    decisions                   the decider starts, refuses or kills jobs
    engine_frames               engines join, report, are asked to leave, say goodbye, or are lost; what they are sent
    assignments                 what the ends of tasks, and of engines, mean
    task_requests               users cancel a task, or want it run once more
    restore                     a journal is read

Output is collected in `records` (to be written first), then `frames` (engine_frames.py: to be sent once the records are
written) and `events` (for the decider). world.py keeps that sequence, so nothing is sent or acknowledged that a
restarted driver would not know of.
"""

from __future__ import annotations

from math import inf

import msgspec

from pilothouse.core.calls import Calls
from pilothouse.core.dependencies import Dependencies
from pilothouse.core.kills import PendingKills
from pilothouse.formats.task_file import TaskLine
from pilothouse.model import events as e
from pilothouse.model.job import Job
from pilothouse.model.lifecycle import FINAL, JobState
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.engines import Engines, ProxyState, ProxyStimulus
from pilothouse.worlds.live.driver.task_groups import Backlog, TaskGroup, task_of_line
from pilothouse.worlds.live.feeder import DoneIds, Feeder, Feeding
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.requests import ANSWER_NOTE, Answer
from pilothouse.worlds.live.wire.messages import Task

ASSIGNMENTS_PER_SESSION = 2**28
"""With the second since 1970 as the session, numbers stay below 2**62."""
MOST_FAILED_TASKS = 10_000
"""Tasks that did not succeed and can be run once more while the run goes on."""
NOT_HEARD = "not heard since the restart"
LIMIT_NOTE = "limit of "
KILL_NOTE = "end of "
CANCEL_NOTE = "cancelled task "
"""Names of notes: how many more tasks a context may be given, jobs that are to be ended, tasks that users have cancelled."""


class DriverState(msgspec.Struct, eq=False, kw_only=True):
    """One run. `now` is the driver's own clock everywhere; records hold seconds since 1970."""

    options: LiveOptions
    session: int
    """The incarnation of the driver: higher with each restart."""
    unix_offset: float
    """Seconds since 1970 when the driver's clock was 0."""
    backlog: Backlog
    done: DoneIds
    engines: Engines = msgspec.field(default_factory=Engines)

    records: list[r.Record] = []
    events: list[e.Event] = []
    speak_to: dict[str, None] = {}
    """Engines for which there may be a frame to send."""
    dismissals: list[str] = []
    """Engines that must be told that they are not of this run (any more)."""
    superseded: list[str] = []
    """Engines whose slots another engine has: they must end."""
    kept_output: dict[str, int] = {}
    """Key of an engine -> how much of its pack the run's folder has. world.py puts in what it finds there."""
    outputs: list[tuple[str, int, bytes]] = []
    """Parts of packs (key, place, bytes) to be written before the records."""
    wardens_told: dict[str, int] = {}
    """Engines whose wardens must be told how much of their pack is there."""
    leases: set[str] = set()
    """Keys of the engines that hold the slots of this driver's contexts. Engines of other programs need none."""
    not_ready_for: list[str] = []
    """Engines that came before it was known which commands they must run first."""

    groups: dict[str, TaskGroup] = {}
    """Jobs that the decider knows and that have not ended, by job id."""
    assignments: dict[int, TaskGroup] = {}
    """Those of them that an engine has, by the number of the assignment."""
    spanning: set[str] = set()
    """Running jobs that have units of several engines."""
    known_jobs: dict[str, tuple[int, bytes]] = {}
    """Submitted jobs that have not ended: task id, and the job itself while restoring."""
    dependencies: Dependencies[TaskGroup] = msgspec.field(default_factory=Dependencies)
    """Submitted jobs that wait for others."""
    outcomes: dict[str, bool] = {}
    """Submitted jobs that ended, and whether they succeeded."""
    just_ended: list[str] = []
    """Those of them that ended since dependent jobs were last released."""
    kills: PendingKills = msgspec.field(default_factory=PendingKills)
    calls: Calls = msgspec.field(default_factory=Calls)

    waiting: int = 0
    """Jobs that the decider knows and has not started."""
    running_tasks: int = 0
    counts: dict[JobState, int] = msgspec.field(default_factory=lambda: dict.fromkeys(FINAL, 0))
    """Tasks by final state."""
    answered: int = 0
    """Requests of users that were answered."""
    estimates: dict[str, float] = {}
    """Job id -> seconds that the decider thinks it will wait, for those that it was asked about."""
    failed_tasks: dict[int, Task] = {}
    """The last tasks of the file that did not succeed: a user may want one to be run once more."""
    losses: dict[int, int] = {}
    """How often tasks without a final result were lost."""
    context_limits: dict[str, int] = {}
    """How many more tasks a context may be given."""
    next_assignment: int
    """Numbers begin anew, higher, with each incarnation of the driver: none is used twice, even if records were lost."""
    next_task: int = 0
    output_room: int
    """How many more bytes of the tasks' output may be kept."""

    begun: bool = False
    """The decider knows the engines; from now on changes are events."""
    no_more: bool = False
    """No job will be submitted any more."""
    told_no_more: bool = False
    task_failed: bool = False
    """With fail_fast: a task failed, and the run must be stopped."""
    stopped_because: str = ""
    """Why the run was stopped before its end; "" if it was not."""
    finishing: bool = False
    """It was stopped, and tasks that run may end."""
    parting_until: float = inf
    """All work is done: how long engines may take to leave."""
    over: bool = False
    leave_later: dict[str, None] = {}
    """Engines that are to leave once jobs that span them have ended."""
    lost_engines: list[r.EngineJoined] = []
    """Engines lost since world.py last looked: their contexts may start others."""

    restored: dict[int, r.Assigned] = {}
    """Only while restoring: assignments that were open when the driver ended."""
    restored_kills: dict[str, str] = {}
    """Jobs that an earlier driver was asked to end, and why."""

    def date(self, now: float) -> float:
        """Seconds since 1970, as records have it."""
        return now + self.unix_offset

    @property
    def too_late(self) -> bool:
        """Whether an engine that joins now would find nothing to do."""
        return bool(self.stopped_because) or self.over or self.parting_until != inf

    @property
    def nothing_to_do(self) -> bool:
        """All known work has ended, and no more will come."""
        if self.stopped_because:
            return not self.groups
        return self.no_more and not self.groups and self.backlog.empty and not self.dependencies.held

    @property
    def has_engine_commands(self) -> bool:
        """Whether engines run START or STOP commands of the file."""
        feeder = self.backlog.feeder
        return feeder is not None and bool(feeder.engine_start or feeder.engine_stop)

    @property
    def stuck(self) -> bool:
        """Jobs wait, engines are idle, and no event is to come: the decider will not be asked again."""
        engines, feeder = self.engines.present.values(), self.backlog.feeder
        return (
            bool(self.waiting and engines and self.begun and self.no_more)
            and not (self.assignments or self.events or self.stopped_because)
            and self.calls.next_at == inf
            and all(proxy.welcomed for proxy in engines)
            and not all(proxy.closed_for for proxy in engines)
            and (feeder is None or feeder.state is not Feeding.FEEDING or feeder.has_next)
        )

    @property
    def waiting_tasks(self) -> tuple[str, ...]:
        """Names of the tasks that the decider knows and has not started: numbers of the file's, ids of jobs."""
        return tuple(
            str(task_id) if group.from_file else group.job.id
            for group in self.groups.values()
            if group.state is JobState.WAITING
            for task_id in group.tasks
        )

    def remember_failed(self, task: Task) -> None:
        self.failed_tasks[task.task_id] = task
        if len(self.failed_tasks) > MOST_FAILED_TASKS:
            del self.failed_tasks[next(iter(self.failed_tasks))]

    def known(self, line: TaskLine) -> bool | None:
        """For a Feeder: None if the task must run, else whether it failed in an earlier life of the run."""
        failed = self.done.known(line)
        if failed:
            self.remember_failed(task_of_line(line))
        return failed

    def start_commands_known(self) -> bool:
        """Whether the source has given all commands that an engine must run before its first task (a pipe may be slow)."""
        feeder = self.backlog.feeder
        if feeder is not None and not feeder.engine_lists_complete:
            feeder.look()
            return feeder.engine_lists_complete
        return True

    def feed(self, feeder: Feeder) -> None:
        """Sets where the tasks of the file come from. After `restore`: a feeder reads ahead past what is done."""
        self.backlog.feeder = feeder
        self.no_more = not self.options.service


def new_state(options: LiveOptions, session: int = 1, unix_offset: float = 0.0) -> DriverState:
    """The state of a run that has not begun."""
    done = DoneIds()
    template = Job("", options.units, options.walltime, shape=options.shape)
    most_bundled = 1 if options.walltime != inf else options.bundle
    return DriverState(
        options=options, session=session, unix_offset=unix_offset, done=done,
        backlog=Backlog(template, options.environment, most_bundled, done),
        context_limits=dict(options.context_limits), next_assignment=(session - 1) * ASSIGNMENTS_PER_SESSION + 1,
        output_room=options.output_bytes,
    )  # fmt: skip


def record(driver: DriverState, entry: r.Record, now: float) -> None:
    """Something happens: it is written down before anything that depends on it is sent."""
    driver.records.append(entry)
    update(driver, entry, now)


def update(driver: DriverState, entry: r.Record, now: float, *, restoring: bool = False) -> None:
    match entry:
        case r.TaskEnded():
            _task_ended(driver, entry, restoring=restoring)
        case r.Assigned(id=number, job_id=job_id, engine=engine):
            driver.next_assignment = max(driver.next_assignment, number + 1)
            if restoring:
                driver.restored[number] = entry
            else:
                group = driver.groups[job_id]
                group.assignment, group.engine = number, engine
                driver.assignments[number] = group
                driver.engines.present[engine].assignments.add(number)
                driver.running_tasks += len(group.tasks)
        case r.Closed(id=number):
            driver.restored.pop(number, None)
            closed = driver.assignments.pop(number, None)
            if closed is not None:
                driver.running_tasks -= len(closed.tasks)
                driver.engines.present[closed.engine].assignments.discard(number)
                closed.assignment, closed.engine = 0, ""
        case r.Returned(id=number, tasks=returned):
            if restoring:
                kept = [task for task in driver.restored[number].tasks if task.task_id not in returned]
                driver.restored[number] = msgspec.structs.replace(driver.restored[number], tasks=kept)
            else:
                for task_id in returned:
                    driver.backlog.give_back(driver.assignments[number].tasks.pop(task_id))
                driver.running_tasks -= len(returned)
        case r.EngineJoined():
            state = ProxyState.EXPECTED if restoring else ProxyState.JOINED
            proxy = driver.engines.enter(entry, state, now, inf)
            if restoring:
                proxy.closed_for = NOT_HEARD
        case r.EngineLeft(engine=engine, lost=lost):
            if lost and not restoring:
                driver.lost_engines.append(driver.engines.present[engine].joined)
            stimulus = ProxyStimulus.SILENT if lost else ProxyStimulus.SAID_GOODBYE
            driver.engines.remove(driver.engines.present[engine], stimulus)
        case r.JobKnown(job_id=job_id, task_id=task_id, data=data):
            driver.next_task = max(driver.next_task, task_id + 1)
            driver.known_jobs[job_id] = (task_id, data if restoring else b"")
        case r.Note(name=name, value=value) if name.startswith(LIMIT_NOTE):
            driver.context_limits[name.removeprefix(LIMIT_NOTE)] = int(value)
        case r.Note(name=name, value=value) if name.startswith(KILL_NOTE) and restoring:
            driver.restored_kills[name.removeprefix(KILL_NOTE)] = value.decode()
        case r.Note(name=name) if name.startswith(CANCEL_NOTE):
            driver.backlog.cancelled.add(int(name.removeprefix(CANCEL_NOTE)))
        case r.Note(name=name, value=value) if name.startswith(ANSWER_NOTE):
            driver.answered = max(driver.answered, msgspec.json.decode(value, type=Answer).number)
        case r.Reopened(task_id=task_id):
            ended_as, attempt = driver.done.reopen(task_id)
            driver.counts[ended_as] -= 1
            driver.backlog.attempts[task_id] = attempt + 1
        case _:
            pass


def _task_ended(driver: DriverState, ended: r.TaskEnded, *, restoring: bool) -> None:
    if ended.output:
        driver.output_room -= ended.out_bytes + ended.err_bytes - ended.left_out
    if ended.kind == "P":
        return
    group = driver.groups.get(ended.job_id)
    succeeded = ended.state is JobState.SUCCEEDED
    if group is not None and not succeeded:
        group.worst, group.code = ended.state, ended.return_code
    if not ended.final:
        driver.backlog.attempts[ended.task_id] = ended.attempt + 1
        if ended.state is JobState.LOST:
            driver.losses[ended.task_id] = driver.losses.get(ended.task_id, 0) + 1
        return
    driver.done.add(ended.task_id, ended.state, ended.attempt)
    driver.backlog.cancelled.discard(ended.task_id)
    driver.backlog.attempts.pop(ended.task_id, None)
    driver.losses.pop(ended.task_id, None)
    if ended.kind != "N":
        return
    driver.counts[ended.state] += 1
    if group is not None and group.tasks.pop(ended.task_id, None) is not None and group.assignment:
        driver.running_tasks -= 1
    if not ended.line_number:  # a submitted job, which the journal may not know if it was never bound
        driver.known_jobs.pop(ended.job_id, None)
        driver.outcomes[ended.job_id] = succeeded
        driver.just_ended.append(ended.job_id)
        driver.next_task = max(driver.next_task, ended.task_id + 1)
    elif not restoring and ended.job_id:  # else it was omitted before it became a job
        driver.backlog.ended(ended.task_id, failed=not succeeded)
