"""Runs under the Python of the real qcg-pilotjob client: one scenario against our manager, its findings as JSON.

    python qcg_session.py SCENARIO DIRECTORY EXECUTABLE

The client's LocalManager starts our executable instead of its own service.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import signal
import subprocess
import sys
import time

import qcg.pilotjob.service
import zmq
from qcg.pilotjob.api.errors import ConnectionError as Refused
from qcg.pilotjob.api.job import Jobs
from qcg.pilotjob.api.manager import LocalManager, Manager

DIRECTORY, EXECUTABLE = sys.argv[2], sys.argv[3]


class ExecutableProcess:
    """What LocalManager expects of its service process, around any executable."""

    def __init__(self, args, queue):
        self.args, self.queue = args, queue

    def start(self):
        pattern = os.path.join(DIRECTORY, ".qcgpjm-service-*", "address")
        before = {path: os.stat(path).st_mtime_ns for path in glob.glob(pattern)}
        self.child = subprocess.Popen([EXECUTABLE, *self.args])
        while self.child.poll() is None:
            for path in glob.glob(pattern):
                if before.get(path) != os.stat(path).st_mtime_ns:
                    with open(path) as stream:
                        self.queue.put({"zmq_addresses": [stream.read()]})
                    return
            time.sleep(0.02)
        self.queue.put({"error": f"it ended with {self.child.returncode}"})

    def is_alive(self):
        return self.child.poll() is None

    def join(self, timeout=None):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(timeout)

    def terminate(self):
        if self.child.poll() is None:
            self.child.terminate()


qcg.pilotjob.service.QCGPMServiceProcess = ExecutableProcess


def manager(*options, nodes="4"):
    arguments = ["--wd", DIRECTORY, "--nodes", nodes, "--log", "debug", *options]
    return LocalManager(arguments, {"wdir": DIRECTORY, "init_timeout": 60})


def refusal(action):
    try:
        action()
    except Refused as error:
        return str(error)
    return "accepted"


def life():
    m = manager(nodes="3,a:2")
    found = {"resources": m.resources()}
    ids = m.submit(
        Jobs()
        .add(name="host", exec="/bin/hostname", stdout="host.out")
        .add(name="two", exec="/bin/echo", args=["${ncores}", "${nlist}"], stdout="two.out", numCores={"exact": 2})
    )
    found["waited"] = m.wait4(ids)
    found["status"] = m.status(ids)
    info = m.info_parsed(ids)
    found["cores"] = {name: info[name].total_cores for name in ids}
    found["list"] = m.list()
    m.remove("host")
    found["left"] = list(m.list())
    found["again"] = m.wait4(m.submit(Jobs().add(name="host", script="exit 7")))
    found["exit"] = m.info("host")["jobs"]["host"]["data"]["runtime"]["exit_code"]
    found["system"] = sorted(m.system_status())
    m.wait4all()
    m.finish()
    found["code"] = m.qcgpm_process.child.returncode
    return found


def iterations():
    m = manager()
    m.submit(
        Jobs()
        .add(name="it", script="exit $(( ${it} == 2 ))", iteration=4)
        .add(
            name="each",
            exec="/bin/echo",
            args=["${it}", "${itval}"],
            stdout="each_${it}.out",
            iteration={"values": ["a", "b", "c", "d"]},
            after=["it:${it}"],
        )
        .add(name="after", exec="/bin/true", after="it")
        .add(name="good", exec="/bin/true", after="each:1")
    )
    names = ["it", "each", "after", "good", "each:2", "it:1"]
    found = {"waited": m.wait4(names)}
    info = m.info_parsed(["it", "each"], withChilds=True)
    found["childs"] = {name: [child.status for child in info[name].childs] for name in info}
    found["iterations"] = info["it"].iterations
    # Before, the events of ended jobs are still to be read; then the next end is told.
    m2 = Manager(m._address, {"wdir": DIRECTORY})
    m2.submit(Jobs().add(name="last", exec="/bin/sleep", args=["0.3"]))
    found["any"] = m2.wait4_any_job_finish(20)
    m.finish()
    return found


def cancel():
    m = manager(nodes="2")
    m.submit(
        Jobs()
        .add(name="runs", exec="/bin/sleep", args=["60"])
        .add(name="loop", exec="/bin/sleep", args=["60"], iteration=5)
        .add(name="waits", exec="/bin/sleep", args=["60"], numCores=2)
        .add(name="part", exec="/bin/sleep", args=["0.2"], iteration={"start": 2, "stop": 5})
        .add(name="dep", exec="/bin/true", after="runs")
    )
    m.cancel(["waits", "part:3"])
    while m.status("runs")["jobs"]["runs"]["data"]["status"] != "EXECUTING":
        time.sleep(0.02)
    m.cancel("runs")
    m.cancel(["loop"])
    m.wait4all()
    info = m.info("part", withChilds=True)["jobs"]["part"]["data"]
    found = {"states": {name: job["status"] for name, job in m.list().items()}}
    found["childs"] = [child["state"] for child in info["childs"]]
    found["runtime"] = m.info("runs")["jobs"]["runs"]["data"]["runtime"]["exit_code"]
    m.finish()
    return found


def errors():
    m = manager()
    found = {"malformed": None}
    context = zmq.Context()
    raw = context.socket(zmq.REQ)
    raw.connect(m._address)
    raw.send(b"{not json")
    found["malformed"] = json.loads(raw.recv()) if raw.poll(5000) else None
    raw.close()
    context.term()
    found["big"] = refusal(lambda: m.submit(Jobs().add(name="big", exec="true", numCores=99)))
    found["twice"] = refusal(lambda: [m.submit(Jobs().add(name="a", exec="true")) for _ in range(2)])
    found["unknown"] = refusal(lambda: m.info("nobody"))
    found["request"] = refusal(lambda: m.send_request({"request": "dance"}))
    found["control"] = m.send_request({"request": "control", "command": "finishAfterAllTasksDone"})
    found["finish"] = refusal(m.finish)
    m.qcgpm_process.join(20)
    found["code"] = m.qcgpm_process.child.returncode
    return found


def resume():
    """Killed by signal 9 in the middle: engines go on, and the next manager takes their results."""
    m = manager(nodes="2")
    m.submit(
        Jobs()
        .add(name="it", script="echo ${it} >> ran; sleep 0.7", iteration=8)
        .add(name="after", script="echo after >> ran", after="it")
    )
    m.wait4("it:1")
    os.kill(m.qcgpm_process.child.pid, signal.SIGKILL)
    m.qcgpm_process.child.wait()
    m.cleanup()
    m = manager("--resume", DIRECTORY, nodes="2")
    m.wait4all()
    info = m.info_parsed("it", withChilds=True)["it"]
    found = {"iterations": info.iterations, "childs": [child.status for child in info.childs]}
    found["states"] = {name: job["status"] for name, job in m.list().items()}
    m.finish()
    with open(os.path.join(DIRECTORY, "ran")) as stream:
        found["ran"] = sorted(stream.read().split())
    (report,) = glob.glob(os.path.join(DIRECTORY, ".qcgpjm-service-*", "jobs.report"))
    with open(report) as stream:
        found["report"] = sorted(json.loads(line)["name"] for line in stream)
    return found


def inside():
    """A job that talks to its own manager through QCG_PM_ZMQ_ADDRESS."""
    m = manager()
    code = (
        "from qcg.pilotjob.api.manager import Manager; from qcg.pilotjob.api.job import Jobs; m = Manager(); "
        "m.wait4(m.submit(Jobs().add(name='child', exec='/bin/true')))"
    )
    m.submit(Jobs().add(name="parent", exec=sys.executable, args=["-c", code], stderr="parent.err"))
    found = {"waited": m.wait4(["parent"]), "list": {name: job["status"] for name, job in m.list().items()}}
    m.finish()
    return found


def forms():
    """Every attribute of Jobs.add(), files of jobs, names that it makes up, and other ways to an address."""
    for folder in ("venv/bin", "in"):
        os.makedirs(folder)
    with open("venv/bin/activate", "w") as stream:
        stream.write("export V=yes\n")
    with open("in/put.txt", "w") as stream:
        stream.write("hello\n")
    m = manager(nodes=4)
    streams = {"stdin": "in/put.txt", "stdout": "full.out", "stderr": "full.err"}
    jobs = Jobs().add(
        {"name": "full", "exec": "/bin/sh", "args": ["-c", "cat; echo $V ${ncores} $0; echo no >&2", "zero"]},
        **streams, wd=".", venv="venv", model="default", model_opts={"x": "y"}, numCores={"exact": 2}, wt="1m",
    )  # fmt: skip
    jobs.add(name="three", exec="/bin/true", iteration=3).add(name="from", exec="/bin/true", iteration={"stop": 2})
    jobs.add(name="words", exec="/bin/echo", args=["${itval}"], iteration=["u", "v"], stdout="${itval}.out")
    jobs.add(name="after", exec="/bin/true", after=["three", "words:1"]).add(name="one", exec="/bin/true", after="full")
    jobs.add(name="nodes", exec="/bin/true", numNodes={"min": 1, "max": 3}, numCores={"min": 2, "max": 2})
    jobs.add_std(name="std", execution={"exec": "/bin/true", "env": {"A": "1"}}, resources={"numNodes": 1})
    jobs.save_to_file("jobs.json")
    loaded = Jobs()
    loaded.load_from_file("jobs.json")
    found = {"submitted": m.submit(loaded)}
    found["waited"] = m.wait4(loaded.job_names())
    found["made_up"] = list(m.wait4(m.submit(Jobs().add(exec="/bin/true"))).values())
    found["args"] = refusal(lambda: m.submit(Jobs().add(name="text", exec="/bin/true", args="a b")))
    info = m.info_parsed(["full", "nodes", "std", "three"], withChilds=True)
    found["cores"] = {name: job.total_cores for name, job in info.items()}
    found["parts"] = [(child.name, child.iteration, child.status) for child in info["three"].childs]
    other = Manager(m._address.removeprefix("tcp://"), {"wdir": DIRECTORY, "log_file": "other.log"})
    found["other"] = sorted(other.list()) == sorted(m.list())
    os.environ["QCG_PM_ZMQ_ADDRESS"] = m._address
    found["named"] = Manager(cfg={"wdir": DIRECTORY, "log_file": "third.log"}).resources()["total_cores"]
    m.finish()
    return found


def polling():
    """Without events clients ask again and again; and waits that take too long."""
    m = LocalManager(
        ["--wd", DIRECTORY, "--nodes", 2, "--disable-pub"], {"wdir": DIRECTORY, "init_timeout": 60, "poll_delay": 0.1}
    )
    found = {"waited": m.wait4(m.submit(Jobs().add(name="a", exec="/bin/true").add(name="b", exec="/bin/false")))}
    found["all"] = m.wait4all(60)
    m.submit(Jobs().add(name="long", exec="/bin/sleep", args=["60"]))
    found["late"] = [late(lambda: m.wait4("long", 0.2)), late(lambda: m.wait4all(0.2))]
    found["any"] = late(lambda: m.wait4_any_job_finish(0.2))
    found["publisher"] = m.system_status()["System"]["StatusPublisher"]
    m.cancel("long")
    found["cancelled"] = m.wait4("long", 60)
    m.kill_manager_process()
    m.qcgpm_process.join(60)
    m.cleanup()
    found["alive"] = m.qcgpm_process.is_alive()
    return found


def late(action):
    try:
        return action()
    except Exception as error:
        return type(error).__name__


def slurm():
    """Inside an allocation of two nodes with four cores each."""
    m = LocalManager(["--log", "debug", "--wd", DIRECTORY], {"wdir": DIRECTORY, "init_timeout": 60})
    found = {"resources": m.resources()}
    one_min = {"numCores": {"min": 1}}
    split, true = {"name": "split-into"}, {"exec": "/bin/true"}
    sizes = {
        "halves": (2, {"numCores": {"min": 1, "scheduler": split}}),
        "quarter": (2, {"numCores": {"min": 1, "scheduler": {**split, "params": {"parts": 4}}}}),
        "most": (3, {"numCores": {"min": 1, "scheduler": {"name": "maximum-iters"}}}),
        "nodes": (2, {"numNodes": {"min": 1, "scheduler": split}}),
    }
    jobs = (
        Jobs()
        .add(name="all", exec="/bin/hostname", numCores=8)
        .add_std(name="open", execution=true, resources=one_min)
        .add(name="node", exec="/bin/true", numNodes=1, numCores={"min": 1, "max": 5})
        .add(name="spread", exec="/bin/true", numCores={"min": 5, "max": 6})
    )
    for name, (count, resources) in sizes.items():
        jobs.add_std(name=name, execution=true, resources=resources, iteration={"stop": count})
    m.submit(jobs)
    m.wait4all()
    found["states"] = {name: job["status"] for name, job in m.list().items()}
    found["message"] = m.list()["open"]["messages"]
    info = m.info_parsed(list(found["states"]), withChilds=True)
    found["cores"] = {name: info[name].total_cores for name in ("all", "node", "spread")}
    found["on"] = {name: len(info[name].nodes) for name in ("all", "node", "spread")}
    loops = ("halves", "quarter", "most", "nodes")
    found["childs"] = {name: [child.total_cores for child in info[name].childs] for name in loops}
    found["too_many"] = [
        refusal(lambda: m.submit(Jobs().add(name="x", exec="/bin/true", numCores=9))),
        refusal(lambda: m.submit(Jobs().add(name="x", exec="/bin/true", numNodes=3))),
    ]
    m.submit(Jobs().add(name="sleeps", exec="/bin/sleep", args=["60"], numCores=2, numNodes=2))
    while m.status("sleeps")["jobs"]["sleeps"]["data"]["status"] != "EXECUTING":
        time.sleep(0.02)
    m.cancel("sleeps")
    found["cancelled"] = m.wait4("sleeps")
    m.finish()
    return found


if __name__ == "__main__":
    os.chdir(DIRECTORY)
    found = globals()[sys.argv[1]]()
    print(json.dumps(found))
