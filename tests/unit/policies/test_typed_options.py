"""Options of a user's policy have the types that its signature names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from pilothouse.launch import naming
from pilothouse.model.errors import InputError
from pilothouse.policies.typed_options import typed_options


class Sample:
    def __init__(
        self, weight: float = 1.0, count: int = 1, on: bool = False, kind: Literal["a", "b"] = "a", name: str = "",
        most: int | None = None, plain=3, anything=None,  # type: ignore[no-untyped-def]
    ) -> None:  # fmt: skip
        pass


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"weight": "0.5"}, 0.5), ({"weight": "2"}, 2.0), ({"count": "7"}, 7), ({"on": "true"}, True), ({"on": "0"}, False),
        ({"kind": "b"}, "b"), ({"name": "12"}, "12"), ({"most": "4"}, 4), ({"most": "null"}, None), ({"plain": "9"}, 9),
        ({"anything": "9"}, "9"),
    ],
)  # fmt: skip
def test_values_have_the_types_of_the_signature(given: dict[str, str], expected: Any) -> None:
    (found,) = typed_options(Sample, given, "p").values()
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"weight": "heavy"}, "option weight: not a value of its type"), ({"count": "1.5"}, "expected int"),
        ({"kind": "c"}, "option kind"), ({"wieght": "1"}, "did you mean.*weight"),
    ],
)  # fmt: skip
def test_other_values_are_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(InputError, match=f"(?i){says}"):
        typed_options(Sample, given, "p")


def test_a_policy_in_a_file_gets_typed_options(tmp_path: Path) -> None:
    path = tmp_path / "aged_policy.py"
    path.write_text(
        "from __future__ import annotations\nfrom pilothouse import Policy\n"
        "class Aged(Policy):\n    def __init__(self, weight: float, **rest):\n        self.weight, self.rest = weight, rest\n"
    )
    made: Any = naming.policy(f"{path}:Aged:weight=0.25,other=x")
    assert made.weight == 0.25 and made.rest == {"other": "x"}


class Hidden:
    """Its annotation can be looked up by a type checker alone."""

    def __init__(self, limit: OnlyForCheckers = 3) -> None:  # type: ignore[name-defined] # noqa: F821
        pass


def test_annotations_that_cannot_be_looked_up_do_no_harm() -> None:
    assert typed_options(Hidden, {"limit": "4"}, "p") == {"limit": 4}
