from collections.abc import Callable

from pilothouse.model.job import Job

def shuffle(items: list[Job], words: bytes, at: int, more: Callable[[], bytes]) -> tuple[bytes, int]: ...
