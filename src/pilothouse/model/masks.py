"""Searches in wide bitmasks, each an int: the lowest block of set bits, the lowest bits, their number, the text of a mask.

Written twice: here, and in `_masks.c` where that could be compiled, which is five to ten times as fast (0.1 µs at 512
bits) and must give the same. Placing a job costs one or two of these, a row of jobs.csv one.
"""

from __future__ import annotations

__all__ = [
    "bit_count",
    "first_block",
    "lowest_bits",
    "mask_text",
    "plain_bit_count",
    "plain_first_block",
    "plain_lowest_bits",
    "plain_mask_text",
]


def plain_first_block(mask: int, count: int) -> int:
    """The lowest block of `count` neighbouring set bits; 0 if there is none. log2(count) shifts."""
    starts, length = mask, 1
    while length < count:
        step = min(length, count - length)
        starts &= starts >> step
        length += step
    low = starts & -starts
    return (low << count) - low


def plain_lowest_bits(mask: int, count: int) -> int:
    """The `count` lowest set bits of mask.

    A block without gaps is found at once; else a window over the low bits is doubled until it holds enough, and is then
    narrowed by interpolation until it holds just as many: two or three counts of bits, whatever the width of the mask.
    """
    base = (mask & -mask).bit_length() - 1
    if count <= 0 or base < 0:
        return 0
    rest = mask >> base
    low, window = count, rest & ((1 << count) - 1)
    below = have = window.bit_count()
    width = count
    while have < count:
        if window == rest:
            return mask
        low, below = width, have
        width *= 2
        window = rest & ((1 << width) - 1)
        have = window.bit_count()
    while have != count:
        middle = low + (width - low) * (count - below) // (have - below)
        if middle == low:
            middle += 1
        part = window & ((1 << middle) - 1)
        found = part.bit_count()
        if found < count:
            low, below = middle, found
        else:
            width, window, have = middle, part, found
    return window << base


def plain_mask_text(mask: int, separator: str) -> str:
    """The set bits as ranges: 0-3 7."""
    # Adding the lowest bit to the mask turns the lowest run into one bit above it.
    parts = []
    while mask:
        low = mask & -mask
        above = mask + low
        first, last = low.bit_length() - 1, (above & -above).bit_length() - 2
        parts.append(str(first) if first == last else f"{first}-{last}")
        mask &= above
    return separator.join(parts)


def plain_bit_count(mask: int) -> int:
    """The number of set bits."""
    return mask.bit_count()


try:
    from pilothouse.model._masks import bit_count, first_block, lowest_bits, mask_text
except ImportError:
    first_block, lowest_bits = plain_first_block, plain_lowest_bits
    mask_text, bit_count = plain_mask_text, plain_bit_count
