"""A scheduler as somebody would write it from the RFCs alone: standard library only, no word of ours, no extension.

First come, first served over whole cores, in the specification's dialect: an empty hello, mode `single` or `unlimited`,
jobspec from the KVS, R committed before the answer, every free answered. `--bad` gives every job core 0 of rank 0.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
import sys
import time

REQUEST, RESPONSE = 1, 2


class Wire:
    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + 20
        while True:
            try:
                self.socket.connect(path)
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        if self.read(1) != b"\0":
            sys.exit("refused")
        self.tag = 0
        self.waiting: list[tuple] = []

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                sys.exit(0)
            data += more
        return data

    def send(self, kind: int, topic: str, payload: object, aux: int, tag: int, routes: list[bytes] | None) -> None:
        flags = 1 | (2 if payload is not None else 0) | (8 if routes is not None else 0)
        parts = [*routes, b""] if routes is not None else []
        parts.append(topic.encode() + b"\0")
        if payload is not None:
            parts.append(json.dumps(payload).encode() + b"\0")
        parts.append(struct.pack(">BBBBIIII", 0x8E, 1, kind, flags, 0xFFFFFFFF, 0, aux, tag))
        body = b"".join((bytes([len(p)]) if len(p) < 255 else b"\xff" + struct.pack(">I", len(p))) + p for p in parts)
        self.socket.sendall(struct.pack("=I", 0xFFEE0012) + struct.pack(">I", len(body)) + body)

    def receive(self) -> tuple:
        magic, length = self.read(4), struct.unpack(">I", self.read(4))[0]
        assert struct.unpack("=I", magic)[0] == 0xFFEE0012
        body, parts = self.read(length), []
        while body:
            size, body = body[0], body[1:]
            if size == 255:
                size, body = struct.unpack(">I", body[:4])[0], body[4:]
            parts.append(body[:size])
            body = body[size:]
        _, _, kind, flags, _, rolemask, aux, tag = struct.unpack(">BBBBIIII", parts.pop())
        # libflux drops what does not come from the instance's owner
        assert rolemask & 1
        payload = json.loads(parts.pop().rstrip(b"\0")) if flags & 2 and not (kind == RESPONSE and aux) else None
        topic = parts.pop().rstrip(b"\0").decode()
        return kind, topic, payload, aux, tag, parts[:-1] if flags & 8 else None

    def call(self, topic: str, payload: object = None) -> object:
        self.tag += 1
        self.send(REQUEST, topic, payload, 0xFFFFFFFF, self.tag, None)
        while True:
            message = self.receive()
            if message[0] == RESPONSE and message[4] == self.tag:
                if message[3]:
                    sys.exit(f"{topic}: errno {message[3]}")
                return message[2]
            self.waiting.append(message)

    def next(self) -> tuple:
        return self.waiting.pop(0) if self.waiting else self.receive()


def key(job_id: int, name: str) -> str:
    digits = f"{job_id:016x}"
    return f"job.{digits[:4]}.{digits[4:8]}.{digits[8:12]}.{digits[12:]}.{name}"


def ids(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(",") if text else []:
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def main() -> None:
    path, mode, bad = sys.argv[1], sys.argv[2], "--bad" in sys.argv
    wire = Wire(path)
    wire.call("service.add", {"service": "sched"})
    inventory = wire.call("resource.acquire")["resources"]["execution"]
    free = {
        (rank, core)
        for entry in inventory["R_lite"]
        for rank in ids(entry["rank"])
        for core in ids(entry["children"]["core"])
    }
    total = len(free)
    held: dict[int, set] = {}
    hello = wire.call("job-manager.sched-hello")
    assert list(hello) == ["alloc"]
    for job in hello["alloc"]:
        value = wire.call("kvs.lookup", {"key": key(job["id"], "R"), "namespace": "primary", "flags": 0})
        resources = json.loads(base64.b64decode(value["val"]["data"]))
        held[job["id"]] = {
            (rank, core)
            for entry in resources["execution"]["R_lite"]
            for rank in ids(entry["rank"])
            for core in ids(entry["children"]["core"])
        }
        free -= held[job["id"]]
    assert wire.call("job-manager.sched-ready", {"mode": mode}) is None
    queue: list[tuple[int, int, list]] = []
    while True:
        kind, topic, payload, _, tag, routes = wire.next()
        if kind != REQUEST:
            continue
        if topic == "sched.alloc":
            value = wire.call("kvs.lookup", {"key": key(payload["id"], "jobspec"), "namespace": "primary", "flags": 0})
            slot = json.loads(base64.b64decode(value["val"]["data"]))["resources"][0]
            count = slot["count"] * slot["with"][0]["count"]
            if count > total:
                wire.send(RESPONSE, topic, {"id": payload["id"], "type": 2, "note": "too large"}, 0, 0, routes)
            else:
                queue.append((payload["id"], count, routes))
        elif topic == "sched.cancel":
            for entry in [entry for entry in queue if entry[0] == payload["id"]]:
                queue.remove(entry)
                wire.send(RESPONSE, "sched.alloc", {"id": entry[0], "type": 3}, 0, 0, entry[2])
        elif topic == "sched.free":
            free |= held.pop(payload["id"], set())
            wire.send(RESPONSE, topic, {"id": payload["id"]}, 0, 0, routes)
        elif topic != "sched.prioritize":
            wire.send(RESPONSE, topic, None, 38, tag, routes)
        while queue and queue[0][1] <= len(free):
            job_id, count, routes = queue.pop(0)
            held[job_id] = {(0, 0)} if bad else set(sorted(free)[:count])
            free -= held[job_id]
            ranks = sorted({rank for rank, _ in held[job_id]})
            lite = [
                {"rank": str(r), "children": {"core": ",".join(str(c) for q, c in sorted(held[job_id]) if q == r)}}
                for r in ranks
            ]
            resources = {"version": 1, "execution": {"R_lite": lite, "starttime": 0, "expiration": 0}}
            data = base64.b64encode(json.dumps(resources).encode()).decode()
            entry = {"key": key(job_id, "R"), "flags": 0, "dirent": {"ver": 1, "type": "val", "data": data}}
            wire.call("kvs.commit", {"namespace": "primary", "flags": 0, "ops": [entry]})
            wire.send(RESPONSE, "sched.alloc", {"id": job_id, "type": 0}, 0, 0, routes)


if __name__ == "__main__":
    main()
