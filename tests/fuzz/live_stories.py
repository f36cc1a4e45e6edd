"""Stories of the live world's small machines: an engine whose driver and cylinders are made up by chance, the key-value store,
and both ends of a channel.

In: a seeded Random. Out: what happened, step by step (see stories.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pickle import loads
from random import Random

from pilothouse.worlds.live.engine.engine import Engine, EngineState
from pilothouse.worlds.live.engine.instructions import TellCylinder
from pilothouse.worlds.live.services.kvs import KeyValueStore, MemoryShelf, Reader, StoreFull, Value
from pilothouse.worlds.live.wire import messages as m

# ---- an engine


class GrowingPack:
    """The output of tasks, in memory. A piece is read in halves, as at the end of a file."""

    def __init__(self) -> None:
        self.data = b""

    def size(self) -> int:
        return len(self.data)

    def read(self, at: int, most: int) -> bytes:
        return self.data[at : at + min(most, 7)]


def engine(random: Random) -> Iterator[object]:
    slots = random.choice((1, 2, 3))
    hello = m.Hello(context="story", node="n", slots=slots, pid=7, started_at=1000.0)
    pack = GrowingPack() if random.random() < 0.5 else None
    one = Engine(
        "e", hello, 5.0,
        cores=random.choice(((), tuple(range(5)), (4, 6))), slot_env={"X": ("p", "q"), "Y": ()}, pack=pack, window_bytes=20,
    )  # fmt: skip
    on_join, on_leave = ([m.Task(number) for number in range(random.choice((0, 0, 2)))] for _ in range(2))
    now, session, seq, sent = 5.0, 1, 0, 0
    given: dict[int, m.Assignment] = {}
    begun: list[tuple[int, m.Assignment]] = []

    def assignment() -> m.Assignment:
        nonlocal sent
        number = sent = sent + 1
        if given and random.random() < 0.15:
            number = random.choice(list(given))
        tasks = [m.Task(10 * number + index) for index in range(random.randrange(1, 4))]
        environment = m.TaskEnvironment(bind=random.random() < 0.5)
        gpus, nodes = random.choice(((), ("0", "3"))), random.choice(("", "n:1,o:2"))
        where = tuple(random.sample(range(slots), random.randrange(1, slots + 1)))
        made = given[number] = m.Assignment(number, where, tasks, environment, gpus, nodes)
        return made

    def welcome() -> m.Welcome:
        known = tuple(number for number in given if random.random() < 0.8)
        kept = random.randrange(len(pack.data) + 1) if pack is not None else 0
        return m.Welcome(
            random.randrange(3), {"A": "1"}, "T={task}", random.choice((1.0, 2.0)), random.choice((15.0, 30.0)), 5.0, 0,
            known, on_join, on_leave, kept=kept,
        )  # fmt: skip

    def said() -> list[m.FromDriver]:
        number = random.choice((0, *given))
        kinds: tuple[m.FromDriver, ...] = (
            m.Start([assignment() for _ in range(random.randrange(1, 3))]), m.Start([assignment()]), m.Start([assignment()]),
            m.Kill((number,)), m.Kill((number, 99), "walltime"), m.Kept(1),
            m.Leave("go", now=random.random() < 0.3), m.Dismiss("gone", over=random.random() < 0.3), welcome(),
        )  # fmt: skip
        return random.choices(kinds, (5, 5, 5, 2, 1, 1, 0.7, 0.4, 0.2), k=random.randrange(3))

    def heard() -> None:
        nonlocal session, seq
        bodies = said()
        joins = one.session == 0 or random.random() < 0.06
        if joins and random.random() < 0.8:
            session, seq = session + (one.session != 0), 0
            bodies = [welcome(), *bodies]
        elif random.random() < 0.05:
            session += 1
        seq += random.choices((1, 0, 2), (12, 1, 1))[0]
        ack = random.choice((0, 1, 2, 5, 99))
        name = one.id if random.random() < 0.97 else "other"
        one.hear(m.DriverFrame(m.VERSION, name, session, random.choice((seq, seq, seq, seq, 0)), ack, bodies), now)

    def results(tasks: list[m.Task]) -> list[m.Result]:
        return [m.Result(task.task_id, task.attempt, 0, 77, now - 1.0, now) for task in tasks]

    def reported() -> None:
        if pack is not None:
            pack.data += bytes(random.choice((0, 3, 20)))
        if begun:
            cylinder, work = random.choice(begun)
            done = random.randrange(len(work.tasks) + 1)
            closed = random.random() < 0.7
            rest = tuple(task.task_id for task in work.tasks[done:]) if closed else ()
            one.report(cylinder, m.Finished(work.id, results(work.tasks[:done]), closed, rest), now)
            if closed:
                begun.remove((cylinder, work))

    def died() -> None:
        cylinder = random.randrange(slots + 1)
        last = next((work for where, work in begun if where == cylinder), None)
        if last is None:
            one.cylinder_died(cylinder, None, [], None, now)
        else:
            done = random.randrange(len(last.tasks) + 1)
            running = random.choice((None, *(task.task_id for task in last.tasks[done:])))
            one.cylinder_died(cylinder, last.id, results(last.tasks[:done]), running, now)
        begun[:] = [each for each in begun if each[0] != cylinder]

    for _ in range(60):
        now += random.choices((0.0, 0.5, 1.0, 2.0, 10.0, 15.5), (4, 4, 4, 2, 0.4, 0.1))[0]
        kind = random.choices((heard, reported, died, None), (6, 4, 0.5, 4))[0]
        kind() if kind is not None else one.tick(now)
        out = one.take(now)
        for each in out:
            if isinstance(each, TellCylinder) and isinstance(each.message, m.Work):
                begun.append((each.cylinder, each.message.assignment))
        yield now, out
        yield one.state.name, one.wakes_at(), one.unacked, one.results, one.id, one.session, one.rank, one.wait_for_driver_s
        if one.state is EngineState.GONE and random.random() < 0.5:
            break


# ---- the key-value store


def kvs(random: Random) -> Iterator[object]:
    store = KeyValueStore(MemoryShelf(random.choice((60, 150))))
    keys = (b"a", b"b", b"w", b"x")
    got: list[object] = []
    readers: list[Reader] = []

    def value() -> Value:
        data = random.choice((b"", b"1", b"22", b"m" * 24 + b"n" * 3 + b"o" * 23, b"m" * 25 + b"n" * 3 + b"o" * 23))
        return Value(random.choice((b"ASTR", b"ASTR", b"JSON", b"HTML", b"PYPK")), data)

    def read() -> None:
        number, key = len(readers), random.choice(keys)
        readers.append(Reader(key, random.random() < 0.6, lambda value: got.append((number, value))))
        store.read(readers[-1])

    def watch() -> None:
        letters = "".join(random.sample("gpvw", random.randrange(5)))
        # Each watched key has one that watches it: those that are told of the same event come in any order.
        key, specs = random.choice(((b"w", (f"a:{letters}", f":{letters}", "a")), (b"x", (f"b:{letters}", f"a:b:{letters}"))))
        store.watch(key, random.choice(specs).encode())

    def act() -> None:
        kind = random.choices(("put", "read", "cancel", "replace", "watch"), (8, 8, 2, 1, 1))[0]
        if kind == "put":
            store.put(random.choice(keys), value())
        elif kind == "read":
            read()
        elif kind == "cancel" and readers:
            store.cancel(random.choice(readers))
        elif kind == "replace":
            store.replace(random.choice(keys), value())
        elif kind == "watch":
            watch()

    for _ in range(40):
        try:
            act()
        except StoreFull as problem:
            yield problem
        yield got, loads(store.dump())
        got.clear()


# ---- both ends of a channel


def channel(random: Random) -> Iterator[object]:
    ends: tuple[m.Channel[int], m.Channel[int]] = (m.Channel(), m.Channel())
    now = 0.0
    lines: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for number in range(60):
        side = random.randrange(2)
        one, out, line = ends[side], lines[side], lines[1 - side]
        kind = random.choices(("push", "send", "take", "burst"), (4, 4, 5, 0.2))[0]
        now += random.choice((0.0, 0.5, 1.0, 2.0))
        if kind == "push":
            one.push(number)
        elif kind == "burst":
            for body in range(70):
                one.push(100 + body)
                out += [(seq, one.received) for seq, _ in one.outgoing(now)]
        elif kind == "send":
            frames = one.outgoing(now)
            yield frames
            out += [(seq, one.received) for seq, _ in frames if random.random() < 0.8] or [(0, one.received)]
        elif line:
            frame = line.pop(0 if random.random() < 0.8 else random.randrange(len(line)))
            yield frame, one.take(*frame, now)
        yield [(each.received, each.next_seq, each.idle) for each in ends]
