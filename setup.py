"""The one part that is compiled where a compiler is at hand; everything works without it."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "pilothouse.worlds.simulated._sharing",
            ["src/pilothouse/worlds/simulated/_sharing.c"],
            extra_compile_args=["-O2", "-ffp-contract=off"],
            optional=True,
        )
    ]
)
