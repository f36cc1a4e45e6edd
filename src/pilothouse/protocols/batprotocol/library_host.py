"""Loads one decision component (a shared library with the C interface of Batsim 5) and calls it.

Two uses. Imported, `CLibrary` calls the component in this process. Run as a program (`python library_host.py LIBRARY
METHOD FD`), it serves the calls of a parent process over a socket: a component that crashes, hangs or throws then ends
the child only. This module imports only the standard library, so that the child starts quickly.

Frames on the socket, both ways: kind (1 byte), number (u32), size (u32), payload, little endian. Requests: `I` init,
`T` take decisions, `Q` deinit. Replies: `=` (number: the flags of init, else 0), `!` (number: the component's return
value) and `?` (payload: why the component could not be called).
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys

HEAD = struct.Struct("<cII")
MOST_BYTES = 1 << 28
"""Limit on the size of a message (256 MiB)."""


class LibraryProblem(Exception):
    """The library could not be loaded or called."""


class ReturnedError(LibraryProblem):
    """A function of the component returned something other than 0."""

    def __init__(self, function: str, value: int) -> None:
        super().__init__(f"{function} returned {value}")
        self.value = value


class CLibrary:
    """One loaded component. Output buffers belong to it and live until its next call, so they are copied at once."""

    def __init__(self, path: str, method: str = "dlopen") -> None:
        full = os.path.abspath(path)
        if not os.path.exists(full):
            if "/" in path:
                raise LibraryProblem(f"no such library: {path}")
            full = path  # the loader searches for it
        try:
            library = self._load(full, method)
            self._init = library.batsim_edc_init
            self._take = library.batsim_edc_take_decisions
            self._deinit = library.batsim_edc_deinit
            self._library = library
        except (OSError, AttributeError) as problem:
            raise LibraryProblem(f"{path} is not a decision component: {problem}") from None
        text, number = ctypes.POINTER(ctypes.c_char), ctypes.POINTER(ctypes.c_uint32)
        data = ctypes.POINTER(text)
        self._init.argtypes = [ctypes.c_char_p, ctypes.c_uint32, number, data, number]
        self._take.argtypes = [ctypes.c_char_p, ctypes.c_uint32, data, number]
        self._deinit.argtypes = []
        for function in (self._init, self._take, self._deinit):
            function.restype = ctypes.c_uint8
        self._data = text()
        self._address = ctypes.c_void_p.from_buffer(self._data)
        self._size = ctypes.c_uint32()
        self._data_at = ctypes.byref(self._data)
        self._size_at = ctypes.byref(self._size)

    @staticmethod
    def _load(path: str, method: str) -> ctypes.CDLL:
        flags = os.RTLD_NOW | os.RTLD_LOCAL
        if _embeds_python(path):
            # A library that embeds Python must find the Python of this process, not load a second one. So it gets no
            # namespace of its own, and its libpython does not come before the one in the program (Debian links it in).
            return ctypes.CDLL(path, mode=flags)
        if method == "dlopen":
            return ctypes.CDLL(path, mode=flags | getattr(os, "RTLD_DEEPBIND", 0))
        libc = ctypes.CDLL(None)
        if not hasattr(libc, "dlmopen"):  # musl
            raise LibraryProblem("this system's C library has no dlmopen: load the component by dlopen")
        libc.dlmopen.argtypes = [ctypes.c_long, ctypes.c_char_p, ctypes.c_int]
        libc.dlmopen.restype = ctypes.c_void_p
        libc.dlerror.restype = ctypes.c_char_p
        handle = libc.dlmopen(-1, path.encode(), flags)  # -1: a new namespace
        if not handle:
            raise OSError((libc.dlerror() or b"dlmopen failed").decode(errors="replace"))
        return ctypes.CDLL(path, handle=handle)

    def init(self, data: bytes) -> tuple[int, bytes]:
        """The flags and the hello."""
        flags = ctypes.c_uint32()
        self._address.value = None
        self._size.value = 0
        code = self._init(data, len(data), ctypes.byref(flags), self._data_at, self._size_at)
        if code:
            raise ReturnedError("batsim_edc_init", code)
        return flags.value, self._output("batsim_edc_init")

    def take_decisions(self, message: bytes) -> bytes:
        self._address.value = None
        self._size.value = 0
        code = self._take(message, len(message), self._data_at, self._size_at)
        if code:
            raise ReturnedError("batsim_edc_take_decisions", code)
        return self._output("batsim_edc_take_decisions")

    @property
    def address(self) -> int:
        """The address of batsim_edc_take_decisions."""
        return ctypes.cast(self._take, ctypes.c_void_p).value or 0

    def deinit(self) -> None:
        """Ends the component, and flushes what it printed."""
        code = self._deinit()
        self._flush()
        if code:
            raise ReturnedError("batsim_edc_deinit", code)

    def _flush(self) -> None:
        """Flushes the streams of the component's own C and C++ libraries, which may be a second copy in this process."""
        library = self._library
        if (flush_stream := getattr(library, "_ZNSo5flushEv", None)) is not None:  # std::ostream::flush()
            for name in ("_ZSt4cout", "_ZSt4clog"):
                stream = ctypes.c_void_p.in_dll(library, name)
                if stream.value:  # it is set up only where something uses it
                    flush_stream(ctypes.byref(stream))
        if (flush := getattr(library, "fflush", None)) is not None:
            flush(None)

    def _output(self, function: str) -> bytes:
        size = self._size.value
        if not self._address.value or not size:
            raise LibraryProblem(f"{function} gave no buffer")
        if size > MOST_BYTES:
            raise LibraryProblem(f"{function} gave a buffer of {size} bytes; at most {MOST_BYTES} are read")
        return self._data[:size]  # type: ignore[return-value]  # a slice of characters is bytes


def _embeds_python(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return b"libpython3" in file.read(MOST_BYTES)
    except OSError:
        return False


def receive_exactly(link: socket.socket, size: int) -> bytes:
    """`size` bytes, or fewer if the other side has closed the link."""
    data = link.recv(size)
    if len(data) == size or not data:
        return data
    parts = bytearray(data)
    while len(parts) < size:
        data = link.recv(size - len(parts))
        if not data:
            break
        parts += data
    return bytes(parts)


def serve(path: str, method: str, link: socket.socket) -> None:
    """Answers requests until `Q`, or until the parent closes the link."""
    library: CLibrary | None = None
    while True:
        head = receive_exactly(link, HEAD.size)
        if len(head) < HEAD.size:
            return
        kind, _, size = HEAD.unpack(head)
        payload = receive_exactly(link, size) if size else b""
        number, answer, sign = 0, b"", b"="
        try:
            if kind == b"I":
                library = CLibrary(path, method)
                number, answer = library.init(payload)
            elif library is None:
                raise LibraryProblem("called before it was initialised")
            elif kind == b"T":
                answer = library.take_decisions(payload)
            else:
                library.deinit()
        except ReturnedError as problem:
            sign, number, answer = b"!", problem.value, str(problem).encode()
        except LibraryProblem as problem:
            sign, answer = b"?", str(problem).encode()
        link.sendall(HEAD.pack(sign, number, len(answer)) + answer)
        if kind == b"Q":
            return


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[3])) as parent:
        serve(sys.argv[1], sys.argv[2], parent)
    # Exit handlers of the library must not change the exit code of this process.
    os._exit(0)
