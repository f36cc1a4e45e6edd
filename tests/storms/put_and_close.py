"""disBatch's own client connects, puts and closes at once, many times: `python -m tests.storms.put_and_close --times 1000`.

In: a Python with disBatch, how often, how many busy processes beside it. Out: how many values the service does not have.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from pilothouse.worlds.live.services.kvs import Value
from pilothouse.worlds.live.services.kvs_server import KvsServer

_CLIENT = """
import sys
from disbatch.kvsstcp import KVSClient
for number in range(int(sys.argv[2])):
    kvs = KVSClient(sys.argv[1])
    kvs.put('value', str(number), False)
    kvs.close()
"""
_SETTLE_S = 5.0


class Outcome(NamedTuple):
    lost: int
    refused: int
    took_s: float


def put_and_close(python: Path, times: int, *, load: int) -> Outcome:
    """The service trusts programs of this user only; the clients know no secret."""
    busy = [multiprocessing.get_context("fork").Process(target=_spin, daemon=True) for _ in range(load)]
    for process in busy:
        process.start()
    received: list[Value] = []
    began = time.monotonic()
    try:
        with KvsServer() as server:
            server.listen("value", received.append)
            subprocess.run([python, "-c", _CLIENT, server.address, str(times)], check=True, timeout=600)
            deadline = time.monotonic() + _SETTLE_S + load
            while len(received) + server.refused < times and time.monotonic() < deadline:
                time.sleep(0.01)
            took_s = time.monotonic() - began
        return Outcome(times - len({value.data for value in received}), server.refused, took_s)
    finally:
        for process in busy:
            process.terminate()
            process.join()


def _spin() -> None:
    while True:
        sum(range(1000))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--load", type=int, default=10)
    parser.add_argument("--python", type=Path, default=Path(".venvs/disbatch/bin/python"), help="one that has disBatch")
    asked = parser.parse_args()
    seen = put_and_close(asked.python, asked.times, load=asked.load)
    print(f"{asked.times} times put and closed beside {asked.load} busy processes, {seen.took_s:.1f} s:", end=" ")
    print(f"{seen.lost} lost, {seen.refused} refused")
    return 1 if seen.lost else 0


if __name__ == "__main__":
    sys.exit(main())
