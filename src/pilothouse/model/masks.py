"""Searches in wide bitmasks, each an int: the lowest block of set bits, the lowest bits, their number, the text of a mask.
FreeUnits is a mask that changes, and from which jobs get their units.

Written twice: here, and in `_masks.c` where that could be compiled, which is five to ten times as fast (0.1 µs at 512
bits) and must give the same. A start and an end cost one change of FreeUnits each, a row of jobs.csv one text.
"""

from __future__ import annotations

__all__ = [
    "FreeUnits",
    "PlainFreeUnits",
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
        part = window & ((1 << middle) - 1)
        found = part.bit_count()
        if found < count:
            low, below = middle, found
        else:
            width, window, have = middle, part, found
    return window << base


def plain_mask_text(mask: int, separator: str, shift: int = 0, /) -> str:
    """The set bits as ranges: 0-3 7. Each number is so much larger as `shift` says."""
    # Adding the lowest bit to the mask turns the lowest run into one bit above it.
    parts = []
    while mask:
        low = mask & -mask
        above = mask + low
        first, last = low.bit_length() - 1 + shift, (above & -above).bit_length() - 2 + shift
        parts.append(str(first) if first == last else f"{first}-{last}")
        mask &= above
    return separator.join(parts)


def plain_bit_count(mask: int) -> int:
    """The number of set bits."""
    return mask.bit_count()


class PlainFreeUnits:
    """The units that are free, from which jobs take some. Compiled, a change costs as much as the job is wide, and a search
    as much as the logarithm of the number of units; `mask` is made when it is asked for. Units are taken and given back as
    bits and a shift, as an IdSet has them: on a wide cluster the bits below the first unit are not kept."""

    def __init__(self, mask: int) -> None:
        self.mask = mask

    def take_block(self, count: int) -> tuple[int, int]:
        """Takes the lowest block of `count` neighbouring units, else as `take_lowest` does."""
        taken = plain_first_block(self.mask, count) or plain_lowest_bits(self.mask, count)
        self.mask ^= taken
        return taken, 0

    def take_lowest(self, count: int) -> tuple[int, int]:
        """Takes the `count` lowest units, or all if there are fewer."""
        taken = plain_lowest_bits(self.mask, count)
        self.mask ^= taken
        return taken, 0

    def take(self, bits: int, shift: int = 0, /) -> int:
        """Takes these units, as far as they are free. Returns how many were."""
        taken = bits << shift & self.mask
        self.mask ^= taken
        return taken.bit_count()

    def give(self, bits: int, shift: int = 0, /) -> int:
        """These units are free. Returns how many were not."""
        mask = bits << shift
        count = (mask & ~self.mask).bit_count()
        self.mask |= mask
        return count


FreeUnits: type[PlainFreeUnits]
try:
    from pilothouse.model import _masks
    from pilothouse.model._masks import bit_count, first_block, lowest_bits, mask_text
except ImportError:
    FreeUnits = PlainFreeUnits
    first_block, lowest_bits = plain_first_block, plain_lowest_bits
    mask_text, bit_count = plain_mask_text, plain_bit_count
else:
    FreeUnits = _masks.FreeUnits
