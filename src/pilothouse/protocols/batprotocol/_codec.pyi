from collections.abc import Mapping

from pilothouse.model.events import Event
from pilothouse.model.lifecycle import JobState
from pilothouse.model.profile import Profile

def encode(
    now: float,
    events: list[Event],
    kinds: tuple[type, type, type, Mapping[JobState, int]],
    profiles: dict[str, Profile],
) -> bytes | None: ...
def decode(
    data: bytes,
) -> tuple[float, list[tuple[float, str] | tuple[float, str, int, bool]]] | None: ...
def take_decisions(address: int, message: bytes) -> bytes | int | None: ...
