"""What `pilothouse run` says where something else was meant, and what to do next."""

from __future__ import annotations

import subprocess
from pathlib import Path

from e2e.live_runs import finish, run, start, tasks, until


def test_slots_beside_hosts_that_have_their_own(tmp_path: Path) -> None:
    code, said = run(tmp_path, tasks(tmp_path, "true\n"), "--ssh", "a:2,b:4", "--slots", "8")
    assert code == 2 and said.startswith("pilothouse: --slots: every host of --ssh has a number of slots already")
    assert not list(tmp_path.glob("*.run*"))


def test_a_service_says_how_to_add_engines_and_the_script_has_a_help(tmp_path: Path) -> None:
    process = start(tmp_path, tasks(tmp_path, "true\n"), "--dir", "R", "--service")
    script = tmp_path / "R" / "add-engines.sh"
    until(script.exists, "the script is there")
    for option in ("-h", "--help"):
        done = subprocess.run([script, option], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "--ssh-node" in done.stdout
    process.terminate()
    _, said = finish(process)
    assert f"add some: {script} -s HOST:SLOTS" in said
    assert "Traceback" not in said


def test_no_message_points_to_a_log_that_is_not_there(tmp_path: Path) -> None:
    code, said = run(tmp_path, tasks(tmp_path, "true\n"), "--dir", "R", "--ssh", "nowhere.invalid:1", env={"PATH": "/nowhere"})
    assert code == 1 and "cannot run ssh" in said
    code, said = run(tmp_path, "tasks.txt", "--dir", "S", "--ssh", "nowhere.invalid:1")
    assert code == 1 and "nowhere.invalid" in said and "engine logs" not in said
