"""Tries the package where something is missing, and under every Python: `./do matrix`.

    python tools/matrix.py [--dist dist] [--tests] [PYTHON...]

In: dist/, made by ./do wheels, and interpreters. For each interpreter and each circumstance of CIRCUMSTANCES: an environment of
its own with the wheel in it, a simulation, the demo and 100 real tasks; then the demo by `uvx` and `pipx run`, as a plain user
with an empty home. With --tests the unit and property tests as well, with the compiled parts and without. Out: a line for
each; exit code 1 if one failed.

Circumstances are made with namespaces (`unshare`), as root or with user namespaces.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLAIN_USER = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""Without root's rights, but still the owner of our files."""
LOOPBACK = "ip link set lo up"
"""A new network namespace has none."""
NO_IPV6 = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6"
NO_SHM = "mount -t tmpfs -o ro,mode=555 none /dev/shm"
CIRCUMSTANCES: dict[str, tuple[str, ...]] = {
    "as it is": (),
    "plain user": (),
    "no IPv6": (NO_IPV6,),
    "no /dev/shm": (NO_SHM,),
    "read-only home": (),
    "all of these": (NO_IPV6, NO_SHM),
}
"""What is done, in namespaces of its own, before a command; all but the first also lose root."""


class Missing(Exception):
    """This machine does not let us make the circumstance."""


def within(name: str, command: list[str], home: Path) -> list[str]:
    """The command under a circumstance. `home` becomes its home, which cannot be written where the name says so."""
    if name == "as it is":
        return command
    read_only = name in ("read-only home", "all of these")
    home.mkdir(exist_ok=True)
    home.chmod(0o555 if read_only else 0o755)
    last = f'HOME={shlex.quote(str(home))} exec {shlex.join(PLAIN_USER)} "$@"'
    actions = " && ".join([LOOPBACK, *CIRCUMSTANCES[name], last])
    return [*namespaces(), "sh", "-c", actions, "sh", *command]


def namespaces() -> list[str]:
    """`unshare` as far as this user may use it. Raises Missing."""
    options = ["unshare", "--mount", "--net", *([] if os.getuid() == 0 else ["--map-root-user"])]
    if shutil.which("unshare") is None or shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        raise Missing("needs unshare and ip (Debian packages util-linux and iproute2)")
    if subprocess.run([*options, *PLAIN_USER, "true"], capture_output=True, check=False).returncode:
        raise Missing("may make no namespaces here: root, or user namespaces, are needed")
    return options


def small_project(python: Path) -> list[list[str]]:
    """The commands that must work everywhere."""
    pilothouse = [str(python), "-m", "pilothouse"]
    return [
        [*pilothouse, "demo", "demo"],
        [*pilothouse, "run", "echo {}", ":::", *map(str, range(100))],
        [*pilothouse, "simulate", "-p", "100", "-w", "demo/kth-sp2-5000.swf.gz", "--policy", "conservative", "-e", "out/"],
    ]


def attempt(name: str, commands: list[list[str]]) -> str:
    """Runs commands in a folder of their own; "" or why it failed."""
    with tempfile.TemporaryDirectory(prefix="pilothouse-matrix-") as folder:
        place = Path(folder)
        work = place / "work"
        work.mkdir()
        for command in commands:
            try:
                command = within(name, command, place / "home")
            except Missing as missing:
                return f"not tried: {missing}"
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=600, check=False, env=plain_env())
            if done.returncode:
                last = (done.stderr or done.stdout).strip().splitlines()[-1:]
                return f"{shlex.join(command[-6:])} ended with {done.returncode}: {' '.join(last)}"
    return ""


def plain_env() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}


def environment(python: str, place: Path, *packages: str) -> Path:
    """The Python of a new environment with these packages, wheels or sdists and what they need. There is no C compiler."""
    subprocess.run([python, "-m", "venv", str(place)], check=True, capture_output=True)
    made = place / "bin" / "python"
    command = [str(made), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
    subprocess.run(command, check=True, env=plain_env() | {"CC": "/bin/false"})
    return made


def runners(python: str, wheel: Path, place: Path) -> dict[str, list[list[str]]]:
    """The demo by programs that install a package and run it at once. They find what they need in a folder: the
    circumstances have no network."""
    programs = environment(python, place / "runners", "uv", "pipx").parent
    needed = place / "needed"
    command = [programs / "pip", "download", "--quiet", "--disable-pip-version-check", "--dest", needed, wheel, "pip"]
    subprocess.run(command, check=True, env=plain_env())
    local = ["--no-index", "--find-links", str(needed)]
    uvx = [str(programs / "uvx"), *local, "--python", python, "--from", str(wheel)]
    pipx = [str(programs / "pipx"), "run", "--pip-args", shlex.join(local), "--python", python, "--spec", str(wheel)]
    return {"uvx": [[*uvx, "pilothouse", "demo"]], "pipx run": [[*pipx, "pilothouse", "demo"]]}


def version_of(python: str) -> str:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def cells(pythons: list[str], dist: Path, place: Path) -> Iterator[tuple[str, str, Callable[[], str]]]:
    """(Python, circumstance, what tries it)."""
    (pure,), (native,), (sdist,) = (list(dist.glob(p)) for p in ("*-none-any.whl", "*linux*.whl", "*.tar.gz"))
    for number, python in enumerate(pythons):
        version = version_of(python)
        for kind, wheel in (("compiled", native), ("pure", pure), ("sdist, no compiler", sdist)):
            try:
                made = environment(python, place / f"{number}-{kind.replace(', ', '-').replace(' ', '-')}", str(wheel))
            except subprocess.CalledProcessError:
                yield version, kind, lambda wheel=wheel: f"pip install {wheel.name} fails"
                continue
            names = list(CIRCUMSTANCES) if (kind, number) == ("compiled", 0) else ["plain user"]
            for name in names:
                yield version, f"{kind}; {name}", lambda name=name, made=made: attempt(name, small_project(made))
        for program, commands in runners(python, native.resolve(), place / f"{number}").items():
            yield version, f"{program}; plain user", lambda commands=commands: attempt("plain user", commands)


def tests(python: str, place: Path, *, pure: bool) -> str:
    """Unit and property tests of a copy of the tree under that Python; "" or the last line."""
    tree = place / f"tree-{'pure' if pure else 'compiled'}-{version_of(python)}"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tree / name, follow_symlinks=False)
    env = plain_env() | ({"PILOTHOUSE_PURE": "1"} if pure else {})
    subprocess.run([python, "-m", "venv", str(tree / ".venv")], check=True, capture_output=True)
    made = str(tree / ".venv" / "bin" / "python")
    install = [made, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-e", ".[dev]"]
    done = subprocess.run(install, cwd=tree, env=env, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        done = subprocess.run(
            [made, "-m", "pytest", "-q", "-n", "2", "tests/unit", "tests/property"], cwd=tree, env=env, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
    lines = (done.stdout + done.stderr).strip().splitlines()
    failed = [line.split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    return "" if done.returncode == 0 else "\n    ".join([*lines[-1:], *failed])


def test_cells(pythons: list[str], place: Path) -> Iterator[tuple[str, str, Callable[[], str]]]:
    for python in pythons:
        for pure in (False, True):
            what = f"unit and property tests, {'pure' if pure else 'compiled'}"
            yield version_of(python), what, lambda python=python, pure=pure: tests(python, place, pure=pure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    parser.add_argument("--tests", action="store_true", help="also unit and property tests, for each interpreter twice")
    parser.add_argument("pythons", nargs="*", default=[sys.executable], metavar="PYTHON")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="pilothouse-matrix-") as name:
        place = Path(name)
        trials = list(test_cells(options.pythons, place)) if options.tests else []
        for version, what, action in itertools.chain(cells(options.pythons, options.dist, place), trials):
            began = time.monotonic()
            problem = action()
            failed += bool(problem) and not problem.startswith("not tried")
            print(f"{version:6} {what:38} {problem or 'works'}  ({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
