"""Pilothouse: write a scheduler once, and steer with it a simulated cluster, your allocation, or a resource manager.

The public names:

* `Policy`: the base class of your own scheduler. `Cluster`: what it sees and decides on. `Job`, `IdSet`: what it handles.
* `simulate`, `compare`: simulations from Python. They return a `Result` or a `Comparison`. `Node`: a platform in code.
* `Pool`: run real tasks from Python.
* `Session`, `PolicyDecider`: join a world to a decider by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pilothouse.campaign.result import Comparison, Result
    from pilothouse.core.cluster import Cluster
    from pilothouse.core.policy_decider import PolicyDecider
    from pilothouse.core.session import Session
    from pilothouse.launch.experiment import compare, simulate
    from pilothouse.model.idset import IdSet
    from pilothouse.model.job import Job, Node
    from pilothouse.policies.base import Policy
    from pilothouse.pool import Pool

__all__ = [
    "Cluster", "Comparison", "IdSet", "Job", "Node", "Policy", "PolicyDecider", "Pool", "Result", "Session", "__version__",
    "compare", "simulate",
]  # fmt: skip

_MODULES = {
    "Cluster": "pilothouse.core.cluster",
    "Comparison": "pilothouse.campaign.result",
    "IdSet": "pilothouse.model.idset",
    "Job": "pilothouse.model.job",
    "Node": "pilothouse.model.job",
    "Policy": "pilothouse.policies.base",
    "PolicyDecider": "pilothouse.core.policy_decider",
    "Pool": "pilothouse.pool",
    "Result": "pilothouse.campaign.result",
    "Session": "pilothouse.core.session",
    "compare": "pilothouse.launch.experiment",
    "simulate": "pilothouse.launch.experiment",
}

_RENAMED: dict[str, tuple[str, str]] = {}
"""Earlier public names: what each is called now, and the version in which the earlier name will be gone."""


def __getattr__(name: str) -> Any:
    """Loads a public name when it is first used, so that `import pilothouse` stays cheap."""
    if name in _RENAMED:
        from pilothouse.model.deprecation import deprecated

        now, gone_in = _RENAMED[name]
        deprecated(f"pilothouse.{name}", f"pilothouse.{now}", gone_in=gone_in)
        name = now
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'pilothouse' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
