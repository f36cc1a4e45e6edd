"""Serves a decision component (a library of Batsim 5's C interface) as a process: `serve.py ENDPOINT LIBRARY`.

Written against the facts of the protocol alone, so that the tests do not share code with what they test.
"""

from __future__ import annotations

import ctypes
import struct
import sys

import zmq


def main(endpoint: str, path: str) -> None:
    library = ctypes.CDLL(path)
    socket = zmq.Context().socket(zmq.REP)
    socket.bind(endpoint)
    data, size, flags = ctypes.c_void_p(), ctypes.c_uint32(), ctypes.c_uint32()
    outputs = ctypes.byref(data), ctypes.byref(size)
    first = socket.recv()
    (length,) = struct.unpack_from("<I", first)
    assert length == len(first) - 4
    if library.batsim_edc_init(first[4:], length, ctypes.byref(flags), *outputs) & 0xFF:
        sys.exit(1)
    socket.send(struct.pack("<I", flags.value) + ctypes.string_at(data.value or 0, size.value))
    while True:
        request = socket.recv()
        if library.batsim_edc_take_decisions(request, len(request), *outputs) & 0xFF:
            sys.exit(1)
        socket.send(ctypes.string_at(data.value or 0, size.value))
        if b"SimulationEnds" in request:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
