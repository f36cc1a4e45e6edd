"""Where runs listen, with which rights tasks and files are made, and whom disBatch's key-value service trusts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from pathlib import Path

import components
from disbatch_runs import clean_env
from e2e.live_runs import finish, lines, start, tasks, until
from pilothouse.access.peer import Peer, Whose
from pilothouse.dropins.disbatch import batcher

LISTENING = "0A"


def listening(pid: int) -> set[str]:
    """The IPv4 addresses on which a process listens."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since
            target = os.readlink(entry)
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTENING and fields[9] in inodes:
            host = bytes.fromhex(fields[1].partition(":")[0])[::-1]
            found.add(".".join(map(str, host)))
    return found


def test_a_run_listens_on_loopback(tmp_path: Path) -> None:
    """Its driver and its key-value service."""
    file = tasks(tmp_path, "touch began; until [ -e go ]; do sleep 0.02; done\n")
    process = start(tmp_path, file, "--dir", "R", "--slots", "1")
    until((tmp_path / "began").exists, "the task began")
    assert listening(process.pid) == {"127.0.0.1"}
    (tmp_path / "go").touch()
    assert finish(process)[0] == 0


def test_a_service_listens_on_all_interfaces(tmp_path: Path) -> None:
    process = start(tmp_path, tasks(tmp_path, "true\n"), "--dir", "R", "--service")
    until(lambda: listening(process.pid), "it listens")
    assert "0.0.0.0" in listening(process.pid)
    process.send_signal(signal.SIGINT)
    finish(process)


def test_a_task_runs_as_the_user(tmp_path: Path) -> None:
    process = start(tmp_path, tasks(tmp_path, "id -u > who; id -g >> who\n"), "--dir", "R", "--slots", "1")
    assert finish(process)[0] == 0
    assert lines(tmp_path / "who") == [str(os.getuid()), str(os.getgid())]


def test_the_status_file_has_the_rights_of_the_umask(tmp_path: Path) -> None:
    (tmp_path / "tasks").write_text("true\n")
    command = [components.ROOT / "libexec" / "disbatch" / "disBatch", "-s", "localhost:1", "-p", "./X", "tasks"]
    subprocess.run(command, cwd=tmp_path, env=clean_env(), umask=0o027, check=True, capture_output=True, timeout=60)
    [status] = tmp_path.glob("X*_status.txt")
    assert status.stat().st_mode & 0o777 == 0o640


def test_no_file_of_disbatch_can_be_written_by_everyone(tmp_path: Path) -> None:
    """With umask 0; what tasks write has the rights that their umask gives."""
    (tmp_path / "tasks").write_text("umask; touch mine\n")
    command = ["disBatch", "-s", "localhost:1", "-p", "x", "tasks"]
    subprocess.run(command, cwd=tmp_path, env=clean_env(), umask=0, check=True, capture_output=True, timeout=60)
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o666
    script = tmp_path / "x_dbUtil.sh"
    subprocess.run([script, "-s", "localhost:1"], cwd=tmp_path, umask=0, check=False, capture_output=True, timeout=60)
    made = [path for path in tmp_path.iterdir() if path.name.startswith("x_")]
    assert len(made) > 7
    assert [path.name for path in made if path.stat().st_mode & 0o002] == []



def test_programs_on_hosts_of_engines_are_not_told_apart() -> None:
    nodes = {"192.0.2.7"}
    assert batcher._trusts(nodes, Peer(Whose.ELSEWHERE, "192.0.2.7"))
    assert not batcher._trusts(nodes, Peer(Whose.ELSEWHERE, "192.0.2.8"))
    assert not batcher._trusts(nodes, Peer(Whose.ANOTHER_USER, "192.0.2.7", uid=65534))
    assert batcher._trusts(set(), Peer(Whose.OURS, "127.0.0.1", uid=os.getuid()))
