"""Behind `pilothouse shims`: programs named as those that the drop-ins replace, in a folder of the user's choice.

In: a folder, and which drop-ins. Out: a small script for each name, which starts this Python with this installation, and a
modulefile that puts the folder into PATH. `remove` deletes what `write` wrote and nothing else: each file bears a mark.
The scripts work as copies, too (`sbatch disBatch ...` runs one).
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pilothouse
from pilothouse.model.errors import InputError

MARK = "made by `pilothouse shims`"
ROOT = Path(pilothouse.__file__).resolve().parents[1]
PILOTHOUSE = {"pilothouse": "from pilothouse.cli.main import main; main()"}
_DISBATCH = "from pilothouse.dropins.disbatch.command import main; main()"
DROP_INS: dict[str, dict[str, str]] = {
    "disbatch": {"disBatch": _DISBATCH, "disbatch": _DISBATCH},
    "batsim": {"batsim": "from pilothouse.cli.batsim import main; sys.exit(main(sys.argv[1:]))"},
    "batsim4": {"batsim": "from pilothouse.cli.main import main; sys.argv.insert(1, 'batsim4'); main()"},
    "batsim2": {"batsim": "from pilothouse.cli.main import main; sys.argv.insert(1, 'batsim2'); main()"},
    "qcg": {
        "qcg-pm-service": "from pilothouse.cli.qcg import main; main()",
        "qcg-pm": "from pilothouse.cli.qcg import client_main; client_main()",
    },
}
"""Drop-in -> its commands, and what each of them does. libexec/ has commands of the same names for a source tree."""
SITE = "python/sitecustomize.py"
"""With the drop-in for QCG: what LocalManager of programs that have this folder in PYTHONPATH starts."""


def write(folder: Path, drop_ins: Iterable[str]) -> list[Path]:
    """Writes the programs and a modulefile. Raises InputError, and writes nothing, if a file of another kind is in the way."""
    folder = folder.absolute()
    chosen = sorted(set(drop_ins))
    texts: dict[str, str] = {}
    # The caller may live in a Python of its own (a test suite, a Nix shell): its PYTHON variables are not ours, unless this
    # installation needs them (a module system that sets PYTHONPATH).
    flags = "-EP" if _found_without_variables() else "-P"
    for commands in (PILOTHOUSE, *(DROP_INS[name] for name in chosen)):
        for name, action in commands.items():
            if name in texts:
                raise InputError("shims", f"two drop-ins are named {name}", hint="write them into two folders")
            texts[name] = _script(name, action, flags)
    texts[_modulefile_name()] = _modulefile(folder)
    if "qcg" in chosen:
        texts[SITE] = _site(folder / "qcg-pm-service")
    for name in texts:
        _check(folder / name)
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # a running shell goes on with the file that it has open
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!/bin/sh"):
            path.chmod(0o755)
    return [folder / name for name in texts]


def remove(folder: Path) -> list[Path]:
    """Deletes what `write` wrote into the folder, and folders that are empty then."""
    if not folder.is_dir():
        raise InputError(str(folder), "is no folder")
    names = {name for commands in (PILOTHOUSE, *DROP_INS.values()) for name in commands}
    modules = (folder / "modulefiles" / "pilothouse").glob("*")
    found = [path for path in (*(folder / name for name in (*names, SITE)), *modules) if path.is_file() and _ours(path)]
    if not found:
        raise InputError(str(folder), "holds nothing that `pilothouse shims` wrote")
    for path in found:
        path.unlink()
    for inner in ("python", "modulefiles/pilothouse", "modulefiles", "."):
        if (folder / inner).is_dir() and not any((folder / inner).iterdir()):
            (folder / inner).rmdir()
    return sorted(found)


def _check(path: Path) -> None:
    if path.is_symlink() or (path.exists() and not _ours(path)):
        raise InputError(str(path), "is there, and `pilothouse shims` did not write it", hint="name another folder")


def _ours(path: Path) -> bool:
    with path.open("rb") as stream:
        return MARK.encode() in stream.read(400)


def _script(name: str, action: str, flags: str) -> str:
    code = f"import sys; sys.path.append({str(ROOT)!r}); {action}"
    return (
        f"#!/bin/sh\n# {name} of Pilothouse, {MARK}; --remove removes it.\n"
        f'exec {shlex.quote(sys.executable)} {flags} -c {shlex.quote(code)} "$@"\n'
    )


def _found_without_variables() -> bool:
    code = f"import sys; sys.path.append({str(ROOT)!r}); import click, msgspec, zmq, pilothouse"
    tried = subprocess.run([sys.executable, "-EP", "-c", code], stderr=subprocess.DEVNULL, check=False)
    return tried.returncode == 0


def _modulefile_name() -> str:
    return f"modulefiles/pilothouse/{pilothouse.__version__}"


def _modulefile(folder: Path) -> str:
    where = "{" + str(folder) + "}"
    return (
        f"#%Module1.0\n# {MARK}\n"
        f"module-whatis {{Pilothouse {pilothouse.__version__}: drop-ins for other programs}}\n"
        f"prepend-path PATH {where}\n"
    )


def _site(service: Path) -> str:
    manager = ROOT / "pilothouse" / "dropins" / "qcg" / "local_manager.py"
    return f'''"""LocalManager of qcg-pilotjob starts Pilothouse's manager. {MARK}"""

import os
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

os.environ.setdefault("PILOTHOUSE_QCG_SERVICE", {shlex.quote(str(service))!r})
_loader = SourceFileLoader("pilothouse_local_manager", {str(manager)!r})
_module = sys.modules[_loader.name] = module_from_spec(spec_from_loader(_loader.name, _loader))
_loader.exec_module(_module)
_module.take_over(os.path.dirname(os.path.abspath(__file__)))
'''
