"""What the engine's state machine (engine.py) wants done: frames to the driver, messages to cylinders, a new id, its end."""

from __future__ import annotations

import msgspec

from pilothouse.worlds.live.wire import messages as m


class TellCylinder(msgspec.Struct):
    """An instruction: send this to a cylinder."""

    cylinder: int
    message: m.ToCylinder


class Go(msgspec.Struct):
    """An instruction: end the process (cylinders and what they run with it)."""

    reason: str


class Renamed(msgspec.Struct):
    """An instruction: the engine has a new id, also on its socket."""

    engine: str


Instruction = m.EngineFrame | TellCylinder | Go | Renamed
