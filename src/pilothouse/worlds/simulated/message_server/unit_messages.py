"""Messages from units to the server: what they cost, and how they are sent.

In: the unit, and what the server does when it has got the message. Out: an actor's waits. A message costs the latency of
its route to the master and one byte over its bandwidth. Under rules.messages_share_links it is a flow like a parallel
task's where links are in use: it gets its share of them, and the tasks are slowed down meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from pilothouse.worlds.simulated.message_server.rounds import FREE, Actor, Command, Cost, Mailbox, receive, send
from pilothouse.worlds.simulated.physics.platform import MASTER, Platform
from pilothouse.worlds.simulated.physics.sharing import Flow

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server

Heard = Callable[[Any], Actor | None]


class MessageCosts:
    """What one message to the server costs. The server of a platform without a master is on its first host."""

    def __init__(self, platform: Platform, *, tiny: bool = False) -> None:
        master = 0 if platform.master is None else MASTER

        @cache
        def from_unit(unit: int) -> Cost:
            route = platform.route(unit, master)
            if tiny and not route.latency:
                return FREE
            return Cost(route.latency, route.bandwidth * 1e6 if tiny else route.bandwidth)

        self.from_unit = from_unit
        self.from_master = from_unit(master)


def send_from(server: Server, unit: int, heard: Heard, argument: object = None) -> Iterable[Command]:
    """Sends a message, and waits until the server has got it."""
    if server.rules.messages_share_links:
        return _send_sharing(server, unit, heard, argument)
    return (server.send(heard, argument, unit=unit),)


def _send_sharing(server: Server, unit: int, heard: Heard, argument: object) -> Generator[Command, Any, None]:
    if server.physics.fluid.busy:
        sender = Mailbox()
        yield send(server.mailbox, (_carry, (server, unit, heard, argument, sender)), FREE)
        yield receive(sender)
    else:
        yield server.send(heard, argument, unit=unit)
    server.machines.woke(unit)  # SimGrid reads the meters at both ends of a message that has arrived.


def _carry(what: tuple[Server, int, Heard, object, Mailbox]) -> Actor:
    """The server waits until a message has come through, and then does what it is about."""
    server, unit, heard, argument, sender = what
    here = Mailbox()

    def arrived(_: Flow) -> None:
        for mailbox in (here, sender):
            if mailbox.receiver is not None:
                server.rounds.start(mailbox.receiver)
                mailbox.receiver = None

    flow = server.physics.demands.message(unit, MASTER, 1.0, arrived)
    flow.hosts = (unit,)
    server.physics.fluid.start(flow)
    yield receive(here)
    started = heard(argument)
    if started is not None:
        yield from started
