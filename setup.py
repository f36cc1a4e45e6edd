"""What pyproject.toml cannot say: the modules that are generated, and the parts that are compiled if there is a compiler."""

import runpy
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

COMPILED = (
    "pilothouse.model._masks",
    "pilothouse.policies._backfill_queue",
    "pilothouse.formats._rows",
    "pilothouse.protocols.batprotocol._codec",
    "pilothouse.worlds.simulated.physics._agenda",
    "pilothouse.worlds.simulated.message_server._rounds",
    "pilothouse.worlds.simulated.physics._sharing",
    "pilothouse.worlds.simulated.message_server._stepped",
    "pilothouse.worlds.live.engine._spawn",
)


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


setup(
    cmdclass={"build_py": BuildPy, "build_ext": BuildExt},
    ext_modules=[
        Extension(
            name,
            [f"src/{name.replace('.', '/')}.c"],
            extra_compile_args=["-O2", "-ffp-contract=off"],
            libraries=["m"],
            optional=True,
        )
        for name in COMPILED
    ],
)
