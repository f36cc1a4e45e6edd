"""What the Batsim protocols cost: 10,000 delay jobs through a trivial scheduler in another process, over ipc.

    python bench/protocol.py [--jobs N] [--repeat N]

Prints the CPU time of our side (the resource manager: simulation, control latency, codec, socket) for each job, best of
N, and the ratio to what the real Batsim 4 needed on its side for the same kind of run (0.50 ms a job): once wherever the
kernel puts the two processes, and once with both on one core, since they never work at the same time and waking another
core is costly on a virtual machine. What bare round trips of libzmq cost is shown beside it. Then runs
bench/batprotocol.py: the same for Batsim 5 and a component as a library.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from cluster32 import HOSTS, PLATFORM

REAL_BATSIM_4_MS = 0.50
SCHEDULER = '''
import json, sys, zmq
socket = zmq.Context().socket(zmq.REP)
socket.bind(sys.argv[1])
queue, free, over = [], set(range(int(sys.argv[2]))), False
while not over:
    message = json.loads(socket.recv())
    for event in message["events"]:
        kind, data = event["type"], event["data"]
        if kind == "JOB_SUBMITTED":
            queue.append((data["job_id"], data["job"]["res"]))
        elif kind == "JOB_COMPLETED":
            for part in data["alloc"].split():
                first, _, last = part.partition("-")
                free.update(range(int(first), int(last or first) + 1))
        elif kind == "SIMULATION_ENDS":
            over = True
    orders = []
    while queue and queue[0][1] <= len(free):
        job_id, count = queue.pop(0)
        units = sorted(free)[:count]
        free.difference_update(units)
        data = {"job_id": job_id, "alloc": " ".join(map(str, units))}
        orders.append({"timestamp": message["now"], "type": "EXECUTE_JOB", "data": data})
    socket.send_string(json.dumps({"now": message["now"], "events": orders}))
'''


def write_workload(path: Path, jobs: int, seed: int = 1) -> None:
    """Delays of 1 to 100 s, arriving a little slower than the machine can run them."""
    rng = random.Random(seed)
    profiles = {f"d{i}": {"type": "delay", "delay": i} for i in range(1, 101)}
    date, written = 0.0, []
    for number in range(jobs):
        date += rng.expovariate(1 / 4)
        written.append(
            {"id": str(number), "subtime": round(date, 3), "walltime": 200, "res": rng.randint(1, 4),
             "profile": f"d{rng.randint(1, 100)}"}
        )  # fmt: skip
    path.write_text(json.dumps({"nb_res": HOSTS, "jobs": written, "profiles": profiles}))


def measure(folder: Path, jobs: int) -> float:
    """CPU seconds of our side for one run."""
    endpoint = f"ipc://{folder}/socket"
    scheduler = subprocess.Popen([sys.executable, "-c", SCHEDULER, endpoint, str(HOSTS)])
    command = [
        sys.executable, "-m", "pilothouse", "batsim4", "-p", str(folder / "platform.xml"), "-w",
        str(folder / "workload.json"), "-e", str(folder / "out"), "-s", endpoint, "--decider-timeout", "60",
    ]  # fmt: skip
    ours = subprocess.Popen(command)
    _, status, usage = os.wait4(ours.pid, 0)
    ours.returncode = os.waitstatus_to_exitcode(status)
    scheduler.wait(10)
    rows = len((folder / "out_jobs.csv").read_text().splitlines()) - 1
    if ours.returncode or rows != jobs:
        raise SystemExit(f"the run failed: exit code {ours.returncode}, {rows} of {jobs} jobs")
    return usage.ru_utime + usage.ru_stime


PING = '''
import sys, zmq
socket = zmq.Context().socket(zmq.REQ)
socket.connect(sys.argv[1])
for _ in range(int(sys.argv[2])):
    socket.send(b"x" * 200)
    socket.recv()
'''

ECHO = '''
import sys, zmq
socket = zmq.Context().socket(zmq.REP)
socket.bind(sys.argv[1])
while True:
    socket.send(socket.recv())
'''


def measure_socket(folder: Path, trips: int) -> float:
    """CPU seconds of one side of bare round trips: what any resource manager pays for its turns."""
    endpoint = f"ipc://{folder}/ping"
    echo = subprocess.Popen([sys.executable, "-c", ECHO, endpoint])
    ping = subprocess.Popen([sys.executable, "-c", PING, endpoint, str(trips)])
    _, _, usage = os.wait4(ping.pid, 0)
    echo.kill()
    echo.wait()
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    cores = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "platform.xml").write_text(PLATFORM)
        write_workload(folder / "workload.json", options.jobs)
        for where, allowed in (("on any core", cores), ("on one core", {max(cores)})):
            os.sched_setaffinity(0, allowed)
            best = min(measure(folder, options.jobs) for _ in range(options.repeat))
            trips = min(measure_socket(folder, 2 * options.jobs) for _ in range(options.repeat))
            each = best / options.jobs * 1000
            print(f"batsim4: {options.jobs:,} jobs over ipc, {each:.3f} ms of CPU a job on our side, {where}")
            print(f"         {each / REAL_BATSIM_4_MS:.2f} of the real Batsim 4 ({REAL_BATSIM_4_MS:.2f} ms)")
            print(f"         two bare round trips of libzmq: {trips / options.jobs * 1000:.3f} ms", flush=True)
    batprotocol = Path(__file__).with_name("batprotocol.py")
    subprocess.run([sys.executable, str(batprotocol), "--repeat", str(options.repeat)], check=True)


if __name__ == "__main__":
    main()
