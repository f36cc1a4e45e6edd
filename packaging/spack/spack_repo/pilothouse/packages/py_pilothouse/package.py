# SPDX-License-Identifier: Apache-2.0

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyPilothouse(PythonPackage):
    """Write a scheduler once, and steer with it a simulated cluster, the tasks of your own allocation, or a resource manager.
    Drop-in commands replace Batsim, disBatch and QCG-PilotJob."""

    pypi = "pilothouse/pilothouse-0.1.0.tar.gz"

    license("Apache-2.0")

    # A release replaces the zeros by the checksum of its sdist.
    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    variant("ui", default=True, description="Screens of watch and step")
    variant("plot", default=False, description="Figures")
    variant("redis", default=False, description="Schedulers and tasks that keep data in Redis")

    depends_on("c", type="build")
    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-cython@3:", type="build")

    depends_on("py-msgspec@0.19:", type=("build", "run"))
    depends_on("py-pyzmq@26:", type=("build", "run"))
    depends_on("py-click@8.1:", type=("build", "run"))

    depends_on("py-rich@13:", type=("build", "run"), when="+ui")
    depends_on("py-matplotlib@3.8:", type=("build", "run"), when="+plot")
    depends_on("py-redis@5:", type=("build", "run"), when="+redis")
