from typing import Any

from pilothouse.model.decisions import Reply
from pilothouse.model.events import Batch
from pilothouse.worlds.simulated.message_server.rounded_agenda import RoundedAgenda
from pilothouse.worlds.simulated.message_server.rounds import Actor, Wait
from pilothouse.worlds.simulated.message_server.stepped_agenda import SteppedAgenda

class Kernel:
    def __init__(
        self,
        agenda: SteppedAgenda | RoundedAgenda,
        kinds: tuple[Wait, ...],
        most_turns: int,
        is_rounded: bool,
        /,
    ) -> None: ...
    def start(self, actor: Actor, /) -> None: ...
    def stop(self) -> None: ...
    def delivered(self, both: tuple[Any, Any, Any, Any], /) -> None: ...
    def advance(self, reply: Reply | None, /) -> Batch | None: ...
