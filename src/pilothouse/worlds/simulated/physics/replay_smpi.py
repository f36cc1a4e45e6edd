"""Replays time-independent traces of MPI programs (SimGrid's SMPI format).

In: a file that lists one trace per rank. Out: over when every rank has finished and reported. Computation is a flow
on the rank's host; a message is a flow over the route, begun when both sides are there, with a header of 16 bytes. A
send below 64 KiB is detached: the sender goes on at once. All of this equals SMPI (3.32) exactly.

Collectives are made of such messages, by SMPI's default algorithms: broadcast along a binomial tree; reduction,
gathering and scattering directly with the root; barrier by gathering at rank 0 and telling all; all-reduce as reduction
to rank 0 and broadcast; all-gather and all-to-all by exchanging everything at once (all-to-all in pairs from 512 KiB on
2 or 4 ranks); reduce-scatter as reduction and scattering; scans by sending to all higher ranks. Operators of reductions
cost the computation that the trace says. On 2 to 12 ranks all of them end at SMPI's own dates; on 16 ranks and more SMPI
may choose Bruck's algorithm for a small all-to-all, which we do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING

import msgspec

from pilothouse.formats.traces import MpiAction, read_mpi, trace_files
from pilothouse.model.errors import InputError
from pilothouse.model.profile import Profile, TraceReplay
from pilothouse.worlds.simulated.physics.replay_usage import Replay
from pilothouse.worlds.simulated.physics.sharing import Flow

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.physics.execution import Physics, Run

HEADER_BYTES = 16.0
DETACHED_BELOW_BYTES = 65536.0
PAIRWISE_FROM_BYTES = 524288.0
PAIRWISE_BELOW_RANKS = 8
ANY = -1
COLLECTIVE_TAG = -2

# Sizes of MPI's datatypes by the numbers that traces use.
TYPE_SIZES = (
    8, 4, 1, 2, 8, 4, 1, 8, 1, 1, 2, 4, 8, 8, 16, 4, 1, 1, 2, 4, 8, 1, 2, 4, 8, 8, 16, 32, 8, 8,
)  # fmt: skip
BYTE = 1


class Request:
    """A send or receive; done when its bytes have arrived (a detached send: at once)."""

    __slots__ = ("done", "peer", "rank", "size", "tag", "waiter")

    def __init__(self, rank: int, peer: int, tag: int, size: float) -> None:
        self.rank = rank
        self.peer = peer
        self.tag = tag
        self.size = size
        self.done = False
        self.waiter: Rank | None = None


Steps = Generator[Iterable[Request], None, None]


class Rank:
    """One process of the program: goes through its actions, and waits for requests."""

    __slots__ = ("index", "missing", "number", "open", "steps")

    def __init__(self, number: int) -> None:
        self.number = number
        self.index = 0
        self.missing = 0
        self.open: list[Request] = []
        """Requests of non-blocking actions that no action has waited for yet, in order."""
        self.steps: Steps = iter_nothing()


def iter_nothing() -> Steps:
    yield from ()


class JobMapping(msgspec.Struct):
    smpi_ranks_to_hosts_mapping: tuple[int, ...] = ()


class MpiReplay(Replay):
    """All ranks of one program, and the messages between them."""

    __slots__ = ("_actions", "_ranks", "_receives", "_sends")

    def __init__(self, physics: Physics, run: Run, profile: Profile, spec: TraceReplay) -> None:
        files = trace_files(spec.path)
        super().__init__(physics, run, profile, len(files))
        shared = len(set(files)) < len(files)
        self._actions = [read_mpi(path, rank, shared=shared) for rank, path in enumerate(files)]
        self._ranks = [Rank(number) for number in range(len(files))]
        self._sends: dict[int, list[Request]] = {number: [] for number in range(len(files))}
        self._receives: dict[int, list[Request]] = {number: [] for number in range(len(files))}
        if run.job.source is not None:
            mapping = msgspec.json.decode(run.job.source, type=JobMapping).smpi_ranks_to_hosts_mapping
            if mapping:
                self._place(mapping)

    def _place(self, mapping: tuple[int, ...]) -> None:
        units = list(self.run.units)
        if len(mapping) != len(self.hosts) or any(not 0 <= index < len(units) for index in mapping):
            where = f"job {self.run.job.id}: smpi_ranks_to_hosts_mapping"
            raise InputError(where, f"{len(mapping)} places for {len(self.hosts)} ranks on {len(units)} hosts")
        self.hosts = [units[index] for index in mapping]

    def share_done(self) -> float:
        if not self.physics.demands.ranks_report:
            return -1.0  # QUIRK: Batsim 5 does not know how far a replay is.
        total = sum(len(actions) for actions in self._actions)
        return sum(max(0, rank.index - 1) for rank in self._ranks) / total if total else 0.0

    # ---- ranks

    def begin_rank(self, rank: int) -> None:
        one = self._ranks[rank]
        one.steps = self._program(one)
        self._go_on(one)

    def _program(self, rank: Rank) -> Steps:
        for action in self._actions[rank.number]:
            rank.index += 1
            perform = ACTIONS.get(action.verb)
            if perform is None:
                raise InputError(action.where, f"unknown action {action.verb!r}")
            try:
                steps = perform(self, rank, action)
                if steps is not None:
                    yield from steps
            except (ValueError, IndexError) as error:
                raise InputError(action.where, f"bad arguments of {action.verb!r}: {error}") from error

    def _go_on(self, rank: Rank) -> None:
        """Runs a rank until it has to wait."""
        for requests in rank.steps:
            rank.missing = 0
            for request in requests:
                if not request.done:
                    request.waiter = rank
                    rank.missing += 1
            if rank.missing:
                return
        self.rank_is_over(rank.number)

    def _complete(self, request: Request) -> None:
        request.done = True
        waiter, request.waiter = request.waiter, None
        if waiter is not None:
            waiter.missing -= 1
            if not waiter.missing:
                self._go_on(waiter)

    # ---- what takes time

    def compute(self, rank: Rank, flop: float) -> Steps:
        if flop > 0:
            request = Request(rank.number, rank.number, 0, 0.0)

            def over(flow: Flow) -> None:
                self.ended(flow)
                self._complete(request)

            self.start(self.physics.demands.task([self.hosts[rank.number]], [flop], (), over))
            yield (request,)

    def sleep(self, seconds: float) -> Steps:
        request = Request(0, 0, 0, 0.0)
        agenda = self.physics.agenda
        agenda.at(agenda.now + seconds, lambda _: self._complete(request) if self.is_running() else None)
        yield (request,)

    def is_running(self) -> bool:
        return self._silent > 0

    # ---- messages

    def send(self, rank: Rank, peer: int, tag: int, size: float) -> Request:
        self._check_peer(peer)
        request = Request(rank.number, peer, tag, size)
        request.done = size < DETACHED_BELOW_BYTES
        receives = self._receives[peer]
        for place, other in enumerate(receives):
            if _match(request, other):
                del receives[place]
                self._transfer(request, other)
                return request
        self._sends[peer].append(request)
        return request

    def receive(self, rank: Rank, peer: int, tag: int) -> Request:
        if peer != ANY:
            self._check_peer(peer)
        request = Request(rank.number, peer, tag, 0.0)
        sends = self._sends[rank.number]
        for place, other in enumerate(sends):
            if _match(other, request):
                del sends[place]
                self._transfer(other, request)
                return request
        self._receives[rank.number].append(request)
        return request

    def _check_peer(self, peer: int) -> None:
        if not 0 <= peer < len(self.hosts):
            raise ValueError(f"there is no rank {peer}")

    def _transfer(self, sent: Request, received: Request) -> None:
        def over(flow: Flow) -> None:
            self.ended(flow)
            if not sent.done:
                self._complete(sent)
            self._complete(received)

        source, target = self.hosts[sent.rank], self.hosts[received.rank]
        self.start(self.physics.demands.message(source, target, sent.size + HEADER_BYTES, over))

    # ---- collectives

    def broadcast(self, rank: Rank, root: int, size: float) -> Steps:
        count = len(self.hosts)
        place = (rank.number - root) % count
        mask = 1
        while mask < count:
            if place & mask:
                yield (self.receive(rank, (rank.number - mask) % count, COLLECTIVE_TAG),)
                break
            mask <<= 1
        mask >>= 1
        while mask:
            if place + mask < count:
                yield (self.send(rank, (rank.number + mask) % count, COLLECTIVE_TAG, size),)
            mask >>= 1

    def to_root(self, rank: Rank, root: int, sizes: list[float]) -> Steps:
        """Everybody sends its size to the root."""
        if rank.number == root:
            yield [self.receive(rank, other, COLLECTIVE_TAG) for other in self.others(root)]
        else:
            yield (self.send(rank, root, COLLECTIVE_TAG, sizes[rank.number]),)

    def from_root(self, rank: Rank, root: int, sizes: list[float]) -> Steps:
        """The root sends everybody its size."""
        if rank.number == root:
            yield [self.send(rank, other, COLLECTIVE_TAG, sizes[other]) for other in self.others(root)]
        else:
            yield (self.receive(rank, root, COLLECTIVE_TAG),)

    def exchange(self, rank: Rank, sizes: list[float]) -> Steps:
        """Everybody sends something to everybody, all at once; sizes are those that this rank sends."""
        others = self.others(rank.number)
        receives = [self.receive(rank, other, COLLECTIVE_TAG) for other in others]
        sends = [self.send(rank, other, COLLECTIVE_TAG, sizes[other]) for other in others]
        yield receives + sends

    def others(self, number: int) -> list[int]:
        return [other for other in range(len(self.hosts)) if other != number]


def _match(sent: Request, received: Request) -> bool:
    return received.peer in (ANY, sent.rank) and received.tag in (ANY, sent.tag)


# ---- the actions of traces; arguments as SMPI writes them


def _size(action: MpiAction, amount: int, kind: int) -> float:
    """An amount of elements of the datatype that stands at `kind` (bytes if nothing stands there)."""
    return _number(action.arguments[amount]) * _type_size(action, kind)


def _type_size(action: MpiAction, kind: int) -> int:
    if kind >= len(action.arguments):
        return BYTE
    number = int(action.arguments[kind])
    if not 0 <= number < len(TYPE_SIZES):
        raise ValueError(f"unknown datatype {number}")
    return TYPE_SIZES[number]


def _number(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text} is not an amount")
    return value


def _integer(action: MpiAction, place: int, default: int = 0) -> int:
    return int(action.arguments[place]) if place < len(action.arguments) else default


def _nothing(replay: MpiReplay, rank: Rank, action: MpiAction) -> None:
    del replay, rank, action


def _compute(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    return replay.compute(rank, _number(action.arguments[0]))


def _sleep(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    del rank
    return replay.sleep(_number(action.arguments[0]))


def _send(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    yield (replay.send(rank, int(action.arguments[0]), int(action.arguments[1]), _size(action, 2, 3)),)


def _isend(replay: MpiReplay, rank: Rank, action: MpiAction) -> None:
    rank.open.append(replay.send(rank, int(action.arguments[0]), int(action.arguments[1]), _size(action, 2, 3)))


def _recv(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    yield (replay.receive(rank, int(action.arguments[0]), int(action.arguments[1])),)


def _irecv(replay: MpiReplay, rank: Rank, action: MpiAction) -> None:
    rank.open.append(replay.receive(rank, int(action.arguments[0]), int(action.arguments[1])))


def _wait(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    """`wait SOURCE TARGET TAG`: the first open request of that description."""
    del replay
    source, target, tag = (int(text) for text in action.arguments[:3])
    peer = target if source == rank.number else source
    for request in rank.open:
        if request.peer in (peer, ANY) and request.tag in (tag, ANY):
            rank.open.remove(request)
            yield (request,)
            return


def _wait_all(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    del replay, action
    requests, rank.open = rank.open, []
    yield requests


def _sendrecv(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    size = _size(action, 0, 4)
    received = replay.receive(rank, int(action.arguments[3]), COLLECTIVE_TAG)
    yield (replay.send(rank, int(action.arguments[1]), COLLECTIVE_TAG, size), received)


def _barrier(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    del action
    nothing = [0.0] * len(replay.hosts)
    yield from replay.to_root(rank, 0, nothing)
    yield from replay.from_root(rank, 0, nothing)


def _bcast(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    return replay.broadcast(rank, _integer(action, 1), _size(action, 0, 2))


def _reduce(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    yield from replay.to_root(rank, _integer(action, 2), [_size(action, 0, 3)] * len(replay.hosts))
    yield from replay.compute(rank, _number(action.arguments[1]))


def _allreduce(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    size = _size(action, 0, 2)
    yield from replay.to_root(rank, 0, [size] * len(replay.hosts))
    yield from replay.broadcast(rank, 0, size)
    yield from replay.compute(rank, _number(action.arguments[1]))


def _alltoall(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    size, count = _size(action, 0, 2), len(replay.hosts)
    if size < PAIRWISE_FROM_BYTES or count >= PAIRWISE_BELOW_RANKS or count & (count - 1):
        yield from replay.exchange(rank, [size] * count)
        return
    for step in range(1, count):
        peer = rank.number ^ step
        received = replay.receive(rank, peer, COLLECTIVE_TAG)
        yield (received, replay.send(rank, peer, COLLECTIVE_TAG, size))


def _alltoallv(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    count = len(replay.hosts)
    kind = _type_size(action, 2 * count + 2)
    return replay.exchange(rank, [_number(text) * kind for text in action.arguments[1 : count + 1]])


def _gather(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    return replay.to_root(rank, _integer(action, 2), [_size(action, 0, 3)] * len(replay.hosts))


def _gatherv(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    count = len(replay.hosts)
    size = _size(action, 0, count + 2)
    return replay.to_root(rank, _integer(action, count + 1), [size] * count)


def _scatter(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    return replay.from_root(rank, _integer(action, 2), [_size(action, 0, 3)] * len(replay.hosts))


def _scatterv(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    count = len(replay.hosts)
    kind = _type_size(action, count + 2)
    sizes = [_number(text) * kind for text in action.arguments[:count]]
    return replay.from_root(rank, _integer(action, count + 1), sizes)


def _allgather(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    return replay.exchange(rank, [_size(action, 0, 2)] * len(replay.hosts))


def _allgatherv(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    count = len(replay.hosts)
    return replay.exchange(rank, [_size(action, 0, count + 1)] * count)


def _reducescatter(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    count = len(replay.hosts)
    kind = _type_size(action, count + 1)
    sizes = [_number(text) * kind for text in action.arguments[:count]]
    yield from replay.to_root(rank, 0, [sum(sizes)] * count)
    yield from replay.from_root(rank, 0, sizes)
    yield from replay.compute(rank, _number(action.arguments[count]))


def _scan(replay: MpiReplay, rank: Rank, action: MpiAction) -> Steps:
    size = _size(action, 0, 2)
    receives = [replay.receive(rank, other, COLLECTIVE_TAG) for other in range(rank.number)]
    sends = [replay.send(rank, other, COLLECTIVE_TAG, size) for other in range(rank.number + 1, len(replay.hosts))]
    yield receives + sends
    yield from replay.compute(rank, _number(action.arguments[1]))


ACTIONS: dict[str, Callable[[MpiReplay, Rank, MpiAction], Steps | None]] = {
    **dict.fromkeys(("init", "finalize", "comm_size", "comm_split", "comm_dup", "test", "location"), _nothing),
    "compute": _compute,
    "sleep": _sleep,
    "send": _send,
    "isend": _isend,
    "recv": _recv,
    "irecv": _irecv,
    "wait": _wait,
    "waitall": _wait_all,
    "sendrecv": _sendrecv,
    "barrier": _barrier,
    "bcast": _bcast,
    "reduce": _reduce,
    "allreduce": _allreduce,
    "alltoall": _alltoall,
    "alltoallv": _alltoallv,
    "gather": _gather,
    "gatherv": _gatherv,
    "scatter": _scatter,
    "scatterv": _scatterv,
    "allgather": _allgather,
    "allgatherv": _allgatherv,
    "reducescatter": _reducescatter,
    "scan": _scan,
    "exscan": _scan,
}
