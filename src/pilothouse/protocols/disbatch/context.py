"""An execution context as disBatch's users know it: engines on the nodes of an ssh list or of a Slurm job.

In: a Layout, and a `JoinInfo` that says how engines find and prove themselves to the driver. Out: engines that run,
are watched, and whose nodes are given back (`retire`) when they are no longer needed. The keys of the run reach an
engine by standard input, never on a command line.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from math import inf
from pathlib import Path

import msgspec

from pilothouse.model.errors import InputError
from pilothouse.protocols.disbatch.layout import Layout, NodePlan, plan
from pilothouse.protocols.disbatch.options import ContextOptions
from pilothouse.worlds.live.engine_process import EngineConfig
from pilothouse.worlds.live.wire import Credentials

JOIN_FILE = "join.json"
RETIRE_AFTER_S = 10.0
"""Nodes that are given back within this time of each other are given back together: Slurm is not to be flooded."""
TERMINATE_S = 15.0
MOST_CONTEXTS = 100_000

ENGINE = ("-m", "pilothouse.worlds.live.engine_process")


class JoinInfo(msgspec.Struct, frozen=True):
    """What a context must know of its run. Secret (it holds the engines' key): the file has mode 0600."""

    credentials: Credentials
    unique_id: str
    cwd: str
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


class ContextRunner:
    """Starts a context's engines and looks after them; `poll` it about once a second until it is `over`."""

    def __init__(self, layout: Layout, options: ContextOptions, join: JoinInfo, host: str) -> None:
        self.layout = layout
        self.failed = False
        self.log = logging.getLogger("disBatch.context")
        self._options = options
        self._join = join
        self._host = host
        self._engines: dict[str, subprocess.Popen[bytes]] = {}
        self._retiring: list[tuple[str, int]] = []
        self._retire_at = inf
        self._driver_node = ""

    @property
    def over(self) -> bool:
        return not self._engines

    def launch(self) -> None:
        """Starts an engine on every node that has cylinders. Raises InputError if none has."""
        for warning in self.layout.warnings:
            self.log.warning("%s", warning)
        idle = [node.name for node in self.layout.nodes if not node.cylinders]
        if idle:
            self.log.warning("At least one engine lacks enough cylinders to run tasks (%r).", idle)
        if not self.layout.usable:
            raise InputError("", "No viable engines.")
        for node in self.layout.usable:
            self._engines[node.name] = self._start(node)

    def poll(self) -> None:
        """Notices engines that ended, and gives their nodes back."""
        now = time.monotonic()
        for name, engine in list(self._engines.items()):
            code = engine.poll()
            if code is not None:
                self.log.info("Engine %s exited: %d", name, code)
                del self._engines[name]
                self.failed |= bool(code)
                self._retiring.append((name, code))
                self._retire_at = now + RETIRE_AFTER_S
                if same_host(name, self._host):
                    self._driver_node = name
        if now >= self._retire_at and self._engines:
            self._retire()

    def stop(self) -> None:
        """Ends engines that do not go by themselves."""
        for engine in self._engines.values():
            if engine.poll() is None:
                engine.terminate()
        deadline = time.monotonic() + TERMINATE_S
        for engine in self._engines.values():
            try:
                engine.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                engine.kill()
                engine.wait()
        self._engines.clear()

    def _start(self, node: NodePlan) -> subprocess.Popen[bytes]:
        command = self._command(node)
        self.log.info("launch command: %r", command)
        log = f"{self._join.unique_id}_{self.layout.label}_{node.name}_engine_wrap.log"
        env = {**os.environ, **dict(self.layout.launch_env)}
        with open(log, "ab") as out:
            engine = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True
            )
        assert engine.stdin is not None
        try:
            engine.stdin.write(msgspec.json.encode(self._config(node)))
            engine.stdin.close()
        except BrokenPipeError:
            self.log.error("the engine of %s ended before it was told what to do; see %s", node.name, log)
        return engine

    def _command(self, node: NodePlan) -> list[str]:
        here = [sys.executable, *ENGINE]
        if self.layout.kind == "Slurm":
            cores = min(node.cores, max(1, node.cylinders * max(1, node.cores_per_task))) or 1
            return ["srun", "-N", "1", "-n", "1", "-c", str(cores), "-w", node.name, *here]
        return here if same_host(node.name, self._host) else ["ssh", node.name, *here]

    def _config(self, node: NodePlan) -> EngineConfig:
        credentials = self._join.credentials
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
        return EngineConfig(
            addresses=credentials.addresses,
            server_public=credentials.server_public,
            client_public=credentials.client_public,
            client_secret=credentials.client_secret,
            context=self.layout.label,
            slots=node.cylinders,
            node=node.name,
            cwd=self._join.cwd,
            slot_env=slot_env,
            ends_at=allocation_end(os.environ) if self.layout.kind == "Slurm" else inf,
            properties=properties,
        )

    def _retire(self) -> None:
        """Runs the retirement command for the nodes whose engines are gone, while others still work."""
        names = [name for name, _ in self._retiring]
        codes = [str(code) for _, code in self._retiring]
        self._retiring.clear()
        self._retire_at = inf
        if not self.layout.retire_command:
            self.log.info('Retiring "%s" (no-op)', names)
            return
        retired = [node.name for node in self.layout.nodes if node.name not in self._engines]
        env = {
            **os.environ,
            "NODES": ",".join(names),
            "NODE": names[-1],
            "RETCODES": ",".join(codes),
            "ACTIVE": ",".join(self._engines),
            "RETIRED": ",".join(retired),
        }
        if self._driver_node:
            env["DRIVER_NODE"] = self._driver_node
        self.log.info('Retiring "%s" with command %s', names, self.layout.retire_command)
        command = ["/bin/sh", "-c", self.layout.retire_command]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        level = logging.WARNING if ran.returncode else logging.INFO
        self.log.log(level, "Retirement ended with %d: %s%s", ran.returncode, ran.stdout, ran.stderr)


def allocation_end(env: Mapping[str, str]) -> float:
    """When the Slurm job of this environment ends (seconds since 1970); inf: not known."""
    if env.get("SLURM_JOB_END_TIME", "").isdigit():
        return float(env["SLURM_JOB_END_TIME"])
    job = env.get("SLURM_JOB_ID", "")
    try:
        ran = subprocess.run(
            ["squeue", "-h", "-j", job, "-o", "%L"], capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return inf
    left_s = slurm_seconds(ran.stdout.strip())
    return inf if left_s is None else time.time() + left_s


def slurm_seconds(text: str) -> float | None:
    """`1-02:03:04`, `03:04` in seconds; None for UNLIMITED and the like."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts) or (dash and not days.isdigit()):
        return None
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return float(seconds + int(days or 0) * 86400)
