"""What pyproject.toml cannot say: the modules that are generated, and the parts that are compiled if there is a compiler.

With PILOTHOUSE_PURE=1 nothing is compiled, and the wheel fits every machine (py3-none-any).
"""

import os
import re
import runpy
from pathlib import Path
from zlib import crc32

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

WRITTEN_IN_C = (
    "pilothouse.model._masks",
    "pilothouse.policies._backfill_queue",
    "pilothouse.policies._reservation_plan",
    "pilothouse.formats._rows",
    "pilothouse.protocols.batprotocol._codec",
    "pilothouse.worlds.simulated.message_server._rounds",
    "pilothouse.worlds.simulated.physics._sharing",
    "pilothouse.worlds.live.engine._spawn",
)
WRITTEN_IN_PYTHON = ("pilothouse.worlds.simulated.physics._agenda",)
"""Compiled by Cython, if it is there, from a module that runs without it: `_agenda` is made from agenda.py and _agenda.pxd."""
COPIES = Path("build", "cython")


def extension(name: str, source: str) -> Extension:
    return Extension(name, [source], extra_compile_args=["-O2", "-g0", "-ffp-contract=off"], libraries=["m"], optional=True)


def compiled_python() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    made = cythonize(
        [extension(name, str(copy_of(name))) for name in WRITTEN_IN_PYTHON],
        force=True,  # Cython does not notice every change of a .pxd
        language_level=3,
        compiler_directives={"annotation_typing": False, "binding": False, "boundscheck": False, "wraparound": False},
        include_path=["src"],
    )
    for one in made:
        one.optional = True  # Cython forgets it
    return made


def copy_of(name: str) -> Path:
    """A copy of the module for Cython, under the name of the compiled one, with the checksum of the original: see
    model/compiled.py. What has not changed is not written, or it would be compiled again."""
    package, _, module = name.rpartition("._")
    original = Path("src", *package.split("."), f"{module}.py").read_bytes()
    copy = Path(COPIES, *package.split("."), f"_{module}.py")
    text = re.sub(b"^from (heapq|bisect) import", b"from cython.cimports.pilothouse.model._sorted import", original, flags=re.M)
    text += f"\nSOURCE = {crc32(original)}\n".encode()
    if not copy.exists() or copy.read_bytes() != text:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(text)
    return copy


def generate() -> None:
    """Writes the modules that are made from a schema, beside it: they are then built like any other."""
    runpy.run_path(str(Path(__file__).parent / "tools" / "gen_batprotocol.py"))["write"]()


class BuildPy(build_py):
    def run(self) -> None:
        generate()
        super().run()


class BuildExt(build_ext):
    def run(self) -> None:  # by itself in `setup.py build_ext --inplace`
        generate()
        super().run()


def extensions() -> list[Extension]:
    if os.environ.get("PILOTHOUSE_PURE"):
        return []
    return [extension(name, f"src/{name.replace('.', '/')}.c") for name in WRITTEN_IN_C] + compiled_python()


setup(cmdclass={"build_py": BuildPy, "build_ext": BuildExt}, ext_modules=extensions())
