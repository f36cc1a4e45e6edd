"""Pilothouse: write a scheduler once, and steer with it a simulated cluster, your allocation, or a resource manager.

The public names:

* `Policy`: the base class of your own scheduler. `Cluster`: what it sees and decides on. `Job`, `IdSet`: what it handles.
* `Pool`: run real tasks from Python.
* `Session`, `PolicyDecider`: join a world to a decider by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster
    from pilothouse.core.policy_decider import PolicyDecider
    from pilothouse.core.session import Session
    from pilothouse.model.idset import IdSet
    from pilothouse.model.job import Job
    from pilothouse.policies.base import Policy
    from pilothouse.pool import Pool

__all__ = ["Cluster", "IdSet", "Job", "Policy", "PolicyDecider", "Pool", "Session", "__version__"]

_MODULES = {
    "Cluster": "pilothouse.core.cluster",
    "IdSet": "pilothouse.model.idset",
    "Job": "pilothouse.model.job",
    "Policy": "pilothouse.policies.base",
    "PolicyDecider": "pilothouse.core.policy_decider",
    "Pool": "pilothouse.pool",
    "Session": "pilothouse.core.session",
}


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used, so that `import pilothouse` stays cheap."""
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'pilothouse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
