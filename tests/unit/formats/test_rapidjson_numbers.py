from __future__ import annotations

import pytest

from pilothouse.formats.rapidjson_numbers import as_read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (b"0.13763197022422913", b"0.13763197022422913"),
        (b"0.20427996590349978", b"0.20427996590349976"),  # 20427996590349978 is no double: it is rounded, and divided
        (b"0.2042799659034997800001", b"0.20427996590349976"),  # digits beyond the 17th are dropped
        (b"-0.20427996590349978e3", b"-204.27996590349977"),
        (b"12345678901234567890", b"12345678901234567890"),  # a whole number
        (b"0.1", b"0.1"),
        (b"1.0000000000000000001e400", b"1.0000000000000000001e400"),
    ],
)
def test_numbers_of_many_digits_are_rounded_as_rapidjson_rounds_them(written: bytes, read: bytes) -> None:
    assert as_read(b'{"a": [' + written + b', "0.20427996590349978"]}') == b'{"a": [' + read + b', "0.20427996590349978"]}'
