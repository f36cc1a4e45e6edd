"""The catalog of policies: every entry says which variant of its algorithm it is."""

import pytest

from pilothouse.policies.catalog import CATALOG
from pilothouse.policies.variants import Variant


@pytest.mark.parametrize("name", CATALOG)
def test_every_choice_is_a_sentence(name: str) -> None:
    for field in Variant.__struct_fields__:
        assert getattr(CATALOG[name].variant, field).endswith("."), field
