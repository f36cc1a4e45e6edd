"""`LocalManager` of qcg-pilotjob with our manager behind it: one import changed, everything else as it was.

    from pilothouse.qcg import LocalManager      # instead of: from qcg.pilotjob.api.manager import LocalManager

    manager = LocalManager(["--nodes", "4"], {"log_level": "DEBUG"})

All methods are those of the real class, which needs the client library (`pip install qcg-pilotjob`). Options are those of
`pilothouse qcg`, so also `--policy easy`. Programs whose imports cannot be changed: see docs/how-to/qcg-pilot-jobs.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from pilothouse.dropins.qcg.local_manager import ServiceProcess

__all__ = ["LocalManager", "Manager"]

INIT_TIMEOUT_S = 300
"""How long a manager may take to start, unless `cfg` has an `init_timeout`."""

try:
    _real = import_module("qcg.pilotjob.api.manager")
    _errors = import_module("qcg.pilotjob.api.errors")
except ImportError as problem:
    raise ImportError(f"pilothouse.qcg needs the client library of QCG PilotJob: pip install qcg-pilotjob ({problem})") from None

Manager = _real.Manager


class LocalManager(_real.LocalManager):  # type: ignore[misc,name-defined]  # the library has no types
    """A manager of this program's own, on this host or in its allocation. `finish()` ends it."""

    def __init__(self, server_args: Sequence[object] | None = None, cfg: Mapping[str, Any] | None = None) -> None:
        settings = dict(cfg or {})
        self._setup_logging(settings)
        arguments = [str(argument) for argument in server_args or ()]
        if "--net" not in arguments:
            arguments.append("--net")
        self.qcgpm_process = ServiceProcess(arguments)
        self.qcgpm_process.start()
        patience_s = int(settings.get("init_timeout", INIT_TIMEOUT_S))
        address = self.qcgpm_process.wait_for_address(patience_s)
        if not address:
            self.qcgpm_process.terminate()
            raise _errors.ServiceError(self.qcgpm_process.problem or f"Service not started in {patience_s} s")
        self.qcgpm_conf = {"zmq_addresses": [address]}
        super(_real.LocalManager, self).__init__(address, settings)
