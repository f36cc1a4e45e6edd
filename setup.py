"""The parts that are compiled where a compiler is at hand; everything works without them."""

from setuptools import Extension, setup

COMPILED = (
    "pilothouse.model._masks",
    "pilothouse.policies._line",
    "pilothouse.formats._rows",
    "pilothouse.protocols.batprotocol._codec",
    "pilothouse.worlds.simulated.physics._agenda",
    "pilothouse.worlds.simulated.message_server._rounds",
    "pilothouse.worlds.simulated.physics._sharing",
    "pilothouse.worlds.simulated.message_server._stepped",
    "pilothouse.worlds.live.engine._spawn",
)

setup(
    ext_modules=[
        Extension(
            name,
            [f"src/{name.replace('.', '/')}.c"],
            extra_compile_args=["-O2", "-ffp-contract=off"],
            libraries=["m"],
            optional=True,
        )
        for name in COMPILED
    ]
)
