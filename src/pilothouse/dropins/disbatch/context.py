"""An execution context as disBatch's users know it: engines on the nodes of an ssh list or of a Slurm job.

In: a Layout, and the run's `Launch` (how engines find the driver and prove themselves). Out: a context in the sense of
worlds/live/contexts, whose nodes are moreover given back when they are no longer needed. The keys of the run reach an
engine by standard input, never on a command line.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import time
from collections.abc import Container, Mapping
from math import inf
from pathlib import Path

import msgspec

from pilothouse.dropins.disbatch.layout import Layout, NodePlan, plan
from pilothouse.dropins.disbatch.options import ContextOptions
from pilothouse.model.errors import InputError
from pilothouse.worlds.live.contexts import Departure, Launch
from pilothouse.worlds.live.contexts.programs import engine_command
from pilothouse.worlds.live.contexts.slurm_queue import allocation_end
from pilothouse.worlds.live.engine.config import EngineConfig

JOIN_FILE = "join.json"
RETIRE_AFTER_S = 10.0
"""Nodes that are given back within this time of each other are given back together: Slurm is not to be flooded."""
TERMINATE_S = 15.0
MOST_CONTEXTS = 100_000
MOST_RESTARTS = 3
MOST_DEATHS = 100
"""How often an engine that could not be started, or that was lost, is started again on its node."""


class JoinInfo(msgspec.Struct, frozen=True):
    """What a context must know of its run. Secret (it holds the engines' key): the file has mode 0600."""

    launch: Launch
    unique_id: str
    log_level: str
    options: ContextOptions
    """Those of the run: what a later context does not say itself."""

    @classmethod
    def load(cls, folder: Path) -> JoinInfo:
        path = folder / JOIN_FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError as error:
            raise InputError(str(path), "the run is over, or never was here") from error
        except (OSError, msgspec.DecodeError) as error:
            raise InputError(str(path), f"cannot be read: {error}") from error


def claim_rank(folder: Path) -> int:
    """The number of a new context of this run; no two get the same, whatever host they are claimed on."""
    for rank in range(MOST_CONTEXTS):
        try:
            os.close(os.open(folder / f"context-{rank}", os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            continue
        return rank
    raise InputError(str(folder), f"more than {MOST_CONTEXTS} contexts")


def expand_hosts(text: str) -> list[str]:
    """Slurm's own reading of its host lists."""
    ran = subprocess.run(["scontrol", "show", "hostnames", text], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise InputError("SLURM_NODELIST", f"scontrol cannot read it: {ran.stderr.strip()}")
    return ran.stdout.split()


def find_layout(options: ContextOptions, env: Mapping[str, str], rank: int, host: str) -> Layout:
    """The context of this environment. Raises layout.NoContext."""
    return plan(options, env, rank=rank, host=host, expand=expand_hosts, read=lambda path: Path(path).read_text())


def same_host(one: str, other: str) -> bool:
    return one.split(".", 1)[0] == other.split(".", 1)[0]


class DisbatchContext:
    """A context by disBatch's rules. Ask `ended` about once a second until it is `over`."""

    def __init__(self, layout: Layout, options: ContextOptions, unique_id: str, host: str) -> None:
        self.layout = layout
        self.name = layout.label
        self.remote = any(not same_host(node.name, host) for node in layout.usable) or layout.kind == "Slurm"
        self.engines = len(layout.usable)
        self.failed = False
        self.log = logging.getLogger("disBatch.context")
        self._options = options
        self._unique_id = unique_id
        self._host = host
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._keys: dict[str, str] = {}
        self._retiring: list[tuple[str, int]] = []
        self._retire_at = inf
        self._driver_node = ""
        self._restarts: dict[tuple[str, bool], int] = {}
        """By node, and whether it was in the place of one that had joined."""
        self._ends_at = inf

    @property
    def over(self) -> bool:
        return not self._running

    def start(self, launch: Launch) -> None:
        """Starts an engine on every node that has cylinders. Raises InputError if none has."""
        for warning in self.layout.warnings:
            self.log.warning("%s", warning)
        idle = [node.name for node in self.layout.nodes if not node.cylinders]
        if idle:
            self.log.warning("no engine on %s: not enough cores there for one task", ", ".join(idle))
        if not self.layout.usable:
            raise InputError("", "no node of this context has enough cores for a task")
        self._ends_at = allocation_end(os.environ) if self.layout.kind == "Slurm" else inf
        for node in self.layout.usable:
            self._keys[node.name] = self._new_key(node.name)
            self._running[node.name] = self._start(node, launch, self._ends_at)

    def ended(self) -> list[Departure]:
        """Notices engines that ended, and gives their nodes back while others still work."""
        now = time.monotonic()
        departures: list[Departure] = []
        for name, engine in list(self._running.items()):
            code = engine.poll()
            if code is not None:
                self.log.info("the engine on %s ended with code %d", name, code)
                del self._running[name]
                self.failed |= bool(code)
                departures.append(Departure(self.name, self._keys[name], code))
                self._retiring.append((name, code))
                self._retire_at = now + RETIRE_AFTER_S
                if same_host(name, self._host):
                    self._driver_node = name
        if now >= self._retire_at and self._running:
            self._retire()
        return departures

    def again(self, key: str, launch: Launch, *, had_joined: bool) -> bool:
        """A new engine on the node of one that was lost, a number of times."""
        name = next((name for name, known in self._keys.items() if known == key), None)
        if name is None or name in self._running:
            return False
        restarts = self._restarts.get((name, had_joined), 0)
        if restarts >= (MOST_DEATHS if had_joined else MOST_RESTARTS):
            return False
        self._restarts[name, had_joined] = restarts + 1
        self._retiring = [entry for entry in self._retiring if entry[0] != name]
        (node,) = (node for node in self.layout.usable if node.name == name)
        self._keys[name] = self._new_key(name)
        self._running[name] = self._start(node, launch, self._ends_at)
        return True

    def close(self, joined: Container[str] = ()) -> None:
        """Lets go; engines end by themselves when the driver tells them or does not come back. Those that never joined
        would look for a driver that is gone."""
        for name, engine in self._running.items():
            if self._keys[name] not in joined and engine.poll() is None:
                engine.terminate()
        self._running.clear()

    def stop(self) -> None:
        """Ends engines that do not go by themselves."""
        for engine in self._running.values():
            if engine.poll() is None:
                engine.terminate()
        deadline = time.monotonic() + TERMINATE_S
        for engine in self._running.values():
            try:
                engine.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                engine.kill()
                engine.wait()
        self._running.clear()

    def _start(self, node: NodePlan, launch: Launch, ends_at: float) -> subprocess.Popen[bytes]:
        command = self._command(node, launch.python)
        self.log.info("launch command: %r", command)
        log = self._log_name(node)
        # A step that shares its resources waits for no other one, and tasks may start steps of their own. By a variable,
        # because an srun that is too old for the option ignores it.
        env = {**os.environ, "SLURM_OVERLAP": "1", **dict(self.layout.launch_env)}
        with open(log, "ab") as out:
            engine = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
            )
        assert engine.stdin is not None
        try:
            engine.stdin.write(self._config(node, launch, ends_at).framed())
            engine.stdin.close()
        except BrokenPipeError:
            self.log.error("the engine of %s ended before it was told what to do; see %s", node.name, log)
        return engine

    def _new_key(self, node: str) -> str:
        return f"{self.name}-{node}-{os.urandom(4).hex()}"

    def _log_name(self, node: NodePlan) -> str:
        return f"{self._unique_id}_{self.layout.label}_{node.name}_engine_wrap.log"

    def _command(self, node: NodePlan, python: str) -> list[str]:
        here = engine_command(python)
        if self.layout.kind == "Slurm":
            cores = min(node.cores, max(1, node.cylinders * max(1, node.cores_per_task))) or 1
            return ["srun", "-N", "1", "-n", "1", "-c", str(cores), "-w", node.name, *here]
        return here if same_host(node.name, self._host) else ["ssh", node.name, shlex.join(here)]

    def _config(self, node: NodePlan, launch: Launch, ends_at: float) -> EngineConfig:
        ranks = tuple(str(rank) for rank in range(node.cylinders))
        slot_env: dict[str, tuple[str, ...]] = {"DISBATCH_CORES_PER_TASK": (str(node.cores_per_task),)}
        if self.layout.kind == "Slurm":
            # Tasks are told what they would be told if each cylinder were a task of the step, as in disBatch.
            per_slot = {"SLURM_LOCALID": ranks, "SLURM_PROCID": ranks}
            count = (str(node.cylinders),)
            slot_env |= per_slot | {"SLURM_NTASKS": count, "SLURM_NPROCS": count, "SLURM_STEP_NUM_TASKS": count}
            slot_env["SLURM_CPUS_PER_TASK"] = (str(node.cores_per_task),)
        properties = {"kind": self.layout.kind}
        if self._options.task_limit:
            properties["task_limit"] = str(self._options.task_limit)
        config = launch.config(
            self.layout.label, node.cylinders, node=node.name, slot_env=slot_env, ends_at=ends_at,
            key=self._keys[node.name], log=self._log_name(node),
        )  # fmt: skip
        return msgspec.structs.replace(config, properties=properties, deal=self._options.env_resources)

    def _retire(self) -> None:
        """Runs the retirement command for the nodes whose engines are gone, while others still work."""
        names = [name for name, _ in self._retiring]
        codes = [str(code) for _, code in self._retiring]
        self._retiring.clear()
        self._retire_at = inf
        if not self.layout.retire_command:
            self.log.info("%s no longer needed; no command gives nodes back", ", ".join(names))
            return
        retired = [node.name for node in self.layout.nodes if node.name not in self._running]
        env = {
            **os.environ,
            "NODES": ",".join(names),
            "NODE": names[-1],
            "RETCODES": ",".join(codes),
            "ACTIVE": ",".join(self._running),
            "RETIRED": ",".join(retired),
        }
        if self._driver_node:
            env["DRIVER_NODE"] = self._driver_node
        self.log.info("giving back %s: %s", ", ".join(names), self.layout.retire_command)
        command = ["/bin/sh", "-c", self.layout.retire_command]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        level = logging.WARNING if ran.returncode else logging.INFO
        self.log.log(level, "giving back ended with code %d: %s%s", ran.returncode, ran.stdout, ran.stderr)
