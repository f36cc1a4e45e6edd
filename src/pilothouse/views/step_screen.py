"""The screen of `pilothouse step`: one moment of a schedule, on a terminal of 80 x 24 or more, and the keys that move it.

In: Moments, keys. Out: lines of text that fit the size; what does not fit is counted.
"""

from __future__ import annotations

from math import inf

from pilothouse.views.clock import clock
from pilothouse.views.documents import MomentDocument
from pilothouse.views.keyboard import Prompt
from pilothouse.views.moments import Moments, local, some

KEYS = "right/left next, back   n/p next, last decision   j job   t date   up/down scroll   q quit"


class StepScreen:
    """Where the reader stands."""

    def __init__(self, moments: Moments, index: int = 0) -> None:
        self.moments = moments
        self.index = index
        self.scroll = 0
        self.message = ""
        self.prompt: Prompt | None = None

    def press(self, key: str) -> bool:
        """Does what a key asks for; False: quit."""
        if self.prompt is not None:
            entered = self.prompt.press(key)
            if entered:
                self._go(self.prompt)
            if entered is not None:
                self.prompt = None
            return True
        self.message = ""
        last = len(self.moments) - 1
        if key in ("q", "escape"):
            return False
        if key in ("j", "t"):
            self.prompt = Prompt("job: " if key == "j" else "date in seconds: ")
        elif key in ("down", "page down"):
            self.scroll += 1 if key == "down" else 10
        elif key in ("up", "page up"):
            self.scroll = max(0, self.scroll - (1 if key == "up" else 10))
        elif key in ("n", "p"):
            self._to_decision(1 if key == "n" else -1)
        else:
            moves = {"right": 1, " ": 1, "enter": 1, "left": -1, "backspace": -1, "home": -last, "end": last}
            self._to(self.index + moves.get(key, 0))
        return True

    def _to(self, index: int) -> None:
        wanted = min(max(0, index), len(self.moments) - 1)
        if wanted != self.index:
            self.index, self.scroll = wanted, 0

    def _to_decision(self, step: int) -> None:
        found = self.moments.next_decision(self.index, step)
        if found is None:
            self.message = "no decision follows" if step > 0 else "no decision before"
        else:
            self._to(found)

    def _go(self, prompt: Prompt) -> None:
        if prompt.label.startswith("job"):
            found = self.moments.index_of(prompt.text)
        else:
            try:
                found = self.moments.index_at(float(prompt.text))
            except ValueError:
                found = None
        if found is None:
            self.message = f"there is no {prompt.label.partition(' ')[0].rstrip(':')} {prompt.text!r}"
        else:
            self._to(found)

    def lines(self, width: int, height: int) -> list[str]:
        """The whole screen, foot included."""
        foot = self.message or KEYS
        if self.prompt is not None:
            foot = f"{self.prompt.label}{self.prompt.text}_"
        shown = moment_lines(self.moments[self.index], self.moments.schedule.name, width, height - 1, self.scroll)
        return [*shown, *[""] * (height - 1 - len(shown)), foot[:width]]


def moment_lines(moment: MomentDocument, name: str, width: int, height: int | None = None, scroll: int = 0) -> list[str]:
    """One moment; without a height, all of it."""
    used = moment.units - moment.free
    head = f"{name}  moment {moment.number + 1:,} of {moment.moments:,}  at {moment.date:,.10g} s ({clock(moment.date)})"
    label = f" {used:,} of {moment.units:,} units in use, {moment.free:,} free"
    cells = max(8, width - len(label))
    filled = round(cells * used / moment.units) if moment.units else 0
    lines = [head[:width], "█" * filled + "░" * (cells - filled) + label, ""]
    lines += _happened(moment, width)
    lines += [line[:width] for line in _decisions(moment)]
    room = inf if height is None else max(4, height - len(lines) - 4)
    running_room = inf if height is None else max(1, min(len(moment.running), int(room) // 3))
    queue_room = room if height is None else max(1, int(room) - int(running_room))
    lines += ["", f"waiting: {len(moment.waiting):,}" + _columns(bool(moment.waiting))]
    lines += _cut(
        [
            f"  {local(job.job):<16.16}{job.units:>8,}{clock(job.waited):>14}{_length(job.walltime):>14}   {job.why}"[:width]
            for job in moment.waiting
        ],
        queue_room, scroll,
    )  # fmt: skip
    lines.append(f"running: {len(moment.running):,}")
    lines += _cut(
        [
            f"  {local(job.job):<16.16}{job.units:>8,}  on {job.allocated}  {_until(job.expected_end, moment.date)}"[:width]
            for job in moment.running
        ],
        running_room, 0,
    )  # fmt: skip
    return lines if height is None else lines[:height]


def _columns(there: bool) -> str:
    return "".rjust(6) + "   units        waited      walltime" if there else ""


def _happened(moment: MomentDocument, width: int) -> list[str]:
    parts = [
        f"{what} {some(jobs, 5)}"
        for what, jobs in (("ended", moment.ended), ("submitted", moment.submitted), ("refused", moment.refused))
        if jobs
    ]
    return [f"happened  {'; '.join(parts) or 'nothing but decisions'}"[:width]]


def _decisions(moment: MomentDocument) -> list[str]:
    if not moment.decided:
        return ["decided   nothing to start"]
    lines = []
    for place, job in enumerate(moment.decided[:4]):
        label = "decided   " if not place else " " * 10
        lines.append(f"{label}start {local(job.job)} on {job.allocated} ({job.units:,} units): {job.why}")
    if len(moment.decided) > 4:
        lines.append(f"{'':10}and {len(moment.decided) - 4:,} more")
    return lines


def _cut(lines: list[str], room: float, scroll: int) -> list[str]:
    """As many lines as fit, from `scroll` on; the last one says what is left out."""
    if len(lines) <= room:
        return lines
    first = min(scroll, len(lines) - int(room))
    shown = lines[first : first + int(room)]
    left = len(lines) - first - len(shown)
    if left or first:
        shown[-1] = f"  … {first:,} above, {left + 1:,} below"
    return shown


def _length(seconds: float | None) -> str:
    return "-" if seconds is None else clock(seconds)


def _until(date: float | None, now: float) -> str:
    return "" if date is None else f"at most {clock(date - now)} more"
