"""The small changes that are tried: one operator, number, condition or statement of a module at a time.

In: the text of a module. Out: `Change` objects, each with the text that it leads to. Annotations, messages of errors,
assertions, lines of the log, limits (numbers in capitals) and options of classes are left alone: changing them changes no
behaviour that a test should hold. Nor is `<` made `<=` where it compares with a limit: that would be another limit.
"""

from __future__ import annotations

import ast
import copy
import difflib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
SHIFTS = {(ast.Lt, ast.LtE), (ast.LtE, ast.Lt), (ast.Gt, ast.GtE), (ast.GtE, ast.Gt)}
"""What differs at one value only."""
OPTIONS = {"strict", "frozen", "kw_only", "check", "encoding", "errors", "hint", "stacklevel", "indent"}
"""Keyword arguments that are not changed."""


@dataclass(frozen=True)
class Change:
    """One mutant: the file, the function that it is in ("" at module level), the bytes that are replaced, and by what."""

    path: str
    function: str
    line: int
    begin: int
    end: int
    before: str
    after: str
    nth: int = 0
    """How many changes of the same texts come before it in its function."""

    def text(self, original: str) -> str:
        """The whole changed module."""
        data = original.encode()
        return (data[: self.begin] + self.after.encode() + data[self.end :]).decode()

    def is_python(self, original: str) -> bool:
        try:
            ast.parse(self.text(original))
        except SyntaxError:
            return False
        return True

    def diff(self, original: str) -> str:
        before, after = original.splitlines(), self.text(original).splitlines()
        return "\n".join(difflib.unified_diff(before, after, self.path, self.path, n=1, lineterm=""))


def changes(path: str, text: str) -> Iterator[Change]:
    """Every change of a module, in the order of its lines. Some may not be Python (`is_python`)."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()
    seen: Counter[tuple[str, str, str]] = Counter()
    for node, replacement, function in _sites(ast.parse(text), ""):
        begin = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        before = data[begin:end].decode()
        nth = seen[function, before, replacement]
        seen[function, before, replacement] += 1
        yield Change(path, function, node.lineno, begin, end, before, replacement, nth)  # type: ignore[attr-defined]


def _sites(node: ast.AST, function: str) -> Iterator[tuple[ast.AST, str, str]]:
    """(node, what replaces it, function) for everything below a node."""
    for child in _children(node):
        inside = function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside = f"{function}.{child.name}" if function else child.name
        for replacement in _replacements(child, node):
            yield child, replacement, function
        yield from _sites(child, inside)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        if node.name not in ("__repr__", "__str__"):
            yield from (default for default in [*node.args.defaults, *node.args.kw_defaults] if default is not None)
            yield from node.body
    elif isinstance(node, ast.ClassDef):
        yield from node.body
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None and not _is_limit(node.target):
            yield node.value
    elif isinstance(node, ast.Assign):
        if not any(_is_limit(target) for target in node.targets) or not _is_number(node.value):
            yield from node.targets
            yield node.value
    elif isinstance(node, ast.Call):
        yield node.func
        yield from node.args
        yield from (keyword.value for keyword in node.keywords if keyword.arg not in OPTIONS)
    elif (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)) or _is_log(node):
        return
    elif not isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.arguments):
        yield from ast.iter_child_nodes(node)


def _is_limit(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id.isupper()


def _is_log(node: ast.AST) -> bool:
    """`log.info(...)` and its like."""
    value = node.value if isinstance(node, ast.Expr) else None
    caller = value.func.value if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
    return isinstance(caller, ast.Name) and caller.id.strip("_") == "log"


def _is_assertion(node: ast.AST) -> bool:
    """`raise AssertionError(...)`: it cannot be reached."""
    return isinstance(node, ast.Raise) and node.exc is not None and ast.unparse(node.exc).startswith("AssertionError")


def _is_number(value: ast.expr) -> bool:
    return all(
        isinstance(node, ast.Constant | ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop) for node in ast.walk(value)
    )


def _replacements(node: ast.AST, parent: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Compare):
        sides = (node.left, *node.comparators)
        for index, operator in enumerate(node.ops):
            limited = any(map(_is_limit, sides[index : index + 2]))
            for other in COMPARISONS[type(operator)]:
                if limited and (type(operator), other) in SHIFTS:
                    continue
                changed = copy.deepcopy(node)
                changed.ops[index] = other()
                yield f"({ast.unparse(changed)})"
    elif isinstance(node, ast.BoolOp):
        changed_bool = copy.deepcopy(node)
        changed_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"({ast.unparse(changed_bool)})"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        changed_operation = copy.deepcopy(node)
        changed_operation.op = OPERATORS[type(node.op)]()
        yield f"({ast.unparse(changed_operation)})"
    elif isinstance(node, ast.Constant):
        yield from _other_constants(node)
    elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
        changed_sum = copy.deepcopy(node)
        changed_sum.op = OPERATORS[type(node.op)]()
        yield ast.unparse(changed_sum)
        yield "pass"
    elif isinstance(node, ast.Break):
        yield "continue"
    elif isinstance(node, ast.Continue):
        yield "break"
    elif isinstance(node, ast.Return):
        if node.value is not None and not isinstance(node.value, ast.Constant):
            yield "return None"
    elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Yield)):
        if not _is_log(node) and not _is_assertion(node):
            yield "pass"
    elif isinstance(node, ast.Assign):
        if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            yield "pass"
    elif isinstance(node, ast.expr) and isinstance(parent, ast.If | ast.IfExp) and node is parent.test:
        yield f"(not ({ast.unparse(node)}))"


def _other_constants(node: ast.Constant) -> Iterator[str]:
    value = node.value
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int):
        yield str(value + 1)
    elif isinstance(value, float):
        yield repr(value + 1.0)
