"""Builds the shared library of `pilothouse edc-library`: C functions that call a policy in an embedded Python.

In: the name of a policy. Out: a library with the C interface of Batsim 5. Compiled by cffi; what the embedded Python
runs is `Embedded` below.
"""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tempfile
import traceback
from pathlib import Path
from typing import Any

from pilothouse.model.errors import InputError, PilothouseError

_INTERFACE = """
uint8_t batsim_edc_init(const uint8_t *, uint32_t, uint32_t *, uint8_t **, uint32_t *);
uint8_t batsim_edc_take_decisions(const uint8_t *, uint32_t, uint8_t **, uint32_t *);
uint8_t batsim_edc_deinit(void);
"""

# Batsim loads us without making our symbols global, and Python's extension modules look for Python's symbols globally. In a
# namespace of our own (dlmopen) they are global already, and asking for it would crash the loader. A Python that is
# started by cffi must find cffi's own module before any code of ours runs.
_SOURCE = """
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
__attribute__((constructor)) static void prepare_python(void)
{
#ifdef LM_ID_BASE
    Lmid_t space = LM_ID_BASE;
    void *python = dlopen("%(python)s", RTLD_NOW);
    if (python && !dlinfo(python, RTLD_DI_LMID, &space) && space == LM_ID_BASE)
#endif
        dlopen("%(python)s", RTLD_NOW | RTLD_GLOBAL);
    if (!Py_IsInitialized()) setenv("PYTHONPATH", "%(path)s", 1);
}
"""

_START = """
import sys
for entry in reversed(%(path)r):
    if entry not in sys.path:
        sys.path.insert(0, entry)
from %(module)s import ffi
from pilothouse.launch.edc_build import Embedded
_embedded = Embedded(ffi, %(policy)r, %(as_json)r)
batsim_edc_init = ffi.def_extern(name="batsim_edc_init", error=1)(_embedded.init)
batsim_edc_take_decisions = ffi.def_extern(name="batsim_edc_take_decisions", error=1)(_embedded.take_decisions)
batsim_edc_deinit = ffi.def_extern(name="batsim_edc_deinit", error=1)(_embedded.deinit)
"""


def build(policy: str, output: str, *, as_json: bool = False) -> None:
    """Compiles the library; InputError says what is missing."""
    try:
        import cffi
    except ImportError:
        raise InputError("edc-library", "cffi is not installed", hint="pip install pilothouse[edc]") from None
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        raise InputError(
            sys.executable, "this Python has no shared library to embed", hint="use one built with --enable-shared"
        )
    target = Path(output).absolute()
    if not target.parent.is_dir():
        raise InputError(output, "its folder does not exist")
    module = "_pilothouse_" + "".join(c if c.isalnum() else "_" for c in target.stem)
    file, colon, rest = policy.partition(":")
    if file.endswith(".py"):  # the library may be loaded from anywhere
        policy = f"{Path(file).absolute()}{colon}{rest}"
    library = Path(str(sysconfig.get_config_var("LIBDIR"))) / str(sysconfig.get_config_var("INSTSONAME"))
    path = [entry for entry in sys.path if entry and Path(entry).exists()]
    maker = cffi.FFI()
    maker.embedding_api(_INTERFACE)
    maker.set_source(module, _SOURCE % {"python": library, "path": ":".join(path)})
    start = {"path": path, "module": module, "policy": policy, "as_json": as_json}
    maker.embedding_init_code(_START % start)
    with tempfile.TemporaryDirectory() as work:
        try:
            made = maker.compile(tmpdir=work, target=f"{module}.*", verbose=False)
        except Exception as problem:  # cffi passes on whatever the compiler's driver raises
            raise InputError(output, f"cannot be compiled: {problem}", hint="is a C compiler installed?") from None
        shutil.copyfile(made, target)
    target.chmod(0o755)


class Embedded:
    """What runs inside the library: one component, and the buffers that live until its next call."""

    def __init__(self, ffi: Any, policy: str, as_json: bool) -> None:
        self._ffi = ffi
        self._policy = policy
        self._as_json = as_json
        self._component: Any = None
        self._kept: Any = None

    def init(self, data: Any, size: int, flags: Any, reply: Any, reply_size: Any) -> int:
        from pilothouse.launch import naming
        from pilothouse.protocols.batprotocol.codec import Format
        from pilothouse.protocols.batprotocol.scheduler import Component

        try:
            name = bytes(self._ffi.buffer(data, size)).decode().strip("\0 \n") or self._policy
            form = Format.JSON if self._as_json else Format.BINARY
            self._component = Component(naming.policy(name), name, form)
            flags[0], hello = self._component.init()
        except Exception as problem:
            return _complain(problem)
        self._hand_over(hello, reply, reply_size)
        return 0

    def take_decisions(self, data: Any, size: int, reply: Any, reply_size: Any) -> int:
        try:
            answer = self._component.take_decisions(self._ffi.buffer(data, size)[:])
        except Exception as problem:
            return _complain(problem)
        self._hand_over(answer, reply, reply_size)
        return 0

    def deinit(self) -> int:
        self._component = self._kept = None
        return 0

    def _hand_over(self, answer: bytes, reply: Any, reply_size: Any) -> None:
        kept = self._kept = self._ffi.from_buffer(answer)
        reply[0] = self._ffi.cast("uint8_t *", kept)
        reply_size[0] = len(answer)


def _complain(problem: Exception) -> int:
    """An error has no other way out of a C function than its return value and stderr."""
    if isinstance(problem, PilothouseError):
        print(f"pilothouse: {problem}", file=sys.stderr)
    else:
        traceback.print_exception(problem)
    return 1
