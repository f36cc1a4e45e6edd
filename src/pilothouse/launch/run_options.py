"""The options of `pilothouse run`, and what follows from them: how tasks are run, and where engines come from."""

from __future__ import annotations

import os
import re
import shlex
import string
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING

import msgspec

from pilothouse.formats.task_request import variables
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.task_request import shape_for
from pilothouse.worlds.live.contexts.programs import ProgramContext, check_slots
from pilothouse.worlds.live.options import MOST_SLOTS, LiveOptions
from pilothouse.worlds.live.requests import AddContext
from pilothouse.worlds.live.wire.messages import LINGER_S, TaskEnvironment

if TYPE_CHECKING:
    from pilothouse.worlds.live.contexts.allocator import AllocationPlan


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command by their names (see cli/run.py). The journal keeps them, so that the run can be resumed."""

    slots: int | None
    hosts: tuple[str, ...]
    units: int
    gpus_per_task: int
    gpu_list: str | None
    bind: bool
    walltime: float | None
    grace: float
    linger: float = LINGER_S
    retries: int
    reissue: bool
    once: str
    fail_fast: bool
    out: str
    err: str
    output_limit: str = ""
    """"" : of a run that an earlier version began; nothing is kept."""
    by: str
    timeout: float | None
    decider_command: str | None
    bundle: int
    window: int | None
    wait_for_driver: float
    lost_after: float
    service: bool
    redis: str
    lenient: bool
    mem: int = 0
    retry_mem: float = 0.0
    nodes: int = 1
    env: tuple[str, ...] = ()
    node_mem: int = 0
    most_slots: int = MOST_SLOTS
    task_format: str | None = None
    allocation: str | None = None
    """The batch system in whose job the run is (contexts/batch_systems.py)."""
    auto: str | None = None
    """The batch system to which jobs are submitted while tasks wait."""
    auto_jobs: int = 1
    auto_slots: int = 0
    auto_idle: float = 300.0
    auto_options: str = ""

    def settled(self) -> RunOptions:
        """With the defaults that follow from this host and its environment."""
        from pilothouse.worlds.live.contexts.batch_systems import around

        elsewhere = self.hosts or self.slots or self.service or self.auto
        found = None if elsewhere else around(os.environ)
        here = "" if self.hosts else os.environ.get("CUDA_VISIBLE_DEVICES", "")
        gpus = self.gpu_list if self.gpu_list is not None else here
        return msgspec.structs.replace(
            self,
            slots=self.slots or len(os.sched_getaffinity(0)),
            allocation=self.allocation or (found.name if found is not None else None),
            gpu_list=gpus,
            env=tuple(f"{name}={value}" for name, value in self._variables()),
        )

    def on(self, other: RunOptions) -> RunOptions:
        """For a run that is resumed: on the nodes and under the scheduler that `other` names, if it names some."""
        again = self
        if other.slots or other.hosts or other.allocation:
            hosts = other.hosts or (() if other.slots else self.hosts)
            again = msgspec.structs.replace(self, slots=other.slots or self.slots, hosts=hosts, allocation=other.allocation)
        return msgspec.structs.replace(
            again,
            decider_command=other.decider_command or self.decider_command,
            most_slots=max(self.most_slots, other.most_slots),
        )

    def check(self) -> None:
        """Raises InputError for mistakes that would otherwise show only when the run has begun."""
        from pilothouse.launch import naming

        for option, template in (("--out", self.out), ("--err", self.err)):
            if not _is_template(template):
                raise InputError(
                    option, "not a file name with placeholders", expected="{task}, {line}, {repeat} or {attempt}",
                    found=quoted(template),
                )  # fmt: skip
        if self.output_limit:
            output_limits(self.output_limit)
        self._variables()
        self.allocation_plan()
        if self.hosts:
            from pilothouse.worlds.live.contexts.ssh import parse_hosts

            check_slots(parse_hosts(self.hosts, self.slots or 0), self.most_slots)
            if self.slots and all(":" in part for text in self.hosts for part in text.split(",")):
                hint = "--slots N is for hosts without a number: --ssh HOST,... --slots N"
                raise InputError("--slots", "every host of --ssh has a number of slots already", hint=hint)
        else:
            check_slots({"": self.slots or 1}, self.most_slots)
        if self.by.partition(":")[0] not in naming.FOREIGN:
            naming.policy(self.by)

    def check_files(self, tasks: int | None, may_repeat: Callable[[], bool]) -> None:
        """Raises InputError if two tasks would write to one file. `may_repeat`: whether several tasks may come from one line."""
        for option, template in (("--out", self.out), ("--err", self.err)):
            names = {field for _, field, _, _ in string.Formatter().parse(template) if field}
            apart = "task" in names or ("line" in names and ("repeat" in names or not may_repeat()))
            if template and not apart and tasks != 1 and not template.startswith("/dev/"):
                raise InputError(
                    option, "all tasks would write to one file" if not names else "several tasks would write to one file",
                    found=quoted(template), hint="put {task} into the name",
                )  # fmt: skip

    def _variables(self) -> list[tuple[str, str]]:
        """What --env says. A name alone stands for its value here; a variable that is not set is left out."""
        found: list[tuple[str, str]] = []
        for text in self.env:
            if "=" in text.partition(",")[0]:
                found += variables(text, "--env")
                continue
            for name in text.split(","):
                if not name.isidentifier():
                    raise InputError("--env", "not a variable", expected="NAME or NAME=VALUE", found=quoted(name))
                found += [(name, os.environ[name])] if name in os.environ else []
        return found

    def live_options(self, env: dict[str, str]) -> LiveOptions:
        keep, in_all = output_limits(self.output_limit) if self.output_limit else (0, 0)
        shape = shape_for(self.units, self.nodes, self.gpus_per_task, self.mem)
        return LiveOptions(
            units=self.units, shape=shape, walltime=inf if self.walltime is None else self.walltime,
            environment=TaskEnvironment(
                stdout=self.out, stderr=self.err, bind=self.bind, env=dict(self._variables()), memory_mb=self.mem, keep=keep
            ),
            output_bytes=in_all,
            retries=self.retries, retry_memory=self.retry_mem,
            reissue=self.reissue, at_most_once=self.once == "at-most", fail_fast=self.fail_fast, bundle=self.bundle,
            window=self.window or 0, lost_after_s=self.lost_after, wait_for_driver_s=self.wait_for_driver,
            most_slots=self.most_slots, grace_s=self.grace, linger_s=self.linger, env=env,
            service=self.service or bool(self.auto),
        )  # fmt: skip

    def contexts(self) -> list[ProgramContext]:
        """Where the engines come from that the run starts itself."""
        if self.service or self.auto:
            return []
        gpus = tuple(part.strip() for part in (self.gpu_list or "").split(",") if part.strip())
        if self.hosts:
            from pilothouse.worlds.live.contexts.ssh import SshContext, parse_hosts

            return [SshContext(parse_hosts(self.hosts, self.slots or 0), gpus=gpus, memory_mb=self.node_mem)]
        if self.allocation:
            from pilothouse.worlds.live.contexts.batch_systems import BATCH_SYSTEMS

            return [BATCH_SYSTEMS[self.allocation].context(os.environ, memory_mb=self.node_mem)]
        from pilothouse.worlds.live.contexts.local import LocalContext

        return [LocalContext(self.slots or 1, gpus=gpus, memory_mb=self.node_mem)]

    def context_for(self, request: AddContext, name: str) -> ProgramContext:
        """The context that a user asks for while the run goes on. Raises InputError."""
        from pilothouse.worlds.live.contexts.local import LocalContext
        from pilothouse.worlds.live.contexts.ssh import SshContext, parse_hosts

        if request.hosts:
            return SshContext(parse_hosts((request.hosts,), request.slots), name=name, memory_mb=self.node_mem)
        if request.slots < 1:
            expected = f"hosts, or 1 to {self.most_slots:,} slots on the driver's host"
            raise InputError("a context", "what should be added?", expected=expected, found=str(request.slots))
        return LocalContext(request.slots, name=name, memory_mb=self.node_mem)

    def allocation_plan(self) -> AllocationPlan | None:
        """With --auto: what may be asked of the batch system. Raises InputError."""
        if not self.auto:
            return None
        if not self.auto_slots:
            raise InputError("--auto", "how many slots does one allocation bring?", expected="--auto-slots N")
        from pilothouse.worlds.live.contexts.allocator import AllocationPlan
        from pilothouse.worlds.live.contexts.batch_systems import BATCH_SYSTEMS

        try:
            words = tuple(shlex.split(self.auto_options))
        except ValueError as error:
            raise InputError("--auto-options", f"{error}", found=quoted(self.auto_options)) from None
        options = words or BATCH_SYSTEMS[self.auto].enough(self.auto_slots)
        return AllocationPlan(
            slots=self.auto_slots, system=self.auto, most=self.auto_jobs, idle_s=self.auto_idle, options=options
        )  # fmt: skip


_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kMGT]?)B?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def output_limits(text: str) -> tuple[int, int]:
    """`100M,10G`: bytes that are kept of one task's output, and of all. The second may be missing."""
    sizes: list[int] = []
    for part in text.split(","):
        found = _SIZE.fullmatch(part.strip())
        if found is None or len(sizes) == 2:
            raise InputError("--output-limit", "not a limit", expected="SIZE or SIZE,SIZE such as 100M,10G", found=quoted(text))
        sizes.append(int(float(found[1]) * _FACTORS[found[2].lower()]))
    return sizes[0], sizes[1] if len(sizes) == 2 else 10**18


_PLACEHOLDERS = ("task", "line", "repeat", "attempt")
_WIDTH = re.compile(r"0?\d{0,2}d?")


def _is_template(text: str) -> bool:
    """Whether a file name holds only placeholders that we know, with a width of at most two digits."""
    try:
        parts = list(string.Formatter().parse(text))
    except ValueError:
        return False
    fields = [(field, width, conversion) for _, field, width, conversion in parts if field is not None]
    return "\0" not in text and all(
        field in _PLACEHOLDERS and not conversion and _WIDTH.fullmatch(width or "") for field, width, conversion in fields
    )
