"""A compiled module is used only if it was built from the source that is there now."""

from __future__ import annotations

import sys
from importlib import import_module, invalidate_caches
from pathlib import Path
from zlib import crc32

import pytest

from pilothouse.model.compiled import compiled

SOURCE = "WHO = 'plain'\n"


@pytest.mark.parametrize(
    ("built_from", "expected"), [(SOURCE, "compiled"), (SOURCE + "# edited since", "plain"), (None, "plain")]
)
def test_only_what_is_current_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, built_from: str | None, expected: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    package = tmp_path / "a_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "thing.py").write_text(SOURCE)
    if built_from is not None:
        (package / "_thing.py").write_text(f"WHO = 'compiled'\nSOURCE = {crc32(built_from.encode())}\n")
    invalidate_caches()
    try:
        import_module("a_package.thing")
        assert compiled("a_package.thing", "WHO") == expected
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "a_package"]:
            del sys.modules[name]
