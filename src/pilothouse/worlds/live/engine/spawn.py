"""Starting one process cheaply: vfork and exec, no shell where a line needs none, no wrapper programs.

In: what to run, its environment, its three descriptors. Out: a pid that leads its own session, so that a signal to the
group reaches the grandchildren. _spawn.c starts a program and waits for it in one call; `spawn` is its plain twin.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
from collections.abc import Callable, Sequence

BASH, PLAIN_SHELL = "/bin/bash", "/bin/sh"

_PLAIN = re.compile(r"[A-Za-z0-9_./,:@%+-][A-Za-z0-9_./,:@%+=-]*(?:[ \t]+[A-Za-z0-9_./,:@%+=-]+)*[ \t]*")
"""Words that every shell hands on as they stand."""

_SHELL_WORDS = frozenset((
    ".", ":", "alias", "bg", "bind", "break", "builtin", "caller", "case", "cd", "command", "compgen",
    "complete", "compopt", "continue", "coproc", "declare", "dirs", "disown", "do", "done", "elif", "else",
    "enable", "esac", "eval", "exec", "exit", "export", "fc", "fg", "fi", "for", "function", "getopts",
    "hash", "help", "history", "if", "in", "jobs", "kill", "let", "local", "logout", "mapfile", "popd",
    "pushd", "pwd", "read", "readarray", "readonly", "return", "select", "set", "shift", "shopt", "source",
    "suspend", "test", "then", "time", "times", "trap", "type", "typeset", "ulimit", "umask", "unalias",
    "unset", "until", "wait", "while", "printf",
))  # fmt: skip
"""Bash keywords and builtins whose programs of the same name, if any, behave differently."""


class SpawnError(Exception):
    """The program could not be started; the text says why."""


def find_shell(path: str) -> str:
    """Bash; the plain shell where there is none (Alpine). `path` is searched for systems that keep it elsewhere (NixOS)."""
    return BASH if os.path.exists(BASH) else shutil.which("bash", path=path) or PLAIN_SHELL


class Launcher:
    """Decides how a line is run, and remembers where programs are."""

    def __init__(self, path: str, *, always_shell: bool = False) -> None:
        self._path = path
        self._always_shell = always_shell
        self._where: dict[str, bytes | None] = {}
        self._shell = os.fsencode(find_shell(path))

    def argv(self, line: str) -> list[bytes]:
        """The arguments to execute for a task line; the first is an absolute path."""
        if not self._always_shell and _PLAIN.fullmatch(line):
            words = line.split()
            program = self.find(words[0])
            if program is not None and words[0] not in _SHELL_WORDS and "=" not in words[0]:
                return [program, *map(os.fsencode, words[1:])]
        return [self._shell, b"-c", os.fsencode(line)]

    def find(self, name: str) -> bytes | None:
        """The program's path; None where there is none (a shell then says so in its own words)."""
        try:
            return self._where[name]
        except KeyError:
            found = shutil.which(name, path=self._path)
            where = os.fsencode(os.path.abspath(found)) if found and "/" not in name else found and os.fsencode(found)
            self._where[name] = where or None
            return self._where[name]


_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
Fds = tuple[int, int, int]
"""stdin, stdout, stderr of a child."""


Native = Callable[[list[bytes], list[bytes], int, int, int, int, int, int, int], tuple[int, int, int, int, float, int]]


def find_native() -> Native | None:
    """_spawn.c; None where it is not built."""
    try:
        from pilothouse.worlds.live.engine._spawn import run  # type: ignore[import-not-found]
    except ImportError:
        return None
    found: Native = run
    return found


def spawn(argv: list[bytes], env: Sequence[bytes], fds: Fds) -> int:
    """The new pid; minus the error number if the program cannot be executed, as the compiled twin has it."""
    variables = dict(entry.split(b"=", 1) for entry in env)
    # Other descriptors are close-on-exec throughout (PEP 446).
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for target, source in enumerate(fds)]
    try:
        return os.posix_spawn(argv[0], argv, variables, file_actions=actions, setsid=True, setsigdef=_IGNORED_BY_PYTHON)
    except OSError as error:
        return -(error.errno or errno.EIO)
