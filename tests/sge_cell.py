"""A real Grid Engine (Debian's gridengine packages) on this host alone: one qmaster, one execd, in a cell of its own.

In: a directory. Out: an `SgeCell`, whose `env` makes qsub, qstat, qdel and qrsh use it. It has eight slots and the parallel
environment `smp`, whose tasks may be started with `qrsh -inherit`. Jobs run as the user who starts it.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pilothouse.worlds.slurm.daemons import find_program, free_port, spawn, wait_started

PROGRAMS = Path("/usr/lib/gridengine")
SHARED = Path("/usr/share/gridengine")
SLOTS = 8
_BOOTSTRAP = """admin_user none
default_domain none
ignore_fqdn true
spooling_method classic
spooling_lib libspoolc
spooling_params {spool}
binary_path /usr/sbin
qmaster_spool_dir {qmaster}
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""
_PE = """pe_name smp
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule $fill_up
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""
_QUEUE = f"""qname all.q
hostlist {{host}}
seq_no 0
nsuspend 1
suspend_interval 00:05:00
priority 0
min_cpu_interval 00:05:00
qtype BATCH INTERACTIVE
pe_list smp
rerun FALSE
slots {SLOTS}
tmpdir /tmp
shell /bin/sh
shell_start_mode unix_behavior
notify 00:00:60
initial_state default
processors UNDEFINED
{{none}}{{infinite}}"""
_NONE = (
    *("load_thresholds", "suspend_thresholds", "ckpt_list", "prolog", "epilog", "starter_method", "suspend_method"),
    *("resume_method", "terminate_method", "owner_list", "user_lists", "xuser_lists", "subordinate_list", "complex_values"),
    *("projects", "xprojects", "calendar"),
)
_LIMITS = ("rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem")


@dataclass
class SgeCell:
    directory: Path
    env: dict[str, str]
    daemons: list[subprocess.Popen[bytes]]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.env, cwd=self.directory, capture_output=True, text=True, timeout=60, check=False
        )

    def stop(self) -> None:
        """At once: what it would write down is needed by nothing, and takes seconds."""
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()


def start_sge(directory: Path) -> SgeCell:
    qmaster = find_program("sge_qmaster", "gridengine-master")
    execd = find_program("sge_execd", "gridengine-exec")
    find_program("qconf", "gridengine-client")
    host = socket.gethostname()
    common, spool, conf = directory / "default" / "common", directory / "spool" / "qmaster", directory / "conf"
    for folder in (common, spool / "job_scripts", directory / "spool" / "execd", conf, directory / "bin", directory / "utilbin"):
        folder.mkdir(parents=True)
    (directory / "util").symlink_to(SHARED / "util")
    arch = subprocess.run([SHARED / "util" / "arch"], capture_output=True, text=True, check=True).stdout.strip()
    for folder in ("bin", "utilbin"):  # where the daemons look for each other's programs
        (directory / folder / arch).symlink_to(PROGRAMS)
    where = f"{common};{spool}"
    (common / "bootstrap").write_text(_BOOTSTRAP.format(spool=where, qmaster=spool))
    (common / "act_qmaster").write_text(f"{host}\n")
    (common / "host_aliases").write_text(f"{host} localhost\n")  # its address may be that of loopback
    ports = {"SGE_QMASTER_PORT": str(free_port()), "SGE_EXECD_PORT": str(free_port())}
    # SGE_ND: daemons stay children.
    cell = {"SGE_ROOT": str(directory), "SGE_CELL": "default", "LD_LIBRARY_PATH": str(PROGRAMS), "SGE_ND": "1", **ports}
    made = SgeCell(directory, {**os.environ, **cell}, [])
    settings = (SHARED / "default-configuration").read_text()
    for name, value in (
        ("execd_spool_dir", f"{directory}/spool/execd"), ("min_uid", "0"), ("min_gid", "0"), ("load_report_time", "00:00:02"),
    ):  # fmt: skip
        settings = re.sub(rf"(?m)^{name}\s.*$", f"{name} {value}", settings)
    _must(made.run(str(PROGRAMS / "spoolinit"), "classic", "libspoolc", where, "init"))
    resources = SHARED / "util" / "resources"
    for what, value in (
        ("configuration", _file(conf / "configuration", settings)), ("complexes", str(resources / "centry")),
        ("usersets", str(resources / "usersets")), ("managers", getpass.getuser()), ("adminhosts", host),
    ):  # fmt: skip
        _must(made.run(str(PROGRAMS / "spooldefaults"), what, value))
    made.daemons.append(spawn([qmaster], directory / "qmaster.log", env=made.env))
    wait_started(made.daemons[0], lambda: made.run("qconf", "-sh").returncode == 0, "sge_qmaster", directory / "qmaster.log")
    made.daemons.append(spawn([execd], directory / "execd.log", env=made.env))
    schedule = re.sub(r"(?m)^(flush_submit_sec|flush_finish_sec)\s.*$", r"\1 1", made.run("qconf", "-ssconf").stdout)
    schedule = re.sub(r"(?m)^schedule_interval\s.*$", "schedule_interval 0:0:1", schedule)
    queue = _QUEUE.format(
        host=host, none="".join(f"{name} NONE\n" for name in _NONE),
        infinite="".join(f"{kind}_{name} INFINITY\n" for name in _LIMITS for kind in ("s", "h")),
    )  # fmt: skip
    for option, value in (
        ("-as", host), ("-Msconf", _file(conf / "schedule", schedule)), ("-Ap", _file(conf / "pe", _PE)),
        ("-Aq", _file(conf / "queue", queue)),
    ):  # fmt: skip
        _must(made.run("qconf", option, value))
    up = re.compile(rf"(?m)^{re.escape(host)}\s+{re.escape(arch)}\s")
    wait_started(made.daemons[1], lambda: bool(up.search(made.run("qhost").stdout)), "sge_execd", directory / "execd.log")
    return made


def _file(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def _must(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, f"{done.args}: {done.stdout}{done.stderr}"
