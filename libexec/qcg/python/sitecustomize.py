"""Programs with this folder in PYTHONPATH: LocalManager of qcg-pilotjob starts Pilothouse's manager.

    PYTHONPATH=.../libexec/qcg/python python program.py

`pilothouse shims DIR --qcg` writes the same for an installed package.
"""

import os
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

_here = os.path.dirname(os.path.abspath(__file__))
_tree = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(_here))))
_loader = SourceFileLoader("pilothouse_local_manager", _tree + "/src/pilothouse/dropins/qcg/local_manager.py")
_module = sys.modules[_loader.name] = module_from_spec(spec_from_loader(_loader.name, _loader))
_loader.exec_module(_module)
_module.take_over(_here)
