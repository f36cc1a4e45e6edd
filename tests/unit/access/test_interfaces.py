"""Where a run listens: on the way to its hosts, and on all interfaces only if that is not known."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pilothouse.access.interfaces import ALL, LOOPBACK, towards, towards_by_ssh


def test_this_host_is_reached_by_loopback() -> None:
    assert towards(["localhost", "127.0.0.1"]) == (LOOPBACK,)
    assert towards([]) == (LOOPBACK,)


def test_a_host_elsewhere_is_reached_by_the_interface_of_its_route() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this host has no route to elsewhere")
        expected = probe.getsockname()[0]
    assert towards(["192.0.2.1", "localhost"]) == (expected, LOOPBACK)


def test_a_name_that_nothing_resolves_leaves_all_interfaces() -> None:
    assert towards(["no-such-host.invalid", "localhost"]) == (ALL,)


def test_names_of_ssh_configuration_are_resolved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "ssh"
    program.write_text(
        "#!/bin/sh\ncase $3 in 127.0.0.2) echo proxyjump gate;; *) echo hostname no-such-host.invalid;; esac\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert towards_by_ssh(["127.0.0.2"]) == (ALL,)  # behind a proxy
    assert towards_by_ssh(["me@localhost"]) == (ALL,)  # ssh connects to somewhere else
    monkeypatch.setenv("PATH", "/nowhere")
    assert towards_by_ssh(["me@localhost"]) == (LOOPBACK,)
