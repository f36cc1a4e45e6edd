"""Pilothouse: write a scheduler once, and steer with it a simulated cluster, your allocation, or a resource manager.

What a user imports: `Policy` (the base of your own scheduler), `Cluster` (what it sees and orders by), `Job`, `IdSet`,
and `Pool` (real tasks from Python).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pilothouse.core.cluster import Cluster
    from pilothouse.model.idset import IdSet
    from pilothouse.model.job import Job
    from pilothouse.policies.base import Policy
    from pilothouse.pool import Pool

__all__ = ["Cluster", "IdSet", "Job", "Policy", "Pool", "__version__"]

_ROOMS = {
    "Cluster": "pilothouse.core.cluster",
    "IdSet": "pilothouse.model.idset",
    "Job": "pilothouse.model.job",
    "Policy": "pilothouse.policies.base",
    "Pool": "pilothouse.pool",
}


def __getattr__(name: str) -> Any:
    """Loads what is asked for when it is asked for: `import pilothouse` stays cheap."""
    if name in _ROOMS:
        import importlib

        return getattr(importlib.import_module(_ROOMS[name]), name)
    raise AttributeError(f"module 'pilothouse' has no attribute {name!r}")
