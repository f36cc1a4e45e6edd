"""One run of `pilothouse run` while its processes are killed and stopped, again and again, and what must hold afterwards.

Killed are driver, engine, warden, cylinder, ssh or srun client and task, alone and together, at random times, at the steps that
the journal distinguishes, and while a run starts, is resumed or ends. Others are stopped and continued (SIGSTOP, SIGCONT). What
happened is known from the tasks: each writes down when it begins and when it ends and which cylinder is its parent, and holds two
locks, one for itself and one for its slot. The kernel gives a lock back when the last process of a task is gone.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import msgspec
from tests.e2e.live_runs import COMMAND, rows
from tests.storms import processes

from pilothouse.formats.output_pack import STDERR, STDOUT
from pilothouse.journal.output import open_outputs

TASK = """\
n=$1 seconds=$2 bytes=$3 hidden=$4
exec 8>> locks/task-$n
flock -w 0.1 8 || echo beside $n $$ $(date +%s%N) >> record
exec 9>> locks/slot-${PILOTHOUSE_NODE%%#*}-$PILOTHOUSE_SLOT
flock -w 0.1 9 || echo slot $n $$ $(date +%s%N 9>&-) >> record
echo begin $n $PPID $(date +%s%N 9>&-) >> record
[ $bytes = 0 ] || yes $n.$PILOTHOUSE_ATTEMPT 9>&- | head -c $bytes 9>&-
echo error of $n.$PILOTHOUSE_ATTEMPT >&2
[ $seconds = 0 ] || $hidden sleep $seconds 9>&-
exec date "+end $n $PPID %s%N" >> record
"""
"""Its children do not hold the lock of the slot, as they outlive a task that is killed for a moment."""
HIDDEN = "env -i setsid"
"""A child that neither its environment nor its session betrays."""

VICTIMS = ("driver", "engine", "warden", "cylinder", "client", "task")
STOPPED = ("driver", "engine", "warden", "cylinder", "task")
WHOLE_ENGINE = {"engine", "warden", "all cylinders"}
"""Killed together, they leave tasks that no process is the parent of."""
MOMENTS = {
    "engine joined": "SELECT count(*) FROM engines",
    "assigned": "SELECT max(id) FROM assignments",
    "end noted": "SELECT count(*) FROM ends",
    "assignment closed": "SELECT count(*) FROM assignments WHERE closed_at IS NOT NULL",
    "engine left": "SELECT count(*) FROM engines WHERE left_at IS NOT NULL",
}
"""Steps of a run, and the query whose answer changes with each."""
LIMIT_S = 240.0
MOST_RESTARTS = 200
AROUND_A_KILL_S = 1.0
"""A killed process may need so long to go, and a task to end after its last word. An end in between may be unknown."""
GONE_WITHIN_S = 10.0
ENDED_WITHIN_S = 1.0
"""How long after the end of a run a process of it may be there: none should."""
MOST_LOSSES = 5
"""After so many a task is given up (LiveOptions.most_losses)."""


class Plan(msgspec.Struct, frozen=True):
    """One storm."""

    seed: int
    once: str
    """`at-least` or `at-most`."""
    ssh: tuple[str, ...] = ()
    """Hosts; none: this one."""
    slurm: bool = False
    """Inside an allocation."""
    tasks: int = 330
    kills: int = 15
    slots: int = 2

    @property
    def where(self) -> str:
        return "Slurm" if self.slurm else "ssh " + ",".join(self.ssh) if self.ssh else "local"


class Outcome(msgspec.Struct):
    """What was counted."""

    kills: Counter[str] = msgspec.field(default_factory=Counter)
    """By victim."""
    moments: Counter[str] = msgspec.field(default_factory=Counter)
    together: int = 0
    stops: Counter[str] = msgspec.field(default_factory=Counter)
    """By what was stopped and continued."""
    tasks: int = 0
    lost: list[str] = []
    twice: list[str] = []
    orphans: list[str] = []
    slots_exceeded: list[str] = []
    wrong_outputs: list[str] = []
    """Outputs of finished tasks that are not whole, or there twice."""
    outputs: int = 0
    """Outputs that were looked at."""
    other: list[str] = []
    """Runs that do not end, tracebacks, ends that are not true."""
    repeated: int = 0
    """Tasks that were cut off and ran again, as they should under at-least-once."""
    reported_lost: int = 0
    """Tasks that were cut off and did not run again, as they should under at-most-once."""
    unknown_ends: int = 0
    """Tasks that ended at the very moment of a kill, and ran again or were reported as lost."""

    @property
    def problems(self) -> list[str]:
        return [*self.lost, *self.twice, *self.orphans, *self.slots_exceeded, *self.wrong_outputs, *self.other]

    def add(self, other: Outcome) -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Storm:
    def __init__(self, folder: Path, plan: Plan, env: dict[str, str]) -> None:
        self.folder = folder.resolve()
        self.plan = plan
        self.outcome = Outcome(tasks=plan.tasks)
        self._env = env
        self._chance = random.Random(plan.seed)
        self._program: subprocess.Popen[str] | None = None
        self._restarts = -1
        self._resumes = False
        """Whether the run is known to have begun."""
        self._killed_tasks: set[int] = set()
        self._struck_at: list[float] = []
        self._known_ends: set[float] = set()
        """Ends whose cylinder began another task later: they are in its log."""
        self._doomed: list[tuple[float, int, int, str]] = []
        """Deadline, pid, start and name of processes that must end."""
        self._until = 0.0
        self._struck_at_the_end = False

    @property
    def _run_folder(self) -> Path:
        return self.folder / "R"

    def run(self) -> Outcome:
        self._prepare()
        self._until = time.monotonic() + LIMIT_S
        kills = 0
        while not self._finished():
            if time.monotonic() > self._until:
                self.outcome.other.append("the run does not end")
                break
            if self._program is None or self._program.poll() is not None:
                self._start_driver()
            if kills < self.plan.kills:
                kills += self._strike()
            else:
                kills += self._strike_at_the_end()
            self._look_at_doomed()
        self._end()
        self._check()
        return self.outcome

    # ---- the run

    def _prepare(self) -> None:
        chance = self._chance
        (self.folder / "locks").mkdir()
        (self.folder / "task.sh").write_text(TASK)
        most = chance.choice([100, 5000, 200_000])
        self._bytes = [chance.choice([0, most]) for _ in range(self.plan.tasks)]
        """How much each task writes to stdout."""
        lines = []
        for number in range(self.plan.tasks):
            seconds = chance.choice([0, 0, 0, 0.01, 0.05, 0.3])
            hidden = f"'{HIDDEN}'" if chance.random() < 0.2 else "''"
            lines.append(f"sh task.sh {number} {seconds} {self._bytes[number]} {hidden}\n")
        (self.folder / "tasks").write_text("".join(lines))

    def _start_driver(self) -> None:
        self._restarts += 1
        if self._program is not None:
            self._note_end_of_driver()
        options = ["--once", self.plan.once, "--grace", "1", "--dir", "R", "--bundle", self._chance.choice(["1", "5", "1000"])]
        if self.plan.slurm:
            options.append("--slurm")
        elif self.plan.ssh:
            options += ["--ssh", ",".join(f"{host}:{self.plan.slots}" for host in self.plan.ssh)]
        else:
            options += ["--slots", str(self.plan.slots)]
        if self._chance.random() < 0.3:
            options += ["--out", "out/{task}.txt"]
        self._resumes = self._resumes or bool(rows(self._run_folder, "SELECT 1 FROM notes"))
        arguments = ["--resume", "R"] if self._resumes else ["tasks", *options]
        self._said = (self.folder / f"said.{self._restarts}").open("w+")
        self._program = subprocess.Popen(
            [*COMMAND, "run", *arguments], cwd=self.folder, env=self._env, stdout=subprocess.DEVNULL, stderr=self._said,
            text=True,
        )  # fmt: skip

    def _note_end_of_driver(self) -> None:
        assert self._program is not None
        code = self._program.wait()
        self._said.seek(0)
        said = self._said.read()
        self._said.close()
        if code == 2 and "go on with it: --resume" in said and not self._resumes:
            self._resumes = True  # the journal could not be read, as a driver was killed while it wrote it
        elif "Traceback" in said or code not in (0, 1, -9):
            self.outcome.other.append(f"driver {self._restarts} ended with code {code}: {said[-2000:]}")
        if self._restarts > MOST_RESTARTS:
            self.outcome.other.append("the run was resumed too often")
            self._until = 0.0

    def _wait_for_driver(self, seconds: float) -> None:
        assert self._program is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(seconds)

    def _finished(self) -> bool:
        if self._program is None or self._program.poll() is None:
            return False
        return self._program.returncode in (0, 1) and self._all_have_ended()

    def _all_have_ended(self) -> bool:
        return rows(self._run_folder, "SELECT count(*) FROM ends WHERE final AND kind = 'N'") == [(self.plan.tasks,)]

    # ---- kills

    def _strike_at_the_end(self) -> int:
        """Kills once more while the run shuts down; how many processes were killed."""
        assert self._program is not None
        while self._program.poll() is None and not self._all_have_ended() and time.monotonic() < self._until:
            self._wait_for_driver(0.01)
        if self._program.poll() is not None or self._struck_at_the_end:
            self._wait_for_driver(1.0)
            return 0
        self._struck_at_the_end = True
        time.sleep(self._chance.choice([0.0, 0.005, 0.03]))
        return len(self._kill(set(self._chance.sample(VICTIMS, self._chance.choice([1, 2]))), "shutdown"))

    def _stop_some(self) -> None:
        """SIGSTOP, mostly also a kill of something else, and SIGCONT."""
        chance = self._chance
        found = self._find(set(chance.sample(STOPPED, chance.choice([1, 1, 2]))), must_end=False)
        before = {pid: processes.started(pid) for _, pid in found}
        struck = processes.kill(list(before), signal.SIGSTOP)
        self.outcome.stops.update(name for name, pid in found if pid in struck)
        time.sleep(chance.choice([0.0, 0.05, 0.3]))
        if chance.random() < 0.7:
            self._kill({chance.choice(VICTIMS)}, "others stopped")
            time.sleep(chance.choice([0.0, 0.05, 0.5]))
        processes.kill([pid for pid in struck if processes.started(pid) == before[pid]], signal.SIGCONT)

    def _strike(self) -> int:
        """Waits for a moment and kills; how many processes were killed."""
        chance = self._chance
        if chance.random() < 0.25:
            killed = self.outcome.kills.total()
            self._stop_some()
            return self.outcome.kills.total() - killed
        moment = chance.choice(["any time", "any time", "task began", "engine started", "driver started", *MOMENTS])
        wanted = set(chance.sample(VICTIMS, chance.choice([1, 1, 1, 2, 2, 3, len(VICTIMS)])))
        if chance.random() < 0.2:
            moment, wanted = "task began", WHOLE_ENGINE | ({"driver"} if chance.random() < 0.3 else set())
        self._wait_for(moment)
        struck = self._kill(wanted, moment)
        count = len(struck)
        if "driver" in struck and chance.random() < 0.5:
            assert self._program is not None
            self._program.wait()
            time.sleep(chance.choice([0.0, 0.05, 0.5]))
            count += len(self._kill(set(chance.sample(("engine", "warden", "cylinder", "task"), 2)), "no driver"))
        return count

    def _kill(self, wanted: set[str], moment: str) -> list[str]:
        """Kills one process of each kind at once, as far as there are any. Those that were killed."""
        found = self._find(wanted)
        gone = processes.kill([pid for _, pid in found])
        self._struck_at.append(time.time())
        struck = [name for name, pid in found if pid in gone]
        self._killed_tasks.update(pid for name, pid in found if name == "task" and pid in gone)
        self.outcome.kills.update(struck)
        self.outcome.moments[moment] += len(struck)
        self.outcome.together += len(struck) if len(struck) > 1 else 0
        return struck

    def _find(self, wanted: set[str], *, must_end: bool = True) -> list[tuple[str, int]]:
        """One process of each kind, as far as there are any. What must end with them is noted."""
        assert self._program is not None
        chance, found = self._chance, []
        if "driver" in wanted and self._program.poll() is None:
            found.append(("driver", self._program.pid))
        clients = [pid for pid in processes.children(self._program.pid) if processes.is_client(pid)]
        if "client" in wanted and clients:
            found.append(("client", chance.choice(clients)))
        wardens = self._wardens()
        if not wardens:
            return found
        warden = chance.choice(wardens)
        offspring = processes.children(warden)
        engine = next((pid for pid in self._engines() if pid in offspring), 0)
        cylinders = [pid for pid in offspring if pid != engine]
        busy = [pid for pid in cylinders if processes.children(pid)] or cylinders
        cylinder = chance.choice(busy) if busy else 0
        tasks = processes.children(cylinder) if cylinder else []
        doomed: list[int] = []
        if "warden" in wanted:
            found.append(("warden", warden))
        if "engine" in wanted and engine:
            found.append(("engine", engine))
        if {"warden", "engine"} & wanted and engine:
            doomed = [engine, *(pid for each in cylinders for pid in (each, *processes.descendants(each)))]
        if "all cylinders" in wanted:
            found += [("cylinder", pid) for pid in cylinders]
        if "cylinder" in wanted and cylinder:
            found.append(("cylinder", cylinder))
            doomed += processes.descendants(cylinder)
        if "task" in wanted and tasks:
            found.append(("task", tasks[0]))
        deadline = time.monotonic() + GONE_WITHIN_S
        if must_end:
            self._doomed += [(deadline, pid, processes.started(pid), f"after a kill of {wanted}") for pid in doomed]
        return found

    def _engines(self) -> list[int]:
        return [int(str(row[0])) for row in rows(self._run_folder, "SELECT pid FROM engines WHERE left_at IS NULL")]

    def _wardens(self) -> list[int]:
        """Of engines that have joined, or that the driver has just started."""
        assert self._program is not None
        joined = {parent for pid in self._engines() if (parent := processes.parent(pid)) > 1}
        started = {pid for pid in processes.children(self._program.pid) if processes.is_engine_program(pid)}
        return sorted(pid for pid in joined | started if processes.is_engine_program(pid))

    def _wait_for(self, moment: str) -> None:
        chance = self._chance
        if moment in ("any time", "driver started"):
            self._wait_for_driver(chance.uniform(0.0, 0.6 if moment == "any time" else 0.25))
            return
        before = self._sign(moment)
        until = time.monotonic() + 2.0
        while time.monotonic() < until and self._sign(moment) == before:
            assert self._program is not None
            if self._program.poll() is not None:
                return
            time.sleep(0.001)
        time.sleep(chance.choice([0.0, 0.0, 0.002, 0.02]))

    def _sign(self, moment: str) -> object:
        """What changes at this moment."""
        if moment == "task began":
            record = self.folder / "record"
            return record.stat().st_size if record.exists() else 0
        if moment == "engine started":
            return len(list(self._run_folder.glob("*.log")))
        return rows(self._run_folder, MOMENTS[moment])

    # ---- what must hold

    def _look_at_doomed(self) -> None:
        left = []
        for deadline, pid, began, why in self._doomed:
            if not began or processes.started(pid) != began:
                continue
            if time.monotonic() < deadline:
                left.append((deadline, pid, began, why))
            else:
                self.outcome.orphans.append(f"process {pid} lives on {why}")
        self._doomed = left

    def _end(self) -> None:
        if self._program is not None:
            self._program.kill()
            self._note_end_of_driver()
        until = time.monotonic() + ENDED_WITHIN_S
        while (left := processes.working_in(self.folder)) and time.monotonic() < until:
            time.sleep(0.1)
        for pid in left:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            self.outcome.orphans.append(f"process {pid} is left: {command}")
        processes.kill(left)
        spools = [path.name for path in self._run_folder.glob("*.spool")]
        if spools and not left:
            self.outcome.other.append(f"spools are left: {spools}")

    def _check(self) -> None:
        outcome, at_most = self.outcome, self.plan.once == "at-most"
        record = (self.folder / "record").read_text().splitlines() if (self.folder / "record").exists() else []
        last_end: dict[str, float] = {}
        """By cylinder."""
        begins: dict[int, list[float]] = {}
        ends: dict[int, list[float]] = {}
        for line in record:
            word, number, pid, at = line.split()
            if word in ("beside", "slot"):
                what = "ran beside its copy" if word == "beside" else "began in a slot that another task had"
                outcome.slots_exceeded.append(f"task {number} (pid {pid}) {what}")
                continue
            (begins if word == "begin" else ends).setdefault(int(number), []).append(int(at) / 1e9)
            if word == "begin":
                self._known_ends.add(last_end.get(pid, 0.0))
            else:
                last_end[pid] = int(at) / 1e9
        finals: dict[int, tuple[str, int]] = {}
        for task, state, pid in rows(self._run_folder, "SELECT task_id, state, pid FROM ends WHERE final AND kind = 'N'"):
            if int(str(task)) in finals:
                outcome.twice.append(f"task {task} has two final ends")
            finals[int(str(task))] = (str(state), int(str(pid)))
        for task in range(self.plan.tasks):
            began, ended = begins.get(task, []), ends.get(task, [])
            state, pid = finals.get(task, ("none", 0))
            if len(began) > 1:
                if at_most:
                    outcome.twice.append(f"task {task} began {len(began)} times")
                self._judge_repeats(task, began, ended)
            if state == "none" or (state == "succeeded" and not ended):
                outcome.lost.append(f"task {task} is {state}, and wrote {len(began)} begins and {len(ended)} ends")
            elif state == "failed" and pid not in self._killed_tasks:
                outcome.other.append(f"task {task} failed although it was not killed")
            elif state == "lost":
                outcome.reported_lost += 1
                if not at_most and len(began) < MOST_LOSSES and not self._often_lost(task):
                    outcome.lost.append(f"task {task} is lost after {len(began)} begins")
                if ended and not self._may_be_unknown(ended[-1]):
                    outcome.lost.append(f"task {task} is lost although it had ended")
            elif state not in ("succeeded", "failed"):
                outcome.other.append(f"task {task} is {state}")

        self._check_outputs()

    def _check_outputs(self) -> None:
        """Every task that succeeded has what its last attempt wrote, whole and once."""
        outcome = self.outcome
        with open_outputs(self._run_folder) as reader:
            for _, output in reader.read(None):
                if output.state != "succeeded":
                    continue
                outcome.outputs += 1
                size = self._bytes[output.task]
                line = f"{output.task}.{output.attempt}\n".encode()
                wanted = (line * (1 + size // len(line)))[:size], b"error of " + line
                found = output.text(STDOUT), output.text(STDERR)
                if found != wanted:
                    sizes = f"{len(found[0])} and {len(found[1])} bytes, not {size} and {len(wanted[1])}"
                    outcome.wrong_outputs.append(f"task {output.task}, attempt {output.attempt}, wrote {sizes}")

    def _judge_repeats(self, task: int, began: list[float], ended: list[float]) -> None:
        self.outcome.repeated += len(began) - 1
        for end in ended:
            if any(begin > end for begin in began):
                if self._may_be_unknown(end):
                    self.outcome.unknown_ends += 1
                else:
                    self.outcome.twice.append(f"task {task} began again although it had ended")

    def _often_lost(self, task: int) -> bool:
        """A task may be lost before it has written that it began."""
        query = f"SELECT count(*) FROM ends WHERE task_id = {task} AND state = 'lost' AND kind = 'N'"
        return int(str(rows(self._run_folder, query)[0][0])) >= MOST_LOSSES

    def _may_be_unknown(self, end: float) -> bool:
        return end not in self._known_ends and any(abs(at - end) < AROUND_A_KILL_S for at in self._struck_at)


def run_storm(folder: Path, plan: Plan, env: dict[str, str] | None = None) -> Outcome:
    folder.mkdir(parents=True)
    return Storm(folder, plan, env or dict(os.environ)).run()
