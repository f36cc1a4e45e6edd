"""What is handed to ssh: a host that is no option, and a command that the shell there reads as it was meant."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from pilothouse.model.errors import InputError
from pilothouse.worlds.live.contexts import Launch
from pilothouse.worlds.live.contexts.programs import engine_command
from pilothouse.worlds.live.contexts.ssh import SshContext, parse_hosts

LAUNCH = Launch(("tcp://127.0.0.1:9",), "", "", "", "/", "/nowhere", "/my $(touch planted); python's/bin/python")


def test_the_command_for_ssh_is_quoted() -> None:
    command = SshContext({"h1": 2}).command("h1", LAUNCH)
    assert command[-2] == "h1"
    assert shlex.split(command[-1]) == engine_command(LAUNCH.python)


def test_a_host_is_no_option_of_ssh(tmp_path: Path) -> None:
    program = shutil.which("ssh")
    if program is None:
        pytest.skip("no ssh here")
    host = f"-oProxyCommand=touch {tmp_path}/planted"
    command = SshContext({host: 2}).command(host, LAUNCH)
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=20, check=False).returncode == 255
    assert not (tmp_path / "planted").exists()


def test_hosts_and_slots() -> None:
    assert parse_hosts(["h1:8,h2:4", "h1:1"]) == {"h1": 9, "h2": 4}
    assert parse_hosts(["a, b:2"], 3) == {"a": 3, "b": 2}
    assert parse_hosts(["u@h:1"]) == {"u@h": 1}
    for wrong in ("h1", "h1:", ":4", "h1:0", "h1:-1", "h1:x", ""):
        with pytest.raises(InputError, match="not a list of hosts"):
            parse_hosts([wrong])
