"""The parts that are compiled where a compiler is at hand; everything works without them."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "pilothouse.worlds.simulated._sharing",
            ["src/pilothouse/worlds/simulated/_sharing.c"],
            extra_compile_args=["-O2", "-ffp-contract=off"],
            optional=True,
        ),
        Extension("pilothouse.worlds.live._spawn", ["src/pilothouse/worlds/live/_spawn.c"], optional=True),
    ]
)
