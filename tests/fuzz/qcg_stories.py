"""Stories of the QCG drop-in: a manager on a virtual allocation, a governor over several of them, and a job queue whose world
is made up by chance.

In: a seeded Random. Out: what happened, step by step (see stories.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec

from pilothouse.dropins.qcg.job_queue import JobQueue
from pilothouse.dropins.qcg.registry import Entry, Item, Runtime
from pilothouse.formats.qcg_dialect import LATER, SPECIFICATION
from pilothouse.formats.qcg_requests import RequestError, Submit, SubmittedJob, parse_request
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Node
from pilothouse.model.lifecycle import FINAL, JobState
from unit.dropins.qcg.fleet import Fleet
from unit.dropins.qcg.virtual import VirtualPilot, nodes_of

ENDS = (JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED, JobState.OMITTED)
OFTEN = {
    "accept": 5.0, "take": 9.0, "allocate": 9.0, "launch": 8.0, "end": 7.0, "cancel": 2.0,
    "return": 1.0, "requeue": 1.0, "refuse": 1.0, "join": 0.5, "remove": 2.0, "turn": 4.0,
}  # fmt: skip
"""What happens to a job queue, and how often."""
NAMES = ("a", "b", "c", "d#1", "e")


# ---- a manager


def qcg(random: Random) -> Iterator[object]:
    def job(name: str) -> dict[str, object]:
        made: dict[str, Any] = {"name": name, "execution": {"exec": "/bin/true"}}
        size: object = random.choice((1, 2, 3, 9, {"min": 1, "max": 3}, {"min": 2, "scheduler": "maximum-iters"}))
        made["resources"] = {"numCores": size}
        if random.random() < 0.3:
            made["resources"] = {"numNodes": random.choice((1, {"min": 1, "max": 2})), "numCores": random.choice((1, 2))}
        if random.random() < 0.4:
            made["iteration"] = {"start": random.randrange(2), "stop": random.randrange(2, 5)}
        others = ["nobody", *NAMES, *(f"{other}:{index}" for other in NAMES for index in (0, 1))]
        if random.random() < 0.5:
            made["dependencies"] = {"after": random.sample(others, random.randrange(3))}
        if random.random() < 0.3:
            made["resources"]["wt"] = "1m"
        return made

    failing = set(random.sample(NAMES, random.randrange(3)))
    pilot = VirtualPilot(4, 2, gpus=1, outcome=lambda name: (0.4 + len(name) % 3, int(name.partition(":")[0] in failing), "m"))
    for _ in range(25):
        some = random.sample(NAMES, random.randrange(1, 4))
        request = random.choice((
            {"request": "submit", "jobs": [job(name) for name in some]},
            {"request": "submit", "jobs": [job(some[0])]},
            {"request": random.choice(("cancelJob", "removeJob")), "jobNames": [*some, f"{some[0]}:0"]},
            {"request": random.choice(("jobInfo", "jobStatus")), "jobNames": [*some, f"{some[0]}:1"]},
            {"request": random.choice(("status", "listJobs", "resourcesInfo", "resourceInfo"))},
            {"request": "jobInfo", "jobNames": some, "params": {"withChilds": True}},
            {"request": "jobInfo", "jobName": some[0]},
            {"request": "cancelJob", "jobName": some[0]},
        ))  # fmt: skip
        yield request, pilot.ask(request)
        pilot.run(until=pilot.now + random.choice((0.0, 0.5, 3.0)))
        yield pilot.starts, pilot.published, len(pilot.finished)
        pilot.starts, pilot.published = [], []
    pilot.ask({"request": "control", "command": "finishAfterAllTasksDone"})
    pilot.run()
    yield pilot.ask({"request": "listJobs"}), pilot.rows, msgspec.json.encode(pilot.states())

# ---- a governor


def governor(random: Random) -> Iterator[object]:
    def job(name: str) -> dict[str, object]:
        made: dict[str, Any] = {"name": name, "execution": {"exec": "/bin/true"}}
        made["resources"] = {"numCores": {"exact": random.choice((1, 1, 1, 2, 3, 9))}}
        if random.random() < 0.6:
            start = random.randrange(3)
            made["iteration"] = random.choice(({"start": start, "stop": start + random.randrange(1, 6)}, {"stop": 4}))
            if random.random() < 0.2:
                made["iteration"] = {"values": ["x", "y", "z"]}
        if random.random() < 0.5:
            others = ["nobody", *NAMES, *(f"{other}:${{it}}" for other in NAMES * 2), *(f"{other}:1" for other in NAMES)]
            made["dependencies"] = {"after": random.sample(others, random.randrange(3))}
        if random.random() < 0.2:
            made["attributes"] = {"mine": 1, "parent_job_id": "x"}
        return made

    def report() -> dict[str, object]:
        ids: dict[str, object] = {"parent_job_id": random.choice((*NAMES, None)), "parent_job_part_id": random.choice("011")}
        attributes = random.choice((ids, ids, ids, {"parent_job_id": "a"}, None))
        state = random.choice(("EXECUTING", "SUCCEED", "FAILED", "CANCELED", "DONE"))
        return {"request": "notify", "entity": "job", "params": {"name": "a", "state": state, "attributes": attributes}}

    failing = set(random.sample(NAMES, random.randrange(3)))
    partitions = random.choice(((), (), ("m1", "m0"), ("m9", "m0")))
    fleet = Fleet(partitions=partitions, outcome=lambda name: (0.4 + len(name) % 3, int(name.partition(":")[0] in failing), "m"))
    for _ in range(30):
        some = random.sample(NAMES, random.randrange(1, 4))
        act = random.choices(("ask", "join", "lose", "hush", "speak"), (20, 4 if len(fleet.pilots) < 2 else 1, 1, 1, 3))[0]
        if act == "ask":
            request = random.choice((
                {"request": "submit", "jobs": [job(name) for name in some]},
                {"request": "submit", "jobs": [job(some[0])]},
                {"request": random.choice(("cancelJob", "removeJob")), "jobNames": [*some, f"{some[0]}:1"]},
                {"request": random.choice(("jobInfo", "jobStatus")), "jobNames": [some[0], f"{some[0]}:1"]},
                {"request": random.choice(("status", "listJobs", "resourcesInfo"))},
                {"request": "jobInfo", "jobNames": some[:1], "params": {"withChilds": True}},
                {"request": "jobInfo", "jobName": some[0]},
                {"request": "status", "options": {"allJobsFinished": True}},
                report(),
            ))  # fmt: skip
            yield request, fleet.ask(request)
        elif act == "join":
            yield fleet.join(*random.choice(((1,), (2,), (4,), (2, 3))), reserved=random.randrange(2))
        elif act == "lose":
            gone = random.choice(("m0", "m1", "m9"))
            fleet.lose(gone)
            yield gone
        elif act == "hush":
            fleet.silent.add(random.choice(("m0", "m1", "m2")))
        else:
            fleet.silent.clear()
        fleet.now += random.choice((0.0, 0.5))
        yield fleet.advance(random.choice((0.0, 0.5, 3.0)))
        yield fleet.governor.publications, fleet.governor.registry.unfinished, fleet.governor.last_usage
        fleet.governor.publications = []
        yield fleet.ask({"request": "listJobs"}), [fleet.held(name) for name in NAMES]
    fleet.silent.clear()
    yield fleet.advance(99.0), fleet.ask({"request": "jobInfo", "jobNames": list(fleet.governor.registry.entries)})
    yield list(fleet.governor.members.values())


# ---- a job queue, and a world by chance


def queue(random: Random) -> Iterator[object]:
    def described(name: str) -> dict[str, object]:
        made: dict[str, Any] = {"name": name, "execution": {"exec": "/bin/true"}}
        size = random.choice((1, 1, 2, 3, 9, {"min": 1, "max": 3}))
        made["resources"] = {"numCores": size if isinstance(size, dict) else {"exact": size}}
        if random.random() < 0.2:
            made["resources"] = {"numNodes": {"exact": 1}, "numCores": {"exact": 2}}
        if random.random() < 0.4:
            made["iteration"] = random.choice(({"start": 1, "stop": 4}, {"stop": 2}, {"values": ["0", "1", "x"]}))
        elif random.random() < 0.2:
            made["iterate"] = [0, 3]
            made["name"] += "_${it}"
        if random.random() < 0.4:
            others = ["nobody", *NAMES, *(f"{other}:${{it}}" for other in NAMES), *(f"{other}:01" for other in NAMES)]
            made["dependencies"] = {"after": random.sample(others, random.randrange(3))}
        if random.random() < 0.3:
            made["resources"]["wt"] = "1m"
        return made

    def submitted() -> list[SubmittedJob]:
        jobs = [described(name) for name in random.sample(NAMES, random.randrange(1, 4))]
        dialect = SPECIFICATION if any("iterate" in job for job in jobs) else LATER
        try:
            request = parse_request(msgspec.json.encode({"request": "submit", "jobs": jobs}), lambda: {}, dialect)
        except RequestError:
            return []
        assert isinstance(request, Submit)
        return [job for job in request.jobs if job.name not in made.registry.entries]

    def item() -> Item | None:
        entries = list(made.registry.entries.values())
        if not entries:
            return None
        entry = random.choice(entries)
        if entry.iterations is None or random.random() < 0.3:
            return entry, None
        return entry, random.randrange(entry.iterations.loop.start, entry.iterations.loop.stop)

    def state_of(entry: Entry) -> object:
        return entry.number, entry.status.state.name, entry.queue_position, entry.cancelled

    now = 10.0
    made = JobQueue("q", nodes_of(4, 2), reserved=random.randrange(2))
    made.publishes = random.random() < 0.8
    first = made.nodes[-1].first + made.nodes[-1].count
    waiting: list[str] = []
    placed: list[str] = []
    running: list[str] = []
    resumed = random.choice((0, 0, 12))
    """So many steps of a manager that begins with what an earlier one left."""
    for number in range(60):
        now += random.choice((0.0, 0.5, 70.0))
        if number < resumed:
            kind = random.choice(("accept", "accept", "restore", "restore", "replace")) if number < resumed - 4 else "adopt"
        else:
            kind = random.choices(tuple(OFTEN), tuple(OFTEN.values()))[0]
        yield kind
        if kind == "accept":
            yield [entry.name for entry in made.accept(submitted(), now)]
        elif kind == "take":
            jobs = made.take_ready(random.choice((0, 1, 2, 5, 99)), now, random.choice((0, 1, 2, 99)))
            waiting += [job.id for job in jobs]
            yield jobs
        elif kind == "allocate" and waiting:
            placed.append(waiting.pop(0))
            start = random.randrange(first)
            made.allocated(placed[-1], IdSet.of(range(start, min(first, start + random.randrange(1, 4)))), now)
        elif kind == "launch" and placed:
            running.append(placed.pop(0))
            made.launched(running[-1], now, wd="/wd", program="true")
        elif kind == "end" and running:
            state = random.choice((JobState.SUCCEEDED, JobState.SUCCEEDED, JobState.FAILED, JobState.KILLED))
            code, message = int(state is not JobState.SUCCEEDED), random.choice(("", "m"))
            made.ended(running.pop(random.randrange(len(running))), state, code, now, pid=7, message=message)
        elif kind == "cancel" and (found := item()) is not None and found[0].state_of(found[1]) not in FINAL:
            made.cancel(*found, now)
        elif kind == "return" and (placed or waiting):
            made.return_unstarted((placed or waiting).pop())
        elif kind == "requeue" and (running or placed):
            waiting.append((running or placed).pop())
            made.requeued(waiting[-1], now)
        elif kind == "refuse" and waiting:
            made.refused(waiting.pop(), "no", now)
        elif kind == "restore" and (found := item()) is not None:
            whole_loop = found[1] is None and found[0].iterations is not None
            ran = Runtime("n0[0]", "n0:1", "/wd", "0:00:01.000000", 0, 7, "true")
            runtime, at = (None, ()) if whole_loop or random.random() < 0.5 else (ran, (now - 1.0,))
            made.restore(found, random.choice(ENDS if runtime is None else ENDS[:3]), now, runtime, *at)
        elif kind == "replace" and (found := item()) is not None and found[0].status.state is JobState.WAITING:
            made.replace(found[0])
        elif kind == "adopt" and (found := item()) is not None and not found[0].submitted.after:
            name = random.choice((found[0].full_name(found[1]), f"{found[0].full_name(found[1])}#{found[0].number}", "none#1"))
            known = made.item_of(name) is not None
            yield name, made.named_in_world(name)
            if not known:
                units = random.choice((None, IdSet.of([0, 1])))
                if made.adopt(name, now, units) is not None:
                    (waiting if units is None else placed).append(name)
        elif kind == "join":
            made.joined((Node(random.choice(("n0#2", "n5")), first, 2),))
            first += 2
        elif kind == "remove" and (found := item()) is not None and found[0].status.final:
            made.remove(found[0])
        elif kind == "turn":
            made.turn_is_over()
        outbox = made.take_outbox()
        waiting, placed = ([name for name in names if made.item_of(name) is not None] for names in (waiting, placed))
        yield [(entry.name, index) for entry, index in outbox.finished], outbox.publications, outbox.cancelled
        yield [entry.name for entry in (*outbox.accepted, *outbox.removed)]
        yield made.ready, made.usage, made.busy, made.all_finished, len(made.nodes), made.totals, made.registry.statistics()
        yield [(name, made.item_of(name) is not None, made.is_cancelling(name)) for name in running]
        yield [state_of(entry) for entry in made.registry.entries.values()]
    yield [(entry.name, entry.status, entry.iterations) for entry in made.registry.entries.values()]
