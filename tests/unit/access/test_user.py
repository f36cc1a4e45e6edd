"""Users without an entry in passwd(5), as containers have them."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilothouse.access.user import has_name, user_name
from pilothouse.dropins.qcg.run import _system

NAMELESS = 54321


@pytest.fixture
def nameless() -> Iterator[None]:
    if os.getuid() != 0:
        pytest.skip("only root can act as another user")
    os.seteuid(NAMELESS)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.usefixtures("nameless")
def test_a_user_without_a_name_is_named_by_its_number() -> None:
    assert user_name() == str(NAMELESS)
    assert not has_name()


@pytest.mark.usefixtures("nameless")
def test_a_qcg_manager_of_such_a_user_has_an_account() -> None:
    assert _system("x", Path("/"), None, file=True).account == str(NAMELESS)


def test_the_name_is_that_of_the_rights_not_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody")
    assert user_name() == pwd.getpwuid(os.geteuid()).pw_name
    assert has_name()
