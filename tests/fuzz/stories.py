"""Random stories of state machines: seeded scripts, and everything that the machine says on the way.

In: the name of a story and a seed. Out: what happened, step by step, as text. `answers.py` holds it against a record. Each
machine is a real one on virtual time, with a policy or a random scheduler at its other end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.simtest.storm import Storm

from fuzz.driver_stories import driver
from fuzz.flux_stories import job_manager
from fuzz.journal_stories import journals
from fuzz.live_stories import channel, engine, kvs
from fuzz.manager_stories import manager
from fuzz.policy_stories import policies
from fuzz.qcg_stories import governor, qcg, queue
from fuzz.scheduler_stories import notes, scheduler
from fuzz.server_stories import servers
from fuzz.turn_stories import turns
from fuzz.world_stories import batsim4, batsim5, worlds
from pilothouse.model.idset import IdSet
from pilothouse.protocols.rfc27.job_states import State
from pilothouse.worlds.live.wire.messages import DriverFrame, EngineFrame
from unit.protocols.rfc27.pair import Pair

Story = Callable[[Random], Iterator[object]]


# ---- Flux: a manager and a scheduler, both ours


def flux(random: Random) -> Iterator[object]:
    strict = random.random() < 0.4
    policy = random.choice(("fcfs", "filler", "easy", "conservative"))
    pair = Pair(strict=strict, limit=random.choice((0, 0, 1, 0 if strict else 3)), policy=policy, gpus=1, nodes=3)
    pair.connect()
    up = {0, 1, 2}
    seen = 0

    def some(ids: Any) -> list[int]:
        found = sorted(ids)
        return [random.choice(found)] if found else []

    def submit() -> None:
        more: dict[str, Any] = {"nodes": 2, "exclusive": random.random() < 0.4} if random.random() < 0.3 else {}
        if random.random() < 0.3:
            more["gpus_per_slot"] = 1
        if random.random() < 0.6:
            more["duration_s"] = float(random.randrange(1, 9))
        pair.submit(random.choice((1, 1, 2, 3, 4, 8, 13)), urgency=random.choice((16, 16, 0, 1, 31)), **more)

    def drain() -> None:
        rank = random.randrange(3)
        (pair.broker.change_ranks(down=IdSet.of([rank])) if rank in up else pair.broker.change_ranks(up=IdSet.of([rank])))
        up.symmetric_difference_update({rank})

    def act() -> None:
        manager, running = pair.manager, [i for i, job in pair.manager.holding.items() if job.started]
        kind = random.choices(
            ("submit", "finish", "cancel", "urgency", "prioritize", "queue", "release", "drain", "crash", "annotate", "ask"),
            (10, 8, 3, 2, 1, 1, 1, 2, 1, 1, 2),
        )[0]  # fmt: skip
        if kind == "submit":
            submit()
        elif kind == "drain":
            drain()
        elif kind == "crash":
            pair.crash()
            pair.connect()
        elif kind == "queue":
            (manager.start_queue if manager.stopped else manager.stop_queue)()
        elif kind == "prioritize":
            manager.prioritize(pair.now, [*((job_id, random.randrange(99)) for job_id in sorted(manager.jobs)), (999, 1)])
        for job_id in some(running) if kind in ("finish", "release") else some(manager.jobs):
            if kind == "finish":
                manager.finish(pair.now, job_id)
            elif kind == "release":
                manager.release(pair.now, job_id, IdSet.of([random.randrange(3)]))
            elif kind == "cancel" and manager.jobs[job_id].state is not State.CLEANUP:
                manager.cancel(pair.now, job_id)
            elif kind == "urgency" and manager.jobs[job_id].state is State.SCHED:
                manager.set_urgency(pair.now, job_id, random.choice((0, 1, 16, 20, 31)))
            elif kind == "annotate" and job_id in pair.engine.pending:
                pair.engine.annotate(job_id, {"sched": {"x": random.choice((None, 1, {"y": 2}))}, "user": "u"})

    for _ in range(40):
        act()
        pair.settle()
        pair.now += random.choice((0.0, 1.0, 2.5))
        said = [(m.type, m.topic, m.payload, m.flags, m.errnum, m.matchtag) for m in pair.log[seen:]]
        seen = len(pair.log)
        yield said, pair.manager.take_warnings(), pair.engine.take_warnings()
    yield [(job.id, job.state, job.log, job.annotations) for _, job in sorted(pair.manager.inactive.items())]
    yield pair.events


# ---- a run: driver, engines and faults


class Overheard(Storm):
    """A storm that keeps what driver and engines say to each other."""

    def __init__(self, seed: int) -> None:
        self.said: list[object] = []
        super().__init__(seed)

    def to_driver(self, machine: Any, frame: EngineFrame) -> None:
        self.said.append(frame)
        super().to_driver(machine, frame)

    def to_engine(self, frame: DriverFrame) -> None:
        self.said.append(frame)
        super().to_engine(frame)


def storm(random: Random) -> Iterator[object]:
    played = Overheard(random.randrange(10_000))
    played.run()
    yield from played.said
    yield from played.disk.records


STORIES: dict[str, tuple[Story, int]] = {
    "flux": (flux, 60),
    "reconnects": (scheduler, 150),
    "notes": (notes, 80),
    "turns": (turns, 150),
    "policies": (policies, 300),
    "storm": (storm, 60),
    "driver": (driver, 80),
    "qcg": (qcg, 100),
    "governor": (governor, 100),
    "queue": (queue, 80),
    "engine": (engine, 150),
    "kvs": (kvs, 60),
    "channel": (channel, 40),
    "worlds": (worlds, 400),
    "servers": (servers, 400),
    "batsim5": (batsim5, 150),
    "batsim4": (batsim4, 60),
    "journals": (journals, 12),
    "manager": (manager, 150),
    "job-manager": (job_manager, 120),
}
"""The story, and how many seeds are told."""
