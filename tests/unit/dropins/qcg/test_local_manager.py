"""Our manager as the service process of qcg-pilotjob's LocalManager."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.dropins.qcg.local_manager import COMMAND_VARIABLE, ServiceProcess


def test_terminate_returns_when_the_process_has_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """LocalManager.finish() ends with it. A program may remove its folder then."""
    ended = tmp_path / "ended"
    script = f"trap 'sleep 0.2; touch {ended}; exit 5' TERM; touch {tmp_path}/ready; while :; do sleep 0.02; done"
    monkeypatch.setenv(COMMAND_VARIABLE, f'sh -c "{script}"')
    process = ServiceProcess()
    process.start()
    while not (tmp_path / "ready").exists():
        assert process.is_alive()
    process.terminate()
    assert ended.exists() and process.exitcode == 5 and not process.is_alive()
