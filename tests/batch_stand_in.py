#!/usr/bin/env python3
"""Stands in for the commands of PBS and LSF, which cannot be had here: qsub, qstat, qdel; bsub, bjobs, bkill, blaunch.

It is called by those names (`commands` makes the links). A job begins at once, on this host, with the environment that the real
system gives to it. Its hosts are those of $STAND_IN_HOSTS, each with a slot for each cpu that was asked for. What commands answer
has the form that the documentation of PBS Professional 2022 and LSF 10.1 shows.
"""

from __future__ import annotations

import getopt
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

PBS = ("qsub", "qstat", "qdel")
LSF = ("bsub", "bjobs", "bkill", "blaunch")
SERVER = "stand-in.example"


def commands(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Variables with which the commands are found, and keep their jobs in this folder."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in names:
        (programs / name).symlink_to(Path(__file__).resolve())
    return {"PATH": f"{programs}:{os.environ['PATH']}", "STAND_IN_JOBS": str(folder)}


def jobs(folder: Path) -> list[int]:
    """Jobs that run, by the numbers of their processes."""
    return [int(path.name) for path in folder.glob("[0-9]*") if alive(path)]


def alive(job: Path) -> bool:
    try:
        return Path(f"/proc/{job.read_text()}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, ValueError):
        return False


def begin(folder: Path, command: list[str], env: dict[str, str], log: str) -> None:
    (number,) = (value for name, value in env.items() if name in ("PBS_JOBID", "LSB_JOBID"))
    with open(log, "ab") as out:
        child = subprocess.Popen(
            command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    (folder / number.partition(".")[0]).write_text(str(child.pid))


def qsub(folder: Path, words: list[str]) -> int:
    options, rest = getopt.getopt(words, "VN:j:o:l:q:A:W:")
    wanted = dict(options)
    shape = re.fullmatch(r"select=(\d+):ncpus=(\d+)", wanted.get("-l", "select=1:ncpus=1"))
    if shape is None or len(wanted["-N"]) > 15:
        print("qsub: illegal -l or -N value", file=sys.stderr)
        return 1
    number = len(list(folder.glob("[0-9]*"))) + 1
    hosts = os.environ["STAND_IN_HOSTS"].split()[: int(shape[1])]
    nodes = folder / f"nodes.{number}"
    nodes.write_text("".join(f"{host}\n" for host in hosts))  # a line for each chunk
    env = {"PBS_JOBID": f"{number}.{SERVER}", "PBS_NODEFILE": str(nodes), "NCPUS": shape[2], "PBS_ENVIRONMENT": "PBS_BATCH"}
    begin(folder, ["/bin/bash", *rest], env, f"{wanted['-o']}{wanted['-N']}.o{number}")
    print(f"{number}.{SERVER}")
    return 0


def qstat(folder: Path, words: list[str]) -> int:
    running = jobs(folder)
    if running:
        print("Job id            Name             User              Time Use S Queue")
        print("----------------  ---------------- ----------------  -------- - -----")
    for number in running:
        print(f"{f'{number}.{SERVER}'[:16]}  {'pilothouse-tas*':16} {'user':16}  00:00:00 R workq")
    return 0


def qdel(folder: Path, words: list[str]) -> int:
    return end(folder, [int(word.partition(".")[0]) for word in words], "qdel: Unknown Job Id {}")


def bsub(folder: Path, words: list[str]) -> int:
    options, rest = getopt.getopt(words, "J:o:n:R:q:W:P:")
    wanted = dict(options)
    number = len(list(folder.glob("[0-9]*"))) + 1
    hosts = os.environ["STAND_IN_HOSTS"].split()
    each = max(1, int(wanted.get("-n", "1")) // len(hosts))
    env = {"LSB_JOBID": str(number), "LSB_JOBINDEX": "0", "LSB_MCPU_HOSTS": " ".join(f"{host} {each}" for host in hosts)}
    begin(folder, ["/bin/sh", "-c", " ".join(rest)], env, wanted["-o"].replace("%J", str(number)))
    print(f"Job <{number}> is submitted to default queue <normal>.")
    return 0


def bjobs(folder: Path, words: list[str]) -> int:
    running = jobs(folder)
    if not running:
        print("No unfinished job found", file=sys.stderr)
        return 255
    print("JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME")
    for number in running:
        print(f"{number:<7} user    RUN   normal     here        there       pilothouse-tasks.run1 Nov 16 02:00")
    return 0


def bkill(folder: Path, words: list[str]) -> int:
    return end(folder, [int(word) for word in words], "Job <{}>: Job has already finished")


def blaunch(folder: Path, words: list[str]) -> int:
    """As rsh: a shell of the host takes the words apart. The host's name is in the environment, and nothing else differs."""
    host, *command = words
    os.execve("/bin/sh", ["sh", "-c", " ".join(command)], {**os.environ, "STAND_IN_HOST": host})


def end(folder: Path, numbers: list[int], complaint: str) -> int:
    missing = [number for number in numbers if number not in jobs(folder)]
    for number in numbers:
        if number not in missing:
            os.killpg(int((folder / str(number)).read_text()), signal.SIGTERM)
    for number in missing:
        print(complaint.format(number), file=sys.stderr)
    return 170 if missing else 0


if __name__ == "__main__":
    called = Path(sys.argv[0]).name
    try:
        sys.exit(globals()[called](Path(os.environ["STAND_IN_JOBS"]), sys.argv[1:]))
    except getopt.GetoptError as error:
        sys.exit(f"{called}: {error}")
