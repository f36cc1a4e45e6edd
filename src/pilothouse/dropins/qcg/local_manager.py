"""Our manager as the service that qcg-pilotjob's `LocalManager` starts for a program.

In: the arguments of qcg-pm-service. Out: a process with the methods of `qcg.pilotjob.service.QCGPMServiceProcess`, and the
address at which its manager takes requests.

It needs the standard library alone: the Python of a program that uses qcg-pilotjob may have nothing of ours. `install` makes
the real LocalManager use it in programs whose imports cannot be changed; the sitecustomize.py of libexec/qcg/python, and that of
`pilothouse shims --qcg`, call it by `take_over`.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

COMMAND_VARIABLE = "PILOTHOUSE_QCG_SERVICE"
"""The command that starts a manager, where the one that is found is not the right one."""
END_S = 60.0
"""How long a manager may take to end its jobs. Those that ignore TERM are killed after ten seconds."""
_PROGRAM = "import sys; sys.path.append({!r}); from pilothouse.cli.qcg import main; main()"
_SOURCES = Path(__file__).resolve().parents[3]
_SERVICE = "qcg.pilotjob.service"


class AddressQueue(Protocol):
    """Where LocalManager waits for the address."""

    def put(self, item: dict[str, object]) -> None: ...


def service_command() -> list[str]:
    """The command of a manager: this Python if it has what we need, else the source tree's own."""
    given = os.environ.get(COMMAND_VARIABLE)
    if given:
        return shlex.split(given)
    script = _SOURCES.parent / "libexec" / "qcg" / "qcg-pm-service"
    if importlib.util.find_spec("msgspec") is None and script.exists():
        return [str(script)]
    # Not by PYTHONPATH: the jobs would inherit it.
    return [sys.executable, "-c", _PROGRAM.format(str(_SOURCES))]


class ServiceProcess:
    """A manager in a process of its own. `address` is "" until it takes requests, and for ever if it ends before; then `problem`
    says why."""

    def __init__(self, args: Sequence[str] = (), queue: AddressQueue | None = None) -> None:
        self.args = [str(argument) for argument in args]
        self.address = ""
        self.problem = ""
        self._queue = queue
        self._process: subprocess.Popen[bytes] | None = None
        self._known = threading.Event()

    def start(self) -> None:
        read_fd, write_fd = os.pipe()
        command = [*service_command(), *self.args, "--address-fd", str(write_fd)]
        try:
            self._process = subprocess.Popen(command, pass_fds=(write_fd,), stdin=subprocess.DEVNULL)
        except OSError:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        threading.Thread(target=self._hear, args=(read_fd,), daemon=True).start()

    def _hear(self, read_fd: int) -> None:
        """Waits for the address, or for the end of the process. Both are told in the words that LocalManager expects."""
        with open(read_fd, encoding="utf-8") as stream:
            text = stream.read()
        if text:
            said = json.loads(text)
        else:
            assert self._process is not None
            said = {"error": f"the service ended with code {self._process.wait()} before it took requests"}
        self.address = said.get("zmq_addresses", [""])[0]
        self.problem = said.get("error", "")
        if self._queue is not None:
            self._queue.put(said)
        self._known.set()

    def wait_for_address(self, timeout_s: float) -> str:
        """The address; "" if there is none within this time, or if the process ended."""
        self._known.wait(timeout_s)
        return self.address

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def exitcode(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def is_alive(self) -> bool:
        """Also while the reason for its end is on its way to LocalManager, which reads no queue of the dead."""
        if self._process is None:
            return False
        return not self._known.is_set() or self._process.poll() is None

    def join(self, timeout: float | None = None) -> None:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)

    def terminate(self) -> None:
        """Returns when it has ended: LocalManager.finish() ends with this call, and its program may remove the folder then."""
        if self._process is not None:
            self._process.terminate()
            self.join(END_S)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


# ---- programs whose imports cannot be changed


def take_over(here: str) -> None:
    """For the sitecustomize.py of folder `here`, which PYTHONPATH names: Python runs it before the program. Other files of that
    name are run as well, and children do not inherit the folder.
    """
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in entries if os.path.abspath(entry or ".") != here]
    os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    if not any(kept):
        del os.environ["PYTHONPATH"]
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    own = sys.modules.pop("sitecustomize")
    with contextlib.suppress(ImportError):
        importlib.import_module("sitecustomize")
    sys.modules.setdefault("sitecustomize", own)
    install()


def install() -> None:
    """From now on the real LocalManager of this process starts our manager."""
    if _SERVICE in sys.modules:
        _replace(sys.modules[_SERVICE])
    else:
        sys.meta_path.insert(0, _Finder())


def _replace(module: ModuleType) -> None:
    module.QCGPMServiceProcess = ServiceProcess  # type: ignore[attr-defined]


class _Finder(MetaPathFinder):
    """Finds the module of the real service as ever, and replaces one class of it when it has been loaded."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _SERVICE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _replace(module)
