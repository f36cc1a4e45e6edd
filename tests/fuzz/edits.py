"""Damaged inputs: seeds with a few edits, as plain data, so that hypothesis can shrink them and a loop can draw them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

Edit = tuple[str, int, int, bytes]
"""What, where (any number; taken modulo the length), how long, and with which bytes."""
KINDS = ("put", "over", "cut", "twice", "flip", "end", "swap")
WORDS: tuple[bytes, ...] = (
    *(b"0", b"-1", b"1", b"-0", b"1e999", b"-1e999", b"1e-300", b"NaN", b"Infinity", b"0.5", b"99999999999999999999"),
    *(b"18446744073709551616", b"2147483648", b"-9223372036854775809", b"16777217", b"9" * 400, b"4" * 5000),
    *(b"null", b"true", b"{}", b"[]", b'""', b'"', b"'", b"{", b"}", b"[", b"]", b"(", b")", b"[" * 2000, b'{"a":' * 2000),
    *(b"\0", b"\xff", b"\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\\u0000", b"\\ud800", b"\xe2\x80\xa8", b"\r", b"\n", b"\t"),
    *(b"%s", b"{0}", b"{task}", b"${x}", b"$x", b"../", b"/dev/zero", b"&#0;", b"<!DOCTYPE a>", b"-", b",", b" ", b":", b";"),
    *(b"0-3", b"3-0", b"0-16777216", b"[1-3]", b"[1-1000000]", b"a" * 3000, b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x7f"),
)


def damaged(seed: bytes, edits: Sequence[Edit]) -> bytes:
    """The seed with these edits, one after the other."""
    text = bytearray(seed)
    for kind, place, length, word in edits:
        at = place % (len(text) + 1)
        end = min(len(text), at + length)
        if kind == "put":
            text[at:at] = word
        elif kind == "over":
            text[at:end] = word
        elif kind == "cut":
            del text[at:end]
        elif kind == "twice":
            text[at:at] = text[at:end]
        elif kind == "flip" and at < len(text):
            text[at] ^= 1 << length % 8
        elif kind == "end":
            del text[at:]
        elif kind == "swap" and at < len(text):
            text[at] = word[0] if word else length % 256
    return bytes(text)


def drawn(random: Random, seeds: Sequence[bytes]) -> bytes:
    """A damaged input; now and then only noise."""
    if random.random() < 0.02:
        return random.randbytes(random.randrange(200))
    edits = []
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        word = random.choice(WORDS) if random.random() < 0.7 else random.randbytes(random.randrange(1, 9))
        edits.append((random.choice(KINDS), random.randrange(1 << 20), random.choice((1, 1, 2, 4, 20, 100)), word))
    return damaged(random.choice(seeds), edits)
