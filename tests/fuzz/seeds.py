"""Inputs to begin with: what the examples and the recordings of the tests hold, and the corpus of earlier findings."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import components

GOLDEN = components.ROOT / "tests" / "golden"
CORPUS = Path(__file__).parent / "corpus"
MOST_BYTES = 3000
"""Long inputs are cut: most of their length repeats itself."""


def file(*names: str) -> list[bytes]:
    """The contents of files below tests/golden or the root of the repository."""
    found = []
    for name in names:
        path = GOLDEN / name if (GOLDEN / name).exists() else components.ROOT / name
        data = path.read_bytes()
        found.append((gzip.decompress(data) if path.suffix == ".gz" else data)[:MOST_BYTES])
    return found


def corpus(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))]


@cache
def batsim(direction: str) -> list[bytes]:
    """Messages of recorded conversations of Batsim 4, one for each kind of event."""
    found: dict[str, bytes] = {}
    for path in sorted((GOLDEN / "batsim4" / "recordings").glob("*/protocol.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["dir"] == direction and isinstance(entry["msg"], dict):
                kinds = "+".join(sorted({str(event.get("type")) for event in entry["msg"].get("events", [])}))
                found.setdefault(kinds, json.dumps(entry["msg"]).encode())
    return [text for text in found.values() if len(text) < 3 * MOST_BYTES]


@cache
def batprotocol() -> list[bytes]:
    """Messages of recorded conversations of Batsim 5, as JSON, one for each kind of event."""
    found: dict[str, bytes] = {}
    for path in sorted((GOLDEN / "batsim5" / "cases").glob("*/transcript.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            entry = json.loads(line)
            message = entry.get("msg", entry.get("message"))
            if isinstance(message, str):
                message = json.loads(message.rstrip("\0"))
            if isinstance(message, dict):
                kinds = "+".join(sorted({str(event.get("event_type")) for event in message.get("events", [])}))
                found.setdefault(kinds, json.dumps(message).encode())
    return [text for text in found.values() if len(text) < 3 * MOST_BYTES]


@cache
def qcg() -> list[bytes]:
    """Requests of recorded conversations with a QCG manager."""
    found = {b'{"request": "status"}'}
    for path in sorted((GOLDEN / "qcg").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry.get("dir") == "C->M" and "msg" in entry:
                found.add(json.dumps(entry["msg"]).encode() if not isinstance(entry["msg"], str) else entry["msg"].encode())
    return sorted(text for text in found if len(text) < MOST_BYTES)


@cache
def flux() -> list[tuple[str, bytes]]:
    """Topics and payloads of recorded conversations with Flux."""
    found: dict[str, bytes] = {}
    for path in sorted((GOLDEN / "flux").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry.get("topic") and isinstance(entry.get("payload"), dict):
                key = f"{entry['topic']} {entry.get('type')} {sorted(entry['payload'])}"
                found.setdefault(key, json.dumps(entry["payload"]).encode())
    return [(key.split()[0], text) for key, text in found.items() if len(text) < MOST_BYTES]
