"""Engines on the nodes of an ssh list or of a batch job, laid out by disBatch's rules.

In: a Layout, and the run's `Launch`. Out: a context whose nodes are given back when their engines have gone. It serves a
driver, or a program of its own that adds engines to a run (launch/add_engines.py).
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Container
from math import inf
from typing import IO

import msgspec

from pilothouse.access.files import open_shared
from pilothouse.access.interfaces import LOOPBACK, towards, towards_by_ssh
from pilothouse.model.errors import InputError
from pilothouse.worlds.live.contexts import Departure, Launch
from pilothouse.worlds.live.contexts.allocations import start_command
from pilothouse.worlds.live.contexts.layout import ContextOptions, Layout, same_host
from pilothouse.worlds.live.contexts.programs import ProgramContext, engine_command
from pilothouse.worlds.live.contexts.slurm_queue import allocation_end
from pilothouse.worlds.live.wire.sockets import EngineConfig

RETIRE_AFTER_S = 10.0
"""disBatch 3 gives nodes back to Slurm this long after an engine has ended, all that are free together. All others are given back
one by one, as soon as it is known that no other engine is started there."""
TERMINATE_S = 15.0
LOOK_S = 0.02


class NodesContext(ProgramContext):
    """Ask `ended` about once a second until it is `over`. Files of engines begin with `prefix`."""

    def __init__(self, layout: Layout, options: ContextOptions, prefix: str, host: str) -> None:
        """Raises InputError if no node has a cylinder."""
        slots = {node.name: node.cylinders for node in layout.usable}
        found = layout.allocation
        super().__init__(layout.label, slots, gpus=found.gpus if found else (), ends_at=found.ends_at if found else inf)
        self.layout = layout
        self.remote = any(not same_host(node.name, host) for node in layout.usable) or layout.kind == "Slurm"
        # A step that shares its resources waits for no other one, and tasks may start steps of their own. By a variable,
        # because an srun that is too old for the option ignores it.
        self.env = {**os.environ, "SLURM_OVERLAP": "1", **dict(layout.launch_env)}
        self.log = logging.getLogger("disBatch.context")
        self._options = options
        self._prefix = prefix
        self._host = host
        self._nodes = {node.name: node for node in layout.usable}
        self._retiring: dict[str, int] = {}
        """Nodes whose engines have gone, and the exit codes of these."""
        self._retire_at = inf
        self._together = layout.kind == "Slurm" and options.edition == 3
        self._driver_node = ""
        for warning in layout.warnings:
            self.log.warning("%s", warning)
        if idle := [node.name for node in layout.nodes if not node.cylinders]:
            self.log.warning("no engine on %s: not enough cores there for one task", ", ".join(idle))
        if not layout.usable:
            raise InputError("", "no node of this context has enough cores for a task")

    @property
    def over(self) -> bool:
        return not self._children

    def listens(self) -> tuple[str, ...]:
        others = [name for name in self.slots if not same_host(name, self._host)]
        if self.layout.kind != "SSH":
            return (LOOPBACK, *towards(others))
        return (LOOPBACK, *towards_by_ssh(others)) if others else (LOOPBACK,)

    def start(self, launch: Launch) -> None:
        if self.layout.kind == "Slurm":
            self.ends_at = allocation_end(os.environ)
        super().start(launch)

    def ended(self) -> list[Departure]:
        """Also gives the nodes of engines back that had ended before the last call, and were not started again."""
        now = time.monotonic()
        if now >= self._retire_at and (self._children or not self._together):
            self._retire()
        departures = super().ended()
        for gone in departures:
            name = self._ended_parts[gone.key]
            self.log.info("the engine on %s ended with code %d", name, gone.code)
            self._retiring[name] = gone.code
            self._retire_at = min(self._retire_at, now + (RETIRE_AFTER_S if self._together else 0.0))
            if same_host(name, self._host):
                self._driver_node = name
        return departures

    def stop(self) -> None:
        """Ends engines that do not go by themselves."""
        for _, engine, _ in self._children.values():
            engine.terminate()
        deadline = time.monotonic() + TERMINATE_S

        def wait() -> bool:
            time.sleep(LOOK_S)
            return time.monotonic() < deadline

        self.close(self.keys, wait)

    def close(self, joined: Container[str] = (), wait: Callable[[], bool] | None = None) -> None:
        """Also gives nodes back."""
        super().close(joined, wait)
        if not self._together:
            self._retire()

    def output(self, part: str) -> IO[bytes]:
        return open_shared(self._log_name(part), "ab")

    def command(self, part: str, launch: Launch) -> list[str]:
        self._retiring.pop(part, None)
        here = engine_command(launch.python)
        if self.layout.kind == "Slurm":
            node = self._nodes[part]
            cores = min(node.cores, max(1, node.cylinders * max(1, node.cores_per_task))) or 1
            command = ["srun", "-N", "1", "-n", "1", "-c", str(cores), "-w", part, *here]
        elif same_host(part, self._host):
            command = here
        elif self.layout.allocation is not None:
            command = start_command(self.layout.allocation, part, here)
        else:
            command = ["ssh", "--", part, shlex.join(here)]
        self.log.info("launch command: %r", command)
        return command

    def config(self, part: str, key: str, launch: Launch) -> EngineConfig:
        node = self._nodes[part]
        slot_env: dict[str, tuple[str, ...]] = {"DISBATCH_CORES_PER_TASK": (str(node.cores_per_task),)}
        if self.layout.kind == "Slurm":
            # As in disBatch, tasks see the variables that they would have if each cylinder were a task of the step.
            ranks = tuple(str(rank) for rank in range(node.cylinders))
            count = (str(node.cylinders),)
            slot_env |= {"SLURM_LOCALID": ranks, "SLURM_PROCID": ranks}
            slot_env |= {"SLURM_NTASKS": count, "SLURM_NPROCS": count, "SLURM_STEP_NUM_TASKS": count}
            slot_env["SLURM_CPUS_PER_TASK"] = (str(node.cores_per_task),)
        properties = {"kind": self.layout.kind}
        if self._options.task_limit:
            properties["task_limit"] = str(self._options.task_limit)
        return msgspec.structs.replace(
            super().config(part, key, launch), slot_env=slot_env, properties=properties, deal=self._options.dealt,
            log=self._log_name(part),
        )  # fmt: skip

    def _log_name(self, part: str) -> str:
        return f"{self._prefix}_{self.name}_{part}_engine_wrap.log"

    def _retire(self) -> None:
        """Runs the retirement command for the nodes whose engines are gone: for all together, or for each."""
        gone, self._retiring = self._retiring, {}
        self._retire_at = inf
        for batch in [gone] if self._together else [{name: code} for name, code in gone.items()]:
            if batch:
                self._give_back(batch)

    def _give_back(self, gone: dict[str, int]) -> None:
        names = ", ".join(gone)
        if not self.layout.retire_command:
            self.log.info("%s no longer needed; no command gives nodes back", names)
            return
        active = [part for part, _, _ in self._children.values()]
        env = {
            **os.environ,
            "NODES": ",".join(gone),
            "NODE": list(gone)[-1],
            "RETCODES": ",".join(map(str, gone.values())),
            "RETCODE": str(list(gone.values())[-1]),
            "ACTIVE": ",".join(active),
            "RETIRED": ",".join(node.name for node in self.layout.nodes if node.name not in active),
        }
        if self._driver_node:
            env["DRIVER_NODE"] = self._driver_node
        self.log.info("giving back %s: %s", names, self.layout.retire_command)
        command = ["/bin/sh", "-c", self.layout.retire_command]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        level = logging.WARNING if ran.returncode else logging.INFO
        self.log.log(level, "giving back ended with code %d: %s%s", ran.returncode, ran.stdout, ran.stderr)
