"""Files and folders that belong to one user: made so that others cannot read them, and refused where others made them.

A file that another user could have put in the place of ours (a symbolic link, a pipe, a file of another owner) is an InputError.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

from pilothouse.model.errors import InputError

ROOT = 0
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_HINT = "another user may have put it there: remove it, or use another folder"


def own_folder(path: Path, *, ours: bool = False) -> Path:
    """Makes the folder (mode 0700), or checks one that is there. `ours`: it holds nothing but our files, and becomes private."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
        return path
    except FileExistsError:
        pass
    except OSError as error:
        raise InputError(str(path), f"cannot be made: {error.strerror}") from error
    try:
        state = path.stat()
        if not stat.S_ISDIR(state.st_mode):
            raise InputError(str(path), "is not a folder")
        if state.st_uid not in (os.geteuid(), ROOT):
            raise InputError(str(path), f"belongs to another user (uid {state.st_uid})", hint="use another folder")
        if state.st_mode & 0o077 and (ours or not any(path.iterdir())):
            path.chmod(0o700)
        elif state.st_mode & 0o002:
            raise InputError(str(path), "everyone can write there", hint=f"chmod o-w {path}")
    except OSError as error:
        raise InputError(str(path), f"cannot be used: {error.strerror}") from error
    return path


def open_own(path: Path, flags: int, *, mode: int = 0o600) -> int:
    """A descriptor of a regular file of ours; O_CREAT makes it if it is not there. Raises InputError, FileNotFoundError."""
    try:
        fd = os.open(path, flags | _SAFE, mode)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "is a symbolic link" if path.is_symlink() else error.strerror
        raise InputError(str(path), f"cannot be opened: {why}", hint=_HINT if path.is_symlink() else "") from error
    state = os.fstat(fd)
    problem = ""
    if not stat.S_ISREG(state.st_mode):
        problem = "is not a file"
    elif state.st_uid not in (os.geteuid(), ROOT):
        problem = f"belongs to another user (uid {state.st_uid})"
    elif state.st_mode & 0o002:
        problem = "can be written by everyone"
    if problem:
        os.close(fd)
        raise InputError(str(path), problem, hint=_HINT)
    return fd


def read_own(path: Path, *, most_bytes: int = 1 << 20) -> bytes:
    """The contents of a file of ours, as far as `most_bytes`. Raises InputError, FileNotFoundError."""
    with os.fdopen(open_own(path, os.O_RDONLY), "rb") as stream:
        return stream.read(most_bytes)


def open_shared(path: str | Path, mode: str) -> IO[bytes]:
    """Opens a file that others may read, as far as the umask lets them, and that not everyone may write whatever the umask."""
    return open(path, mode, buffering=0, opener=lambda name, flags: os.open(name, flags, 0o664))


def make_private(path: Path) -> None:
    """Makes an empty file that only its owner can read, or checks one that is there and takes the others' rights away."""
    fd = open_own(path, os.O_RDWR | os.O_CREAT)
    try:
        if os.fstat(fd).st_uid == os.geteuid():
            os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


def write_whole(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Writes a file that has its mode from its first byte on, all or nothing. What was there under the name is replaced. Its
    contents are on the disk before it has its name: after a loss of power it is whole, or not there (yet).
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(fd, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fdatasync(fd)
    draft.rename(path)
