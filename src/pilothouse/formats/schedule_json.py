"""schedule.json as Batsim 5 writes it: an object with sorted keys, whole numbers plain, others with six decimals."""

from __future__ import annotations

import msgspec


def encode(values: dict[str, float | int | str]) -> str:
    """The text of the file. Averages over no job are 0, not nan: the file must stay JSON."""
    lines = []
    for key in sorted(values):
        value = values[key]
        if isinstance(value, str):
            text = msgspec.json.encode(value).decode()
        elif isinstance(value, int):
            text = str(value)
        else:
            text = f"{value:f}"
        lines.append(f'  "{key}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"
