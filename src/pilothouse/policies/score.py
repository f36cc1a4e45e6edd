"""Priority functions: the ones of the literature, and any that the user writes as an expression.

In an expression: r requested time, n units, s date of submission (at least 1), w wait so far, p priority; + - * / **, and
log10, log2, log, sqrt, exp, abs, min, max. The smaller the value, the sooner the job; where it cannot be computed (a
division by zero, a logarithm of zero) the job comes first.

A value that changes as a job waits is needed for the whole queue at every event. A Program is such an expression in a form
that backfill_queue.py evaluates for all jobs at once: what does not depend on the wait is computed once for each job.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable
from typing import Any

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
    """A compiled priority function. `ages` says whether a job's value changes as it waits; then `program` is the same for a
    whole queue, or None if it cannot be had in that form."""

    def __init__(self, text: str) -> None:
        tree = _parse(text)
        self.text = text
        self.ages = _ages(tree)
        self._value: Callable[[float, float, float, float, float], float] = _function(tree.body)
        self.program = _program(tree.body, self) if self.ages else None
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


class Program:
    """An expression that ages as operations on a stack, for one job or a whole queue.

    An operation is a letter and a number: w pushes the wait, k a constant of the job (which one); + - * / take two values;
    n negates, ^ raises to the power of the number, s is sqrt, e exp, l log, 2 log2, d log10."""

    def __init__(
        self, operations: tuple[tuple[str, float], ...], constants: ast.Tuple, expression: Expression
    ) -> None:
        self.operations = operations
        self.constant_count = len(constants.elts)
        self.products = all(code in "wk*/n^" for code, _ in operations)
        """There is no sum: a small relative error of a part stays one."""
        self._constants = _function(constants)
        self._expression = expression

    def value(self, job: Job, now: float) -> float:
        return self._expression(job, now)

    def constants(self, job: Job) -> tuple[float, ...] | None:
        """What does not depend on the wait; None if the job has no value, whatever its wait."""
        try:
            values: tuple[float, ...] = self._constants(
                job.walltime, float(job.units), max(job.submitted_at, 1.0), 0.0, job.priority
            )
        except _UNDEFINED:
            return None
        return None if any(isinstance(value, complex) for value in values) else values


_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_LETTERS = {"sqrt": "s", "exp": "e", "log": "l", "log2": "2", "log10": "d"}
MOST_CONSTANTS, MOST_DEPTH = 8, 16
"""Expressions with more of them are evaluated one job at a time."""


def _program(body: ast.expr, expression: Expression) -> Program | None:
    operations: list[tuple[str, float]] = []
    constants: list[ast.expr] = []
    depth = _compile(body, operations, constants)
    if not 0 < depth <= MOST_DEPTH or len(constants) > MOST_CONSTANTS:
        return None
    return Program(tuple(operations), ast.Tuple(constants, ast.Load()), expression)


def _compile(node: ast.expr, operations: list[tuple[str, float]], constants: list[ast.expr]) -> int:
    """Appends what computes the node; returns how deep the stack becomes, 0 if that is not possible."""
    if not _ages(node):
        operations.append(("k", float(len(constants))))
        constants.append(node)
        return 1
    if isinstance(node, ast.Name):
        operations.append(("w", 0.0))
        return 1
    if isinstance(node, ast.UnaryOp):
        depth = _compile(node.operand, operations, constants)
        if isinstance(node.op, ast.USub):
            operations.append(("n", 0.0))
        return depth
    if isinstance(node, ast.Call):
        letter = _LETTERS.get(node.func.id if isinstance(node.func, ast.Name) else "")
        # A power may be complex, for which these functions have no value.
        if letter is None or len(node.args) != 1 or any(isinstance(part, ast.Pow) for part in ast.walk(node)):
            return 0
        depth = _compile(node.args[0], operations, constants)
        operations.append((letter, 0.0))
        return depth
    assert isinstance(node, ast.BinOp)
    if isinstance(node.op, ast.Pow):
        if any(isinstance(part, ast.Name) for part in ast.walk(node.right)):
            return 0
        try:
            exponent = _function(node.right)(1.0, 1.0, 1.0, 1.0, 1.0)
        except _UNDEFINED:
            return 0
        depth = _compile(node.left, operations, constants)
        operations.append(("^", exponent))
        return 0 if isinstance(exponent, complex) else depth
    left, right = _compile(node.left, operations, constants), _compile(node.right, operations, constants)
    operations.append((_OPERATORS[type(node.op)], 0.0))
    return max(left, right + 1) if left and right else 0


def _ages(node: ast.AST) -> bool:
    """Whether the value changes with the wait."""
    return any(isinstance(part, ast.Name) and part.id == "w" for part in ast.walk(node))


def _function(body: ast.expr) -> Callable[[float, float, float, float, float], Any]:
    """A function of r, n, s, w and p."""
    arguments = ast.arguments([], [ast.arg(name) for name in "rnswp"], None, [], [], None, [])
    function = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, body)))
    made: Callable[[float, float, float, float, float], Any] = eval(
        compile(function, "score", "eval"), {"__builtins__": {}, **_FUNCTIONS}
    )
    return made


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
