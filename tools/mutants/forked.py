"""A pytest plugin that tries mutants in forks of one process that has imported and collected the tests.

In: a file of lines `{"number", "path", "function", "text", "tests", "limit_s"}`. Out: a file of lines `{"number", "word"}`. The
code of the changed function is exchanged in the fork, so that nothing is imported again: a mutant takes as long as the
tests that it is tried with. It is "unsupported" where the change is outside of all functions (defaults, classes). A test
that fails without the mutant as well finds nothing. What starts processes of its own sees no mutant here.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import select
import signal
from collections import defaultdict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType

import pytest

WORK = "PILOTHOUSE_MUTANTS_WORK"
ANSWERS = "PILOTHOUSE_MUTANTS_ANSWERS"
SOURCE = "PILOTHOUSE_MUTANTS_PACKAGE"
MEMORY_BYTES = 6 * 2**30
CO_OPTIMIZED = 1
MOST_DOUBTS = 3
UNSUPPORTED, SURVIVED, FOUND, TOO_SLOW = "unsupported", "survived", "found", "found (too slow)"

failures: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failures.append(report.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    package = Path(os.environ[SOURCE])
    items = {item.nodeid: item for item in session.items}
    jobs = [json.loads(line) for line in Path(os.environ[WORK]).read_text().splitlines()]
    for path in {job["path"] for job in jobs}:  # some are imported by functions only
        import_module(".".join((package.name, *Path(path).with_suffix("").parts)).removesuffix(".__init__"))
    functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
    for found in gc.get_objects():
        if isinstance(found, FunctionType) and found.__code__.co_filename.startswith(str(package)):
            code = found.__code__
            functions[code.co_filename, code.co_qualname, code.co_firstlineno].append(found)
    gc.freeze()
    with open(os.environ[ANSWERS], "w", buffering=1) as answers:
        for job in jobs:
            pairs = [
                (function, new)
                for old, new in exchanges(str(package / job["path"]), job["function"], job["text"])
                for function in functions[old.co_filename, old.co_qualname, old.co_firstlineno]
                if function.__code__.co_freevars == new.co_freevars
            ]
            tests = [items[name] for name in job["tests"] if name in items]
            word = judge(tests, pairs, job["limit_s"]) if pairs and tests else UNSUPPORTED
            answers.write(json.dumps({"number": job["number"], "word": word}) + "\n")
    return True


def judge(tests: list[pytest.Item], pairs: list[tuple[FunctionType, CodeType]], limit_s: float) -> str:
    for _ in range(MOST_DOUBTS):
        word, failed = run(tests, pairs, limit_s)
        if word == SURVIVED:
            return word
        doubted = [test for test in tests if failed is None or test.nodeid == failed]
        if run(doubted, [], limit_s)[0] == SURVIVED:
            return word
        tests = [test for test in tests if test.nodeid != failed] if failed else []
    return SURVIVED


def run(tests: list[pytest.Item], pairs: list[tuple[FunctionType, CodeType]], limit_s: float) -> tuple[str, str | None]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            for function, new in pairs:
                function.__code__ = new
            code = run_tests(tests, writing)
        finally:
            os._exit(code)
    os.close(writing)
    process = os.pidfd_open(child)
    ended = bool(select.select([process], [], [], limit_s)[0])
    try:
        os.killpg(child, signal.SIGKILL)  # also what the tests have left
    except ProcessLookupError:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    failed = os.read(reading, 65536).decode() if ended else ""
    os.close(reading)
    os.close(process)
    if not ended:
        return TOO_SLOW, None
    return (SURVIVED if os.waitstatus_to_exitcode(status) == 0 else FOUND), failed or None


def run_tests(tests: list[pytest.Item], writing: int) -> int:
    for test, following in zip(tests, [*tests[1:], None], strict=True):
        failures.clear()
        try:
            test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        except BaseException:
            failures.append(test.nodeid)
        if failures:
            os.write(writing, failures[0].encode())
            return 1
    return 0


def exchanges(filename: str, name: str, text: str) -> Iterator[tuple[CodeType, CodeType]]:
    """The outermost functions of a module that are changed in a text: (code now, code then)."""
    before = outermost(compile(Path(filename).read_text(), filename, "exec"))
    after = outermost(compile(text, filename, "exec"))
    for old, new in zip(before, after, strict=True):
        if f"{name}.".startswith(f"{old.co_qualname}.") and differs(old, new):
            yield old, new


def outermost(code: CodeType) -> Iterator[CodeType]:
    """Functions of a module and of its classes, without those inside of them."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & CO_OPTIMIZED:
                yield inner
            else:
                yield from outermost(inner)


def differs(old: CodeType, new: CodeType) -> bool:
    if old.co_code != new.co_code or old.co_names != new.co_names or len(old.co_consts) != len(new.co_consts):
        return True
    return any(
        differs(one, other) if isinstance(one, CodeType) and isinstance(other, CodeType) else repr(one) != repr(other)
        for one, other in zip(old.co_consts, new.co_consts, strict=True)
    )
