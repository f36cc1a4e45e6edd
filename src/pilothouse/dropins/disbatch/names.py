"""The names of a run's files, as disBatch makes them: everything begins with the run's unique id (a path).

In: the prefix option, the task file's name, the date, a number by chance. Out: the id, or why there can be none.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pilothouse.access.files import own_folder
from pilothouse.journal.lock import LOCK_FILE, hold
from pilothouse.model.errors import InputError

STREAM_NAME = "STREAM"
"""What tasks that come through the KVS are called."""


class NoSuchFolder(Exception):
    """The prefix leads into a folder that does not exist."""


def source_name(task_file: str) -> str:
    """DISBATCH_NAMETASKS: the task file's name without its folder."""
    if task_file == "-":
        return "stdin"
    return os.path.basename(task_file) if task_file else STREAM_NAME


def unique_id(prefix: str, source: str, now: float, chance: int) -> str:
    """In a folder, a name that is unique; else the prefix is the beginning of all names. Raises NoSuchFolder."""
    path = os.path.realpath(prefix)
    if os.path.isdir(path):
        stamp = time.strftime("%y%m%d%H%M%S", time.localtime(now))
        return f"{path}/{source}_disBatch_{stamp}_{chance % 1000:03d}"
    folder = path if prefix.endswith("/") else os.path.dirname(path)
    if not os.path.isdir(folder):
        raise NoSuchFolder(f"there is no folder {folder}")
    return path


def run_folder(unique_id: str) -> Path:
    """Where journal, keys and engine logs of the run are."""
    return Path(f"{unique_id}_run")


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Makes the run's folder, locks it while the body runs, and removes what an earlier run with the same prefix left there."""
    own_folder(folder, ours=True)
    with hold(folder, InputError(str(folder), "another run with this prefix is going on")):
        for left in folder.iterdir():
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            elif left.name != LOCK_FILE:
                left.unlink()
        yield
