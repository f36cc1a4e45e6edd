"""Priority functions: the ones of the literature, and any that the user writes as an expression.

In an expression: r requested time, n units, s date of submission (at least 1), w wait so far, p priority; + - * / **, and
log10, log2, log, sqrt, exp, abs, min, max. The smaller the value, the sooner the job; where it cannot be computed (a
division by zero, a logarithm of zero) the job comes first.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable

from pilothouse.model.errors import InputError, quoted
from pilothouse.model.job import Job

KNOWN: dict[str, tuple[str, str]] = {
    "spt": ("r", "shortest requested time first"),
    "saf": ("r*n", "smallest requested area first"),
    "f1": ("log10(r)*n + 870*log10(s)", "F1 of the literature"),
    "f2": ("sqrt(r)*n + 25600*log10(s)", "F2 of the literature"),
    "f3": ("r*n + 6.86e6*log10(s)", "F3 of the literature"),
    "f4": ("r*sqrt(n) + 5.3e5*log10(s)", "F4 of the literature"),
    "wfp3": ("-(w/r)**3*n", "WFP3: large jobs that have waited long for their size first"),
    "unicep": ("-w/(log2(n)*r)", "UNICEP: short, small jobs that have waited long first"),
}
"""Name -> expression, and one line about it."""

_FUNCTIONS: dict[str, Callable[..., float]] = {
    "log10": math.log10,
    "log2": math.log2,
    "log": math.log,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "abs": abs,
    "min": min,
    "max": max,
}
_VARIABLES = frozenset("rnswp")
_NODES = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Load, ast.Call),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.USub, ast.UAdd),
)
MOST_CHARACTERS = 500
_UNDEFINED = (ZeroDivisionError, ValueError, OverflowError)


class Expression:
    """A compiled priority function. `ages` says whether a job's value changes as it waits."""

    def __init__(self, text: str) -> None:
        tree = _parse(text)
        self.text = text
        self.ages = any(isinstance(node, ast.Name) and node.id == "w" for node in ast.walk(tree))
        arguments = ast.arguments([], [ast.arg(name) for name in "rnswp"], None, [], [], None, [])
        function = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, tree.body)))
        names = {"__builtins__": {}, **_FUNCTIONS}
        self._value: Callable[[float, float, float, float, float], float] = eval(
            compile(function, "score", "eval"), names
        )
        try:
            self._value(1.0, 1.0, 1.0, 1.0, 1.0)
        except TypeError as problem:
            raise InputError("score", f"not an expression: {problem}", found=quoted(text)) from None
        except _UNDEFINED:
            pass  # here, and perhaps not for another job

    def __call__(self, job: Job, now: float) -> float:
        submitted = job.submitted_at
        try:
            value = self._value(job.walltime, float(job.units), max(submitted, 1.0), now - submitted, job.priority)
        except _UNDEFINED:
            return -math.inf
        # A broken power of a negative number is complex.
        return -math.inf if isinstance(value, complex) else float(value)


def _parse(text: str) -> ast.Expression:
    """Only arithmetic gets through: no attribute, no subscript, no other name."""
    if len(text) > MOST_CHARACTERS:
        raise InputError("score", f"an expression longer than {MOST_CHARACTERS} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SyntaxWarning)  # such as `1if`
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError("score", "not an expression", found=quoted(text)) from None
    functions = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            known = _FUNCTIONS if node in functions else _VARIABLES
            if node.id not in known:
                raise InputError("score", f"unknown name {node.id!r}", expected=f"one of {', '.join(sorted(known))}")
        elif not isinstance(node, _NODES) or not _is_plain_call(node):
            raise InputError("score", f"{type(node).__name__} is not arithmetic", found=quoted(text))
        elif isinstance(node, ast.Constant):
            if type(node.value) is not int and type(node.value) is not float:
                raise InputError("score", "not a number", found=quoted(node.value))
            try:
                node.value = float(node.value)  # powers of whole numbers have no end
            except OverflowError:
                raise InputError("score", "a number without end", found=quoted(node.value)) from None
    return tree


def _is_plain_call(node: ast.AST) -> bool:
    """Whether a node is no call, or one of a function by its name, without keywords."""
    return not isinstance(node, ast.Call) or (isinstance(node.func, ast.Name) and not node.keywords)
