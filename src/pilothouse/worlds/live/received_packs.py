"""The packs of engines that do not see the run's folder, as the driver writes them there."""

from __future__ import annotations

import os
from pathlib import Path

from pilothouse.access.files import open_own
from pilothouse.formats.output_pack import PACK_SUFFIX, pack_path
from pilothouse.model.errors import InputError, RunError


def sizes_of_packs(folder: Path) -> dict[str, int]:
    """Key of an engine -> how much of its pack is in the folder."""
    return {
        path.name.removeprefix("engine-").removesuffix(PACK_SUFFIX): path.stat().st_size
        for path in folder.glob(f"engine-*{PACK_SUFFIX}")
    }


def write_parts(folder: Path, parts: list[tuple[str, int, bytes]]) -> None:
    """Writes parts (key, place, bytes) and takes them off the list, each when it is written. RunError: some are left.

    A part is written at its place, so writing it twice does no harm.
    """
    while parts:
        key, place, data = parts[0]
        path = pack_path(folder, key)
        try:
            fd = open_own(path, os.O_WRONLY | os.O_CREAT)
            try:
                while data:
                    written = os.pwrite(fd, data, place)
                    place, data = place + written, data[written:]
            finally:
                os.close(fd)
        except (OSError, InputError) as error:
            raise RunError(f"{path}: cannot write: {error}") from error
        del parts[0]
