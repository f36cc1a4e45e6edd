"""Options of a user's policy, typed from its signature: `weight: float` is given 0.5, not the text "0.5"."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import msgspec

from pilothouse.model.errors import InputError, quoted, suggestion

_PLAIN = (bool, int, float)
_ANY_NAME = inspect.Parameter.VAR_KEYWORD


def typed_options(made: Callable[..., object], options: dict[str, str], where: str) -> dict[str, Any]:
    """The options, converted to the types that `made` declares: by annotation, else by the type of a default that is a number
    or a truth value. Other options stay text. Raises InputError for an unknown option, or a value of another type.
    """
    parameters = inspect.signature(made).parameters
    hints = _hints(made)
    open_ended = any(parameter.kind is _ANY_NAME for parameter in parameters.values())
    found: dict[str, Any] = {}
    for name, text in options.items():
        parameter = parameters.get(name)
        if parameter is None or parameter.kind is _ANY_NAME:
            if not open_ended:
                known = ", ".join(parameters) or "none"
                raise InputError(where, f"no option {name!r}", expected=known, hint=suggestion(name, parameters))
            found[name] = text
            continue
        kind = hints.get(name) or (type(parameter.default) if type(parameter.default) in _PLAIN else None)
        found[name] = text if kind is None else _converted(text, kind, f"{where}: option {name}")
    return found


def _hints(made: Callable[..., object]) -> dict[str, Any]:
    try:
        return get_type_hints(getattr(made, "__init__") if isinstance(made, type) else made)  # noqa: B009
    except (NameError, TypeError):
        return {}  # an annotation that only a type checker can look up


def _converted(text: str, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        expected = kind.__name__ if isinstance(kind, type) else str(kind)
        raise InputError(where, "not a value of its type", expected=expected, found=quoted(text)) from None
    except TypeError:
        return text  # a type that text has no form of: the policy reads it itself
