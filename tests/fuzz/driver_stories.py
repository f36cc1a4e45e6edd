"""Stories of the driver of a live run: engines that come, report and go as chance has it, a decider and users that do anything.

In: a seeded Random. Out: what happened, step by step (see stories.py): the records, the frames, the events for the decider,
and what the driver says of itself. Now and then the driver is restarted from its records.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from random import Random

import msgspec
from tests.simtest.storm import durable

from pilothouse.core.node_index import gpus_taken
from pilothouse.formats.task_file import LineKind, TaskLine
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Command, Job, Shape
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Delay, Profile
from pilothouse.model.task_request import TaskRequest
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live.driver.decisions import apply
from pilothouse.worlds.live.driver.engine_frames import ask_to_leave, engine_vanished, frames, hear, stop_context, tick
from pilothouse.worlds.live.driver.engines import EngineProxy, ProxyState
from pilothouse.worlds.live.driver.flow import begins, bind, cancel, settle, stop, submit
from pilothouse.worlds.live.driver.restore import restore
from pilothouse.worlds.live.driver.state import DriverState, new_state
from pilothouse.worlds.live.driver.task_groups import NODE_LOST, TaskGroup
from pilothouse.worlds.live.driver.task_requests import Refusal, cancel_task, look_at_cancelled, retry_task
from pilothouse.worlds.live.feeder import Feeder
from pilothouse.worlds.live.options import LiveOptions
from pilothouse.worlds.live.wire import messages as m

HOSTS = ("n1", "n2", "n3")
STEPS = 90


class Peer:
    """An engine that does as it likes, on a reliable channel."""

    def __init__(self, hello: m.Hello, engine: str) -> None:
        self.hello = hello
        self.id = engine
        self.session = 0
        self.channel: m.Channel[m.FromEngine] = m.Channel()
        self.held: dict[int, list[m.Task]] = {}
        self.gone = False
        self.leaving = False

    def hear(self, frame: m.DriverFrame, now: float) -> None:
        self.gone = self.gone or any(type(body) is m.Dismiss for body in frame.bodies)
        welcomes = [body for body in frame.bodies if type(body) is m.Welcome]
        if frame.session > self.session and welcomes:
            self.session, self.channel = frame.session, m.Channel()
            self.held = {number: tasks for number, tasks in self.held.items() if number in welcomes[0].assignments}
        if frame.session != self.session or not self.channel.take(frame.seq, frame.ack, now):
            return
        for body in frame.bodies:
            self.leaving |= type(body) is m.Leave
            if type(body) is m.Start:
                self.held.update((given.id, list(given.tasks)) for given in body.assignments)

    def greeting(self) -> m.EngineFrame:
        hello = msgspec.structs.replace(self.hello, held=tuple(self.held))
        return m.EngineFrame(m.VERSION, self.id, 0, 0, 0, [hello])

    def says(self, now: float, *bodies: m.FromEngine) -> list[m.EngineFrame]:
        for body in bodies:
            self.channel.push(body)
        said = self.channel.outgoing(now)
        received = self.channel.received
        return [m.EngineFrame(m.VERSION, self.id, self.session, seq, received, found) for seq, found in said]


class DriverStory:
    """One run, and all who take part in it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.now = 0.0
        self.started_at = 1000.0
        self.session = 1
        self.options = self._options()
        self.lines = self._lines() if random.random() < 0.8 else None
        self.spare_units = random.choice((0, 6, 4096))
        self.peers: list[Peer] = []
        self.journal: list[r.Record] = []
        self.jobs = 0
        self.driver = self._new_driver()

    def some(self, chance: float) -> bool:
        return self.random.random() < chance

    # ---- what is given

    def _options(self) -> LiveOptions:
        choice, some = self.random.choice, self.some
        shapes = (Shape(gpus_per_node=1), Shape(memory_mb_per_node=100, gpus_per_chunk=1, chunk=1))
        shape = choice((None, None, None, None, None, *shapes))
        keep = choice((0, 0, 50))
        return LiveOptions(
            units=choice((1, 1, 2)), shape=shape, walltime=choice((inf, inf, inf, 5.0)), retries=choice((0, 1, 2)),
            environment=m.TaskEnvironment(bind=some(0.5), keep=keep, env={"OF_RUN": "1"}), output_bytes=keep * 4,
            retry_memory=choice((0.0, 1.5)), reissue=some(0.9), at_most_once=some(0.1), most_losses=choice((1, 2, 5)),
            fail_fast=some(0.1), bundle=choice((1, 3, 1000)), window=choice((0, 0, 3)), heartbeat_s=choice((2.0, 0.001)),
            lost_after_s=choice((5.0, 60.0)), return_within_s=choice((5.0, 30.0)), grace_s=choice((1.0, 10.0)),
            retire_idle=some(0.4), service=some(0.3), context_limits=choice(({}, {}, {"c1": 6}, {"c2": 0})), env={"A": "b"},
            task_env="T={task}",
        )  # fmt: skip

    def _lines(self) -> list[TaskLine | None]:
        choice, some = self.random.choice, self.some
        lines: list[TaskLine | None] = []
        for kind in (LineKind.ENGINE_START, LineKind.ENGINE_STOP):
            lines += [TaskLine(i, i + 1, -1, f"{kind.value} {i}", kind) for i in range(choice((0, 0, 0, 2)))]
        requests = (
            *(None, None, None, TaskRequest(cores=2), TaskRequest(memory_mb=100), TaskRequest(walltime=3.0)),
            *(TaskRequest(name="first", retries=1), TaskRequest(after=("first",)), TaskRequest(gpus=1, env=(("X", "y"),))),
            TaskRequest(nodes=2, cores=1),
        )
        lines += [None] * choice((0, 0, 0, 4))
        bundled = choice((None, None, TaskRequest(name="many")))
        count = choice((5, 20, 40, 40))
        for task_id in range(count):
            kind = choice((LineKind.BARRIER, LineKind.CHECK)) if some(0.06) else LineKind.TASK
            request = None if kind is not LineKind.TASK else choice(requests) if some(0.3) else bundled
            repeat = choice((-1, -1, 4))
            lines.append(TaskLine(task_id, task_id + 10, repeat, f"do {task_id}", kind, age=len(lines), request=request))
            lines += [None] * choice((0, 0, 0, 0, 0, 0, 0, 2))
        return lines

    def _hello(self) -> m.Hello:
        choice, some = self.random.choice, self.some
        properties = {"key": choice(("k1", "k2", "k3", "k/4"))} if some(0.7) else {}
        if some(0.1):
            properties["task_limit"] = choice(("0", "2", "x"))
        ends_at = self.driver.date(self.now) + choice((2.0, 12.0, 40.0)) if some(0.15) else inf
        return m.Hello(
            choice(("c1", "c2")), choice(HOSTS), choice((1, 2, 4, 4)), 7, 0.0, choice((0, 8)),
            ("g0", "g1")[: choice((0, 1, 2, 2))], choice((0, 150, 1000)), properties, ends_at,
            leased=some(0.05), leaving=some(0.03),
        )  # fmt: skip

    def _new_driver(self) -> DriverState:
        driver = new_state(self.options, self.session, self.started_at)
        driver.engines.spare_units = self.spare_units
        driver.leases = {"k1", "k3"}
        restore(driver, self.journal, self.now)
        if self.lines is not None:
            driver.feed(Feeder(iter(self.lines), driver.known))
            if self.some(0.5):
                driver.backlog.total = sum(line is not None and line.kind is LineKind.TASK for line in self.lines)
        if self.some(0.5):
            driver.backlog.pace.note(0.001)
        return driver

    # ---- engines

    def present(self) -> list[Peer]:
        return [peer for peer in self.peers if not peer.gone]

    def any_peer(self) -> Peer | None:
        return self.random.choice(self.present()) if self.present() else None

    def say(self, peer: Peer, *bodies: m.FromEngine) -> None:
        for frame in peer.says(self.now, *bodies):
            if self.some(0.95):
                hear(self.driver, frame, self.now)

    def join(self) -> None:
        peer = Peer(self._hello(), f"e{len(self.peers)}")
        self.peers.append(peer)
        hear(self.driver, peer.greeting(), self.now)

    def greet_again(self) -> None:
        if (peer := self.any_peer()) is not None:
            hear(self.driver, peer.greeting(), self.now)

    def live(self) -> None:
        """A sign of life, or a frame of another session."""
        for peer in self.present():
            if peer.session != self.session and self.some(0.8):
                hear(self.driver, peer.greeting(), self.now)
                continue
            if peer.leaving and not peer.held and self.some(0.6):
                peer.gone = True
                self.say(peer, m.Bye())
                continue
            session = peer.session + (self.random.choice((-1, 1)) if self.some(0.1) else 0)
            hear(self.driver, m.EngineFrame(m.VERSION, peer.id, session, 0, peer.channel.received, []), self.now)

    def result(self, task: m.Task) -> m.Result:
        choice, some = self.random.choice, self.some
        reason = choice(("", "", "", "", "", "walltime", "killed", "dismissed", "no such file", NODE_LOST, m.CYLINDER_KILLED))
        if some(0.1):
            reason = f"{m.OUT_OF_MEMORY}: much"
        at = self.driver.date(self.now)
        return m.Result(
            task.task_id, task.attempt + some(0.03), choice((0, 0, 0, 0, 3)), 9, at - choice((0.001, 0.001, 2.0)), at,
            choice((0, 40)), b"out", choice((0, 7)), b"err", reason, 0.5, 77, b"last", choice((0, 0, 60)), choice((0, 3)),
        )  # fmt: skip

    def finished(self, peer: Peer, number: int) -> m.Finished:
        tasks = peer.held[number]
        ended = tasks if self.some(0.6) else tasks[: self.random.randrange(len(tasks) + 1)]
        rest = tasks[len(ended) :]
        closed = self.some(0.8 if ended is tasks else 0.3)
        back = rest[0 if closed else 1 :] if self.some(0.7) else []  # the first of them runs, unless it is closed
        peer.held[number] = [task for task in rest if task not in back]
        if closed:
            del peer.held[number]
        returned = tuple(task.task_id for task in back) + ((999,) if self.some(0.05) else ())
        return m.Finished(number, [self.result(task) for task in ended], closed, returned, closed and self.some(0.1))

    def report(self) -> None:
        busy = [peer for peer in self.present() if peer.held]
        if busy:
            peer = self.random.choice(busy)
            number = self.random.choice(list(peer.held))
            self.say(peer, m.Report([self.finished(peer, number), *([m.Finished(77, [])] if self.some(0.05) else [])]))

    def report_more(self) -> None:
        """Commands of engines, and output."""
        peer = self.any_peer()
        if peer is not None and self.some(0.5):
            task_id = self.random.choice((0, 1, -1, -2, 5))
            at = self.driver.date(self.now)
            self.say(peer, m.Report([], [m.Result(task_id, 1, self.random.choice((0, 0, 2)), 9, at, at)]))
        elif peer is not None:
            there = self.driver.kept_output.get(peer.hello.properties.get("key", ""), 0)
            at_byte = self.random.choice((there, there, max(0, there - 2), there + 1, -1))
            output = m.Output(at_byte, b"abcde"[: self.random.randrange(6)])
            if self.some(0.3):
                hear(self.driver, m.EngineFrame(m.VERSION, peer.id, 0, 0, 0, [output]), self.now)
            else:
                self.say(peer, output)

    def leave(self) -> None:
        peer = self.any_peer()
        if peer is None or (peer.held and self.some(0.5)):
            return
        begun = [task.task_id for tasks in peer.held.values() for task in tasks if self.some(0.5)]
        peer.gone = True
        how = self.random.choice(("bye", "died", "vanished", "vanished"))
        if how == "bye":
            self.say(peer, m.Bye())
        elif how == "died":
            will: list[m.FromEngine] = [m.Report([]), m.Bye("its process ended", died=True, begun=tuple(begun))]
            hear(self.driver, m.EngineFrame(m.VERSION, peer.id, 0, 0, 0, will), self.now)
        else:
            spool = [self.finished(peer, number) for number in list(peer.held)] if self.some(0.5) else None
            engine_vanished(self.driver, peer.id, "gone", self.now, spool, set(begun) if self.some(0.7) else None)

    def stranger(self) -> None:
        choice = self.random.choice
        engine = choice([*(peer.id for peer in self.peers), "nobody"])
        session = choice((0, self.session, self.session, 99))
        bodies: list[m.FromEngine] = [m.Report([])] if self.some(0.6) else [m.Report([]), self._hello()]
        hear(self.driver, m.EngineFrame(m.VERSION, engine, session, 1, 0, bodies), self.now)

    # ---- the decider

    def groups(self, *, waiting: bool) -> list[TaskGroup]:
        return [group for group in self.driver.groups.values() if (group.state is JobState.WAITING) is waiting]

    def start(self) -> None:
        if self.some(0.5):
            self.begin()
        driver, waiting = self.driver, self.groups(waiting=True)
        for group in waiting[self.random.randrange(2) :]:
            if self.some(0.3):
                continue
            units = self.units_for(group.job)
            if units is None:
                continue
            if not group.from_file and group.job.command is None:
                bind(driver, group.job.id, Command(argv=("bound", group.job.id), cwd="/x", memory_mb=5), self.now)
            apply(driver, d.StartJob(self.now, group.job.id, units), self.now)

    def units_for(self, job: Job) -> IdSet | None:
        """Free units of engines; now and then of one that has left or is about to."""
        engines = self.driver.engines
        used = 0
        for group in self.groups(waiting=False):
            used |= group.units.mask
        able = list(engines.present.values())
        if self.some(0.1) and engines.departed:
            able = [self.random.choice(list(engines.departed.values()))]
        elif not self.some(0.1):
            able = [proxy for proxy in able if not proxy.closed_for]
        units = self.pick(able, used, max(1, job.least_units, 2 * self.some(0.15)))
        if units is None or job.shape is None:
            return units
        for proxy in engines.present.values():
            count = proxy.part(units).bit_count()
            if count and gpus_taken(job.shape, count) > len(proxy.free_gpus):
                return None
        return units

    def pick(self, able: list[EngineProxy], used: int, count: int) -> IdSet | None:
        free = {proxy.id: list(IdSet(proxy.node.mask & ~used)) for proxy in able}
        one = [units for units in free.values() if len(units) >= count]
        if one and not (count > 1 and self.some(0.5)):
            return IdSet.of(self.random.choice(one)[-count:])
        every = [unit for units in free.values() for unit in units]
        return IdSet.of(self.random.sample(every, count)) if len(every) >= count else None

    def decide(self) -> None:
        driver, now, choice = self.driver, self.now, self.random.choice
        known = [*(group.job.id for group in self.groups(waiting=False)), "nothing"]
        if not driver.begun:
            return
        decision: d.Decision = choice((
            d.KillJobs(now, tuple(self.random.sample(known, min(len(known), choice((0, 1, 2, 3)))))),
            d.RejectJob(now, choice([*(group.job.id for group in self.groups(waiting=True)), "nothing"]), "too large"),
            d.RejectJob(now, choice([*(group.job.id for group in self.groups(waiting=True)), "nothing"]), omitted=True),
            d.CallAt(now, now + 1, "once"),
            d.CallEvery(now, 2.0, "often", 3),
            d.StopCalls(now, "often"),
            d.Annotate(now, "nothing", {}),
            d.ConfirmWithdrawal(now, "nothing"),
            d.StartJob(now, "nothing", IdSet.of([0, 2])),
        ))  # fmt: skip
        apply(driver, decision, now)

    # ---- users, contexts and time

    def submit(self) -> object:
        choice, some = self.random.choice, self.some
        self.jobs += 1
        after = tuple({f"j{self.random.randrange(1, self.jobs + 1)}" for _ in range(choice((0, 0, 1, 2)))})
        command = Command(line=f"run {self.jobs}", env={"E": "1"}, stdout="out") if some(0.7) else None
        shape = choice((None, None, Shape(nodes=2, most_nodes=2), Shape(gpus_per_node=1, constraint=msgspec.Raw(b'"x"'))))
        profile, source = choice(((None, None), (Profile("d", Delay(1.0)), None), (None, msgspec.Raw(b"{}"))))
        return submit(
            self.driver,
            Job(
                f"j{self.jobs}", choice((1, 1, 2)), choice((inf, 9.0)), self.now, profile, after=tuple(sorted(after)),
                shape=shape, command=command, source=source, user="u",
            ),
            self.now,
        )  # fmt: skip

    def ask(self) -> object:
        """A user asks for something."""
        driver, random = self.driver, self.random
        task_id = random.choice([*range(-1, 12), *driver.done.failed, *(number for number, _ in driver.known_jobs.values())])
        kind = random.choice(("cancel", "cancel job", "cancel job", "retry", "retry", "leave", "leave now", "context", "no more"))
        try:
            if kind == "cancel":
                return cancel_task(driver, task_id, self.now)
            if kind == "retry":
                failed = [*driver.done.failed, task_id]
                return retry_task(driver, random.choice(failed), self.now)
        except Refusal as refusal:
            return str(refusal)
        if kind == "cancel job":
            job_id = random.choice([*driver.groups, *(f"j{number}" for number in range(self.jobs + 2))])
            return cancel(driver, job_id, self.now)
        if kind == "context":
            return stop_context(driver, "c2", "enough", self.now) if self.some(0.2) else None
        if kind == "no more":
            driver.no_more = True
            return None
        engine = random.choice([*driver.engines.present, "nobody"])
        return ask_to_leave(driver, engine, "asked", self.now, at_once=kind == "leave now")

    def stop(self) -> None:
        if self.some(0.3):
            apply(self.driver, d.StopWorld(self.now), self.now)
        else:
            stop(self.driver, self.random.choice(("interrupted", "enough")), self.now)

    def wait(self) -> None:
        self.now += self.random.choice((0.1, 0.5, 1.0, 4.0, 12.0))

    def tick(self) -> None:
        look_at_cancelled(self.driver, self.now)
        tick(self.driver, self.now)

    def begin(self) -> object:
        if not self.driver.begun and self.driver.engines.present:
            return begins(self.driver, self.now)
        return None

    def restart(self) -> object:
        """Another driver goes on with what the journal holds; its clock begins at 0."""
        kept, before = self.driver.kept_output, durable(self.driver, range(50))
        self.session += 1
        self.started_at, self.now = self.driver.date(self.now) + 3.0, 0.0
        self.driver = self._new_driver()
        self.driver.kept_output = kept
        after = durable(self.driver, range(50))
        for name in before:
            if name not in ("numbers", "assignments"):
                assert after[name] == before[name], f"{name}: {after[name]}, before the restart {before[name]}"
        after["counts"] = sorted((state.value, count) for state, count in self.driver.counts.items())
        return after, self.begin() if self.some(0.5) else None, sorted(self.driver.groups), self.driver.context_limits

    # ---- all of them

    def told(self) -> Iterator[object]:
        act = {
            self.join: 8, self.greet_again: 2, self.live: 8, self.report: 22, self.report_more: 3, self.leave: 3,
            self.stranger: 2, self.start: 22, self.decide: 4, self.submit: 8, self.ask: 7, self.wait: 5, self.tick: 6,
            self.begin: 6, self.restart: 2, self.stop: 0.3,
        }  # fmt: skip
        for _ in range(self.random.randrange(5)):
            self.join()
        yield self.flush(), self.begin() if self.some(0.8) else None
        for _ in range(STEPS):
            (action,) = self.random.choices(list(act), list(act.values()))
            answer = action()
            yield action.__name__, self.now, answer, self.flush(), self.look()

    def flush(self) -> object:
        """As world.py does it: records, then frames, then events."""
        driver = self.driver
        settle(driver, self.now)
        written, driver.records = driver.records, []
        self.journal += written
        sent = frames(driver, self.now)
        for frame in sent:
            if self.some(0.95):
                for peer in self.peers:
                    if peer.id == frame.engine and not peer.gone:
                        peer.hear(frame, self.now)
        told: list[e.Event] = []
        told, driver.events = driver.events, told
        outputs, driver.outputs = driver.outputs, []
        lost, driver.lost_engines = driver.lost_engines, []
        return written, sent, told, outputs, lost

    def look(self) -> object:
        """What the driver says of itself."""
        driver, backlog = self.driver, self.driver.backlog
        engines = driver.engines
        waiting = sum(group.state is JobState.WAITING for group in driver.groups.values())
        assert driver.waiting == waiting
        assert driver.running_tasks == sum(len(group.tasks) for group in driver.assignments.values())
        assert engines.units == sum(proxy.node.count for proxy in engines.present.values())
        shown = [
            (
                proxy.id, proxy.state.value, proxy.heard_at, proxy.speaks_at, proxy.ends_at, proxy.welcomed, proxy.closed_for,
                proxy.leaves_at_once, proxy.assignments, proxy.given, proxy.done, proxy.failed, proxy.free_gpus,
            )
            for proxy in engines.present.values()
            if proxy.state is not ProxyState.EXPECTED or self.some(0.2)
        ]  # fmt: skip
        return (
            shown, driver.waiting, driver.running_tasks, driver.too_late, driver.nothing_to_do, driver.stuck, driver.over,
            driver.waiting_tasks, driver.stopped_because, driver.told_no_more, driver.output_room, driver.losses, driver.answered,
            driver.calls.next_at, driver.has_engine_commands, backlog.waiting_here, backlog.empty, backlog.last_given,
            backlog.attempts, backlog.cancelled, len(driver.failed_tasks), driver.next_task, driver.next_assignment,
            [engines.by_key(key) for key in ("k1", "k2", "k3")], engines.keys_seen, driver.leave_later, driver.spanning,
        )  # fmt: skip


def driver(random: Random) -> Iterator[object]:
    return DriverStory(random).told()
