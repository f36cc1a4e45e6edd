"""One run of the drop-in for Batsim 2: that for Batsim 4 with earlier names, files and rules."""

from __future__ import annotations

from hashlib import sha1
from pathlib import Path

import msgspec

from pilothouse.dropins.batsim2.options import Batsim2Options
from pilothouse.dropins.batsim2.outputs import Batsim2Outputs
from pilothouse.dropins.batsim4.options import Options
from pilothouse.dropins.batsim4.run import Batsim4Inputs, simulate
from pilothouse.protocols.batsim.settings import Settings
from pilothouse.worlds.simulated.message_server.generations import BATSIM2


class Batsim2Inputs(Batsim4Inputs):
    rules = BATSIM2

    def __init__(self, options: Options, settings: Settings) -> None:
        super().__init__(options, settings)
        # It forgets no profile.
        self.begins = msgspec.structs.replace(self.begins, profile_reuse=True)

    def workload_name(self, number: int, path: str) -> str:
        """Six hexadecimal digits of the digest of the absolute path."""
        return sha1(str(Path(path).absolute()).encode(), usedforsecurity=False).hexdigest()[:6]


def simulate_as_2(options: Batsim2Options) -> int:
    return simulate(options, Batsim2Inputs, Batsim2Outputs)
