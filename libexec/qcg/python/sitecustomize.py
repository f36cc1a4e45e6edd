"""Programs with this folder in PYTHONPATH: LocalManager of qcg-pilotjob starts Pilothouse's manager.

    PYTHONPATH=.../libexec/qcg/python python program.py

Python runs this file before the program. Other files of this name are run as well, and children do not inherit the folder.
"""

import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_file = os.path.join(_here, "..", "..", "..", "src", "pilothouse", "dropins", "qcg", "local_manager.py")


def _leave_path() -> None:
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in entries if os.path.abspath(entry or ".") != _here]
    os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    if not any(kept):
        del os.environ["PYTHONPATH"]
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]


def _run_others() -> None:
    own = sys.modules.pop("sitecustomize")
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        pass
    finally:
        sys.modules.setdefault("sitecustomize", own)


def _install() -> None:
    spec = importlib.util.spec_from_file_location("pilothouse_local_manager", os.path.realpath(_file))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    module.install()


_leave_path()
_run_others()
_install()
