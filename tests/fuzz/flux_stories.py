"""Stories of the job manager's end of Flux: its broker with a scheduler and a client that say anything, at any time.

In: a seeded Random. Out: what happened, step by step (see stories.py).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgspec

from pilothouse.formats.fluid import kvs_key
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27 import frames, rpc
from pilothouse.protocols.rfc27 import payloads as p
from pilothouse.protocols.rfc27.broker import Broker
from pilothouse.protocols.rfc27.frames import Message
from pilothouse.protocols.rfc27.job_states import State
from pilothouse.protocols.rfc27.managed_job import Alloc
from pilothouse.protocols.rfc27.manager import Manager
from unit.protocols.rfc27.pair import inventory, spec

SCHEDULER, CLIENT = 1, 2
RANKS = 3
STATUS = ("online", "strict", "limit", "stopped")
OF_JOB = ("id", "state", "alloc", "urgency", "priority", "userid", "submitted_s", "annotations", "started", "freeing",
          "freed_ranks", "resources", "committed")  # fmt: skip


def job_manager(random: Random) -> Iterator[object]:
    """The owner of the jobs, a scheduler and a client do what the protocol allows, and now and then what it does not."""
    instance = Instance(random)
    for _ in range(70):
        yield instance.act()
    manager = instance.manager
    yield [(job.id, job.log, job.annotations) for job in (*manager.jobs.values(), *manager.inactive.values())]


class Instance:
    """A broker with its manager, and two peers without any sense."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.manager = Manager(strict=random.random() < 0.3)
        self.broker = Broker(self.manager, inventory(RANKS, 4, 2), IdSet.span(0, RANKS), userid=random.choice((0, 77)),
                             simulated=random.random() < 0.5)  # fmt: skip
        self.now = 0.0
        self.number = 0
        self.ids = [99 << 24]
        """Of all jobs so far, and one that never was."""
        self.open: list[Message] = []
        """Requests that the scheduler has not answered."""
        self.connected = False
        self.broker.join(CLIENT, "client")
        if random.random() < 0.4:
            self.adopt()

    def act(self) -> object:
        """One step: what was done, and everything that followed."""
        random, manager = self.random, self.manager
        self.now += random.choice((0.0, 1.0, 0.25))
        if not manager.online and random.random() < 0.5:
            done = self.connect()
        else:
            acts = random.choices((self.answer_alloc, self.by_owner, self.ask, self.answer), (8, 9, 4, 2))[0]
            done = acts()
        if random.random() < 0.9:
            self.broker.dispatch(self.now, *random.choice(((), (), (1,), (2,))))
        sent = self.broker.take()
        self.open += [m for peer, m in sent if peer == SCHEDULER and m.wants_response and m.matchtag]
        state = [getattr(manager, name) for name in STATUS], len(manager.queue), list(manager.pending), list(manager.holding)
        told = manager.take_events(), manager.take_warnings(), self.broker.take_logged()
        return done, sent, told, state, [[getattr(job, name) for name in OF_JOB] for job in manager.jobs.values()]

    def say(self, message: Message, peer: int = SCHEDULER) -> object:
        said = msgspec.structs.replace(message)
        self.broker.receive(self.now, peer, message)
        return peer, said

    # ---- the scheduler

    def connect(self) -> object:
        """A handshake, as a rule in the right order."""
        random = self.random
        if self.connected and random.random() < 0.3:
            self.broker.leave(self.now, SCHEDULER)
            self.connected = False
            self.open.clear()
        if not self.connected:
            self.broker.join(SCHEDULER, f"scheduler at {self.now:g}")
            self.connected = True
        if self.broker.scheduler is None:
            return [self.request("service.add", {"service": name}) for name in ("sched", "feasibility")]
        flags = frames.STREAMING if random.random() < 0.7 else 0
        hello = random.choice((None, {}, {"partial-ok": True}, {"partial-ok": False}))
        mode = random.choice(({"mode": "unlimited"}, {"mode": "unlimited"}, {"mode": "single"}, {"mode": "limited", "limit": 2},
                              {"mode": "limited", "limit": 1}, {"mode": "limited"}, {"mode": "other"}))  # fmt: skip
        return [self.request("job-manager.sched-hello", hello, flags=flags), self.request("job-manager.sched-ready", mode)]

    def answer_alloc(self) -> object:
        """An answer to an alloc request, or to a free request."""
        random, manager = self.random, self.manager
        freeing = [job.id for job in manager.holding.values() if job.freeing]
        if (freeing and random.random() < 0.4) or random.random() < 0.02:
            return self.response("sched.free", {"id": random.choice(freeing or self.ids)})
        asked = [*manager.pending] if manager.pending and random.random() < 0.85 else self.ids
        job_id = random.choice(asked)
        job = manager.jobs.get(job_id)
        weights = (1, 1, 1, 12, 0) if job is not None and job.alloc is Alloc.CANCELING else (9, 3, 1.5, 0.3, 0.1)
        kind = random.choices((0, 1, 2, 3, 4), weights)[0]
        answer: dict[str, Any] = {"id": job_id, "type": kind}
        if kind == 0:
            where = random.choices(("both", "here", "kvs", "nowhere", "broken"), (9, 2, 3, 0.2, 0.2))[0]
            granted = {"version": 9} if where == "broken" else self.some_resources()
            if where in ("both", "kvs"):
                self.commit(kvs_key(job_id, "R"), msgspec.json.encode(granted))
            if where in ("both", "here", "broken"):
                answer["R"] = granted
        if kind == 1 or random.random() < 0.3:
            notes = ({"sched": {"t_estimate": self.now + 3}}, {"sched": {"t_estimate": None, "x": {"y": 1}}}, {"user": "u"}, {})
            answer["annotations"] = random.choice((*notes, *notes, *notes, None))
        if random.random() < 0.5:
            answer["note"] = random.choice(("", "never"))
        odd = random.choices(("", "error", "damaged", "tag", "other peer", "other type"), (60, 0.4, 0.2, 0.5, 0.5, 0.2))[0]
        peer = CLIENT if odd == "other peer" else SCHEDULER
        if odd == "other type":
            return self.say(Message(frames.EVENT, "sched.alloc", msgspec.json.encode(answer)))
        return self.response("sched.alloc", b"[" if odd == "damaged" else answer, peer=peer, matchtag=7 if odd == "tag" else 0,
                             errnum=errno.EINVAL if odd == "error" else 0)  # fmt: skip

    def some_resources(self) -> dict[str, Any]:
        random = self.random
        lite = []
        for rank in sorted(random.sample(range(RANKS), random.choice((1, 1, 2, 3)))):
            children = {"core": random.choice(("0", "0-1", "2-3"))}
            if random.random() < 0.4:
                children["gpu"] = random.choice(("0", "0-1"))
            lite.append({"rank": str(rank), "children": children})
        return {"version": 1, "execution": {"R_lite": lite, "starttime": 0, "expiration": 0}}

    def answer(self) -> object:
        """An answer to another request: of the manager, or of the client."""
        random = self.random
        if not self.open:
            return None
        request = self.open.pop(random.randrange(len(self.open)))
        if random.random() < 0.5:
            text = random.choice(("", "too large"))
            errnum = random.choice((errno.EOVERFLOW, errno.ENOSYS, errno.ECANCELED, 1234))
            return self.say(rpc.respond_error(request, errnum, text))
        payloads = [None, b"{}"]
        if request.topic == "sched.quiesce":
            payloads = [None, b'{"id":1}', b'{"id":2,"call_at":%r}' % (self.now + 2)]
            payloads += [b"7"] * (random.random() < 0.1)
        return self.say(rpc.respond(request, random.choice(payloads)))

    # ---- requests of both peers

    def ask(self) -> object:
        random = self.random
        peer = random.choice((SCHEDULER, CLIENT))
        some_id = random.choice([*self.manager.jobs, *self.ids])
        of_job = [kvs_key(some_id, name) for name in ("jobspec", "R", "eventlog", "guest.x")]
        key = random.choice((*of_job, "resource.x", "job.x.R", "job.0000.0000.0000.zzzz.R", "a.0000.0000.0000.0001.R"))
        service = random.choice(("sched", "feasibility", "other", "other", "", "a.b", "kvs"))
        asks: tuple[tuple[str, object], ...] = (
            ("service.add", {"service": service}), ("service.remove", {"service": service}), ("service.add", {"service": 3}),
            ("resource.acquire", None), ("resource.acquire", None), ("kvs.lookup", {"key": key}), ("kvs.lookup", {"key": key}),
            ("kvs.lookup", b"[]"), ("job-info.lookup", {"id": some_id, "keys": ["jobspec"], "flags": random.randrange(4)}),
            ("job-info.lookup", {"id": some_id, "keys": ["R", "eventlog"], "flags": random.randrange(2)}),
            ("job-info.lookup", {"id": some_id, "keys": ["guest.x"], "flags": 0}), ("job-info.lookup", {"id": 7, "keys": []}),
            ("attr.get", {"name": random.choice(("rank", "size", "version", "nothing"))}), ("config.get", None),
            ("event.subscribe", {"topic": "x"}), ("broker.ping", None), ("broker.ping", {"seq": 4, "userid": 3}),
            ("log.append", b"<6>1 a\nline"), ("kvs.nothing", None), ("nothing.at-all", None), ("other.question", {"x": 1}),
            ("sched.question", None), ("kvs.disconnect", None), ("job-manager.disconnect", None), ("job-manager.nothing", None),
            *(("job-manager.raise", {"id": some_id, "type": "x", "severity": severity, "note": "so"}) for severity in (0, 1)),
            ("job-manager.raise", {"id": some_id, "type": "x", "severity": 0}), ("job-manager.raise", {"id": some_id}),
            *[("job-manager.resource-status", None)] * 4,
        )  # fmt: skip
        if random.random() < 0.2:
            value = random.choice((None, b"one", b'{"a":1}', b"two\0", b"\xff"))
            return key, value, self.commit(key, value, peer=peer)
        topic, payload = random.choice(asks)
        if topic == "job-manager.disconnect" and random.random() < 0.7:
            return None
        flags = random.choices((0, frames.STREAMING, frames.NORESPONSE), (6, 1, 1))[0]
        return self.request(topic, payload, peer=peer, flags=flags, odd=random.random() < 0.15)

    def request(self, topic: str, payload: object, *, peer: int = SCHEDULER, flags: int = 0, odd: bool = False) -> object:
        random = self.random
        text = payload if payload is None or isinstance(payload, bytes) else msgspec.json.encode(payload)
        message = rpc.request(topic, text, matchtag=random.randrange(1, 9), flags=flags)
        if odd:
            message.userid, message.rolemask = random.choice(((9999, 2), (9999, 0), (0, 1), (frames.USER_UNKNOWN, 2)))
            message.aux1 = random.choice((frames.NODE_ANY, 0, 0, 1))
            message.routes = random.choice((None, (), (b"further",)))
        return self.say(message, peer)

    def response(self, topic: str, answer: object, *, peer: int = SCHEDULER, matchtag: int = 0, errnum: int = 0) -> object:
        text = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
        routes = self.random.choices(((b"job-manager",), None, (), (b"2",), (b"2", b"3"), (b"x",)), (60, 2, 2, 0.3, 0.3, 0.3))[0]
        return self.say(Message(frames.RESPONSE, topic, text + b"\0", matchtag, errnum, 0, routes), peer)

    def commit(self, key: str, value: bytes | None, peer: int = SCHEDULER) -> object:
        dirent = None if value is None else {"ver": 1, "type": "val", "data": p.encoded_value(value)}
        text = {"namespace": "primary", "flags": 0, "ops": [{"key": key, "flags": 0, "dirent": dirent}]}
        return self.request("kvs.commit", text, peer=peer)

    # ---- the owner of the jobs

    def by_owner(self) -> object:
        acts: dict[Callable[[], object], float] = {
            self.submit: 9, self.begin_or_end: 9, self.cancel: 2, self.change_urgency: 2, self.change_priorities: 2,
            self.release: 3, self.expire: 1, self.question: 1.5, self.change_ranks: 1, self.stop_or_start_queue: 0.7,
            self.adopt: 0.3, self.leave: 0.5,
        }  # fmt: skip
        act = self.random.choices(list(acts), list(acts.values()))[0]
        return act.__name__, act()

    def submit(self) -> object:
        random = self.random
        self.number += 1
        job_id = self.number << 24
        self.ids.append(job_id)
        priority = random.choice((None, None, None, 5, 0, 40))
        more: dict[str, Any] = random.choice(({}, {"urgency": random.choice((0, 1, 16, 20, 31))}, {"userid": 5}))
        return self.manager.submit(self.now, job_id, spec(random.choice((1, 2))), priority=priority, **more).id

    def adopt(self) -> object:
        self.number += 1
        self.ids.append(self.number << 24)
        held = msgspec.json.encode(self.some_resources())
        userid: dict[str, int] = self.random.choice(({}, {"userid": 5}))
        return self.manager.adopt(self.now, self.number << 24, spec(), held, **userid).id

    def begin_or_end(self) -> object:
        """A job that got resources starts; one that runs ends."""
        random, manager = self.random, self.manager
        ready = [job for job in manager.holding.values() if not job.started and job.state is State.RUN]
        if ready:
            manager.start(self.now, ready[0].id)
            return "started", ready[0].id
        running = [job.id for job in manager.holding.values() if job.started or random.random() < 0.1]
        if not running:
            return None
        job_id = random.choice(running)
        status: tuple[int, ...] = random.choice(((), (256,)))
        manager.finish(self.now, job_id, *status)
        return "ended", job_id

    def some_job(self) -> int | None:
        return self.random.choice([*self.manager.jobs]) if self.manager.jobs else None

    def cancel(self) -> object:
        job_id = self.some_job()
        if job_id is not None:
            more: dict[str, Any] = self.random.choice(({}, {"kind": "timeout"}))
            self.manager.cancel(self.now, job_id, *self.random.choice(((), ("why",))), **more)
        return job_id

    def change_urgency(self) -> object:
        job_id, urgency = self.some_job(), self.random.choice((0, 1, 16, 20, 31))
        if job_id is not None:
            self.manager.set_urgency(self.now, job_id, urgency)
        return job_id, urgency

    def change_priorities(self) -> object:
        random = self.random
        wanted = [(random.choice(self.ids), random.choice((0, 5, 16, 16, 50))) for _ in range(random.choice((1, 2, 5)))]
        self.manager.prioritize(self.now, wanted)
        return wanted

    def release(self) -> object:
        random = self.random
        if not self.manager.jobs:
            return None
        job_id = random.choice([*self.manager.holding] or [*self.manager.jobs])
        ranks = IdSet.of(random.sample(range(RANKS + 1), random.choice((1, 1, 2))))
        self.manager.release(self.now, job_id, ranks)
        return job_id, ranks

    def expire(self) -> object:
        running = [job.id for job in self.manager.jobs.values() if job.state is State.RUN]
        if running:
            self.manager.expire(self.now, running[-1], self.now + 60)
        return running[-1:]

    def question(self) -> object:
        self.number += 1
        if self.random.random() < 0.5:
            self.manager.ask_feasibility(self.number, spec(3))
        else:
            self.manager.ask_quiet(self.number, *self.random.choice(((), (self.now,))))
        return self.number

    def change_ranks(self) -> object:
        random = self.random
        some = IdSet.of([random.randrange(RANKS)] if random.random() < 0.7 else [])
        change: dict[str, IdSet | None] = {random.choice(("up", "down")): some}
        if random.random() < 0.1:
            change["gone"] = IdSet.of([2])
        self.broker.change_ranks(**change)
        return change

    def stop_or_start_queue(self) -> object:
        (self.manager.start_queue if self.manager.stopped else self.manager.stop_queue)()
        return self.manager.stopped

    def leave(self) -> object:
        """A peer disconnects."""
        peer = self.random.choice((SCHEDULER, CLIENT))
        self.broker.leave(self.now, peer)
        if peer == CLIENT:
            self.broker.join(CLIENT, "client again")
        else:
            self.connected = False
            self.open.clear()
        return peer
