"""Status files of real disBatch runs (Slurm, ssh, service mode, a killed engine): read and written back."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilothouse.dropins.disbatch.status_file import HEADER, StatusKind, parse_line

FILES = sorted(Path(__file__).with_name("disbatch").glob("*_status.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_written_back_as_it_was(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    results = [line for line in lines if line != HEADER]
    assert results
    for text in results:
        again = str(parse_line(text)).split("\t")
        was = text.split("\t")
        # Elapsed is made from times that the file holds rounded to milliseconds.
        assert abs(float(again.pop(7)) - float(was.pop(7))) < 0.0015
        assert again == was


def test_kinds_of_a_slurm_run() -> None:
    (path,) = (path for path in FILES if "slurm" in path.name)
    kinds = {parse_line(line).kind for line in path.read_text().splitlines()[1:]}
    assert {StatusKind.TASK, StatusKind.PER_ENGINE} < kinds and kinds & {StatusKind.BARRIER, StatusKind.CHECK}
