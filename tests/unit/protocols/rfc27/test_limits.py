"""How many alloc requests a scheduler asks for, and grants that nothing asked for."""

from __future__ import annotations

import pytest

from unit.protocols.rfc27.pair import Pair


@pytest.mark.parametrize("strict", [True, False])
def test_each_scheduler_names_its_own_limit(strict: bool) -> None:
    pair = Pair(strict=strict)
    for limit in (1, 0, *(() if strict else (3, 0))):
        pair.limit = limit
        pair.connect()
        assert pair.manager.online and pair.manager.limit == limit
        pair.crash()
        assert not pair.manager.online


def test_only_a_job_that_asked_gets_resources_and_only_once() -> None:
    pair = Pair()
    pair.connect()
    with pytest.raises(ValueError, match="no open alloc request"):
        pair.engine.grant(99, b"{}")
    job_id = pair.submit()
    pair.settle()
    assert job_id not in pair.engine.pending
    with pytest.raises(ValueError, match="no open alloc request"):
        pair.engine.grant(job_id, b"{}")
