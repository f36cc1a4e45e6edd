"""What is shipped: the recipes agree with pyproject.toml, the wheel without compiled parts works, few packages come along."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import components
import pilothouse

ROOT = components.ROOT
RECIPES = ROOT / "packaging"
SPACK = RECIPES / "spack/spack_repo/pilothouse"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
VERSION = PROJECT["project"]["version"]
MOST_PACKAGES = 4


def bounds(requirements: list[str]) -> dict[str, str]:
    """Package -> the oldest version that will do; "" if any will."""
    return {(parts := re.split(r"\s*>=\s*", text))[0]: [*parts, ""][1] for text in requirements}


NEEDED = bounds(PROJECT["project"]["dependencies"])
TO_BUILD = bounds(PROJECT["build-system"]["requires"])
EXTRAS = {name: bounds(listed) for name, listed in PROJECT["project"]["optional-dependencies"].items()}
PYTHON = PROJECT["project"]["requires-python"].removeprefix(">=")


def test_every_place_says_the_same_version() -> None:
    assert pilothouse.__version__ == VERSION
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == VERSION
    assert re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[0] == VERSION


def test_conda_forge_recipe_agrees() -> None:
    recipe = yaml.safe_load((RECIPES / "conda-forge/recipe.yaml").read_text())
    run = bounds(recipe["requirements"]["run"])
    host = bounds(recipe["requirements"]["host"])
    assert recipe["context"]["version"] == VERSION
    assert run.pop("python") == PYTHON
    assert run == NEEDED
    assert {name: host[name] for name in TO_BUILD} == TO_BUILD
    assert recipe["build"]["python"]["entry_points"] == [f"pilothouse = {PROJECT['project']['scripts']['pilothouse']}"]


def test_spack_package_agrees() -> None:
    found: dict[tuple[str, str], str] = {}
    for node in ast.walk(ast.parse((SPACK / "packages/py_pilothouse/package.py").read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name, text = node.func.id, ast.literal_eval(node.args[0])
            said = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
            if name == "version":
                assert text == VERSION
            if name == "depends_on" and text != "c":
                package, _, oldest = text.removeprefix("py-").partition("@")
                kind = said.get("when", "build" if said["type"] == "build" else "run")
                found[kind, package] = oldest.removesuffix(":")
    assert found.pop(("run", "python")) == PYTHON
    assert {package: oldest for (kind, package), oldest in found.items() if kind == "run"} == NEEDED
    assert {package: oldest for (kind, package), oldest in found.items() if kind == "build"} == TO_BUILD
    for (kind, package), oldest in found.items():
        if kind.startswith("+"):
            assert EXTRAS[kind[1:]][package] == oldest


def test_easybuild_recipe_agrees() -> None:
    (path,) = (RECIPES / "easybuild").glob("*.eb")
    recipe: dict[str, object] = {}
    exec(compile(path.read_text(), str(path), "exec"), recipe)
    toolchain = recipe["toolchain"]
    assert isinstance(toolchain, dict)
    assert path.name == f"pilothouse-{VERSION}-{toolchain['name']}-{toolchain['version']}.eb"
    listed = [entry for key in ("dependencies", "builddependencies", "exts_list") for entry in recipe[key]]  # type: ignore[attr-defined]
    given = {name.lower(): version for name, version, *_ in listed}
    assert given["pilothouse"] == VERSION
    bundled = {"click", "setuptools"}
    assert bundled < {*NEEDED, *TO_BUILD} and "python-bundle-pypi" in given
    for package, oldest in {**NEEDED, **TO_BUILD, "python": PYTHON}.items():
        if package not in bundled:
            assert tuple(map(int, given[package].split("."))) >= tuple(map(int, oldest.split("."))), package


def test_conda_forge_recipe_renders(client_env: Callable[[str], Path]) -> None:
    """rattler-build, which conda-forge uses, makes one package for each Python of it."""
    code = (
        "import sys\nfrom rattler_build import Stage0Recipe, VariantConfig\n"
        "pythons = VariantConfig.from_yaml('python: [3.11.*, 3.14.*]\\nc_compiler: [gcc]\\nc_stdlib: [sysroot]')\n"
        "for made in Stage0Recipe.from_file(sys.argv[1]).render(pythons):\n"
        "    print(made.recipe.package.name, made.recipe.package.version, *made.recipe.requirements.run)"
    )
    command = [client_env("recipes"), "-c", code, RECIPES / "conda-forge/recipe.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    needed = [f"{name} >={oldest}" for name, oldest in NEEDED.items()]
    assert done.stderr == ""
    assert done.stdout.splitlines() == [" ".join(["pilothouse", VERSION, f"python >={PYTHON}", *needed])] * 2


def test_spack_finds_every_package_by_its_folder() -> None:
    """Spack derives the name of a class from that of its folder. It has no msgspec of its own: ours comes along."""
    namespace = yaml.safe_load((SPACK / "repo.yaml").read_text())["repo"]["namespace"]
    assert namespace == SPACK.name
    folders = sorted(SPACK.glob("packages/*"))
    assert [folder.name for folder in folders] == ["py_msgspec", "py_pilothouse"]
    for folder in folders:
        body = ast.parse((folder / "package.py").read_text()).body
        assert [node.name for node in body if isinstance(node, ast.ClassDef)] == [folder.name.title().replace("_", "")]


def test_container_file_has_no_bad_habits(client_env: Callable[[str], Path]) -> None:
    hadolint = client_env("recipes").parent / "hadolint"
    done = subprocess.run([hadolint, RECIPES / "Containerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_container_gets_what_is_committed_alone() -> None:
    """Environments would be copied by the gigabyte, and parts that were compiled for another Python would come along."""
    made_here = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert {line.removeprefix("**/") for line in (ROOT / ".dockerignore").read_text().splitlines()} == made_here | {".git"}


def test_container_file_names_known_extras() -> None:
    named = re.findall(r'\[([\w,]+)\]"', (RECIPES / "Containerfile").read_text())
    assert len(named) == 2 and len(set(named)) == 1
    assert set(named[0].split(",")) <= set(EXTRAS)


def test_few_packages_come_along() -> None:
    """`pip install pilothouse` installs itself and what it needs."""
    found, ahead = set(), ["pilothouse"]
    while ahead:
        name = ahead.pop()
        found.add(name)
        listed = metadata.requires(name) or []
        ahead += [re.split(r"[\s<>=!~;\[]", text)[0] for text in listed if ";" not in text]
    assert found == {"pilothouse", *NEEDED}
    assert len(found) <= MOST_PACKAGES


def test_every_extra_says_what_it_is_for() -> None:
    lines = (ROOT / "pyproject.toml").read_text().splitlines()
    for name in EXTRAS:
        (place,) = [number for number, line in enumerate(lines) if line.startswith(f"{name} = [")]
        assert lines[place - 1].startswith("# "), f"no comment above the extra {name}"


def tool(name: str) -> ModuleType:
    """A program of tools/, as a module."""
    spec = importlib.util.spec_from_file_location(f"pilothouse_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel that has no compiled parts. It was made from the sdist."""
    place = tmp_path_factory.mktemp("wheel")
    tree = place / "tree"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    for name in filter(None, listed.split("\0")):
        if not name.startswith(("tests/", "docs/", "bench/")):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name, follow_symlinks=False)
    if not listed:
        pytest.skip("not a git clone: which files belong to the project is not known")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place), str(tree)]
    subprocess.run(build, env=os.environ | {"PILOTHOUSE_PURE": "1"}, check=True, capture_output=True)
    (wheel,) = place.glob("*.whl")
    assert wheel.name == f"pilothouse-{VERSION}-py3-none-any.whl"
    env = place / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(env)], check=True)
    (site,) = env.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # What it needs comes from the environment of the tests; their editable pilothouse does not.
    (site / "needed.pth").write_text(str(Path(metadata.distribution("msgspec").locate_file(""))))
    return env / "bin" / "python"


def test_no_compiler_is_needed_to_install(installed: Path) -> None:
    """A part that cannot be compiled is left out."""
    code = (
        "import setuptools\nfrom distutils.core import run_setup\n"
        "made = run_setup('setup.py', stop_after='init').ext_modules\n"
        "print(len(made), sorted(one.name for one in made if not one.optional))"
    )
    tree = installed.parents[2] / "tree"
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, text=True, check=True)
    parts = [*(tree / "src").rglob("_*.c"), *(path for path in (tree / "src").rglob("_*.pxd") if path.stem != "_sorted")]
    assert done.stdout.splitlines()[-1] == f"{len(parts)} []"


def test_the_pure_wheel_runs_demo_and_tasks(installed: Path, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [installed, "-m", *words], cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    shown = run("pilothouse", "demo", "a project")
    folder = tmp_path / "a project"
    assert "= 800020000, added up by eight tasks" in shown
    assert "<html" in (folder / "report.html").read_text()
    assert "100 succeeded" in run("pilothouse", "run", "echo {}", ":::", *map(str, range(100)))
    probe = tmp_path / "probe.py"
    probe.write_text(
        "import glob, os, pilothouse\nfrom pilothouse.policies import backfill_queue\n"
        "here = os.path.dirname(pilothouse.__file__)\nprint(glob.glob(here + '/**/*.so', recursive=True), here)\n"
    )
    (site,) = installed.parents[1].glob("lib/python*/site-packages")
    assert run("probe") == f"[] {site}/pilothouse\n"
    assert (site / "snakemake_executor_plugin_pilothouse" / "__init__.py").is_file()  # snakemake looks for a package by its name


def test_a_wheel_that_lacks_a_compiled_part_is_not_made() -> None:
    """setup.py leaves out what does not compile. A release would be slow under one Python, and nothing would say so."""
    wheels = tool("wheels")
    made = {"pilothouse/_a.c": b"", "pilothouse/_a.cpython-311-x86_64-linux-gnu.so": b"GLIBC_2.3"}
    wheels.check_parts(made, 1)
    with pytest.raises(SystemExit, match=r"not compiled for every Python .*: pilothouse/_a$"):
        wheels.check_parts(made, 2)
    with pytest.raises(SystemExit, match=r"pilothouse/_b$"):
        wheels.check_parts({**made, "pilothouse/_b.c": b""}, 1)


def test_a_wheel_says_which_c_library_it_needs() -> None:
    wheels = tool("wheels")
    gnu = {"_a.cpython-311-x86_64-linux-gnu.so": b"GLIBC_2.3 GLIBC_2.28", "_b.cpython-311-x86_64-linux-gnu.so": b"GLIBC_2.9"}
    musl = {"_a.cpython-313-x86_64-linux-musl.so": b""}
    assert wheels.platform_tag(gnu).startswith("manylinux_2_28_")
    assert wheels.platform_tag(musl).startswith("musllinux_1_2_")
    with pytest.raises(SystemExit, match="different C libraries"):
        wheels.platform_tag(gnu | musl)


def test_compiled_parts_fit_old_clusters() -> None:
    """The C library of RHEL 8 is glibc 2.28. That of 2.29 has new versions of some functions (exp, log, pow)."""
    parts = {path.name: path.read_bytes() for path in (ROOT / "src").rglob("*.so")}
    if not parts:
        pytest.skip("nothing is compiled here")
    assert not [name for name, data in parts.items() if b"GLIBC_2.29" in data]


def test_a_bare_machine(installed: Path) -> None:
    """Without root, IPv6, /dev/shm and a home that can be written, all at once. `./do matrix` tries each alone."""
    matrix = tool("matrix")
    _, tasks, simulation = matrix.small_project(installed)
    simulation[simulation.index("-w") + 1] = str(ROOT / "examples" / "tiny.json")
    problem = matrix.attempt("all of these", [tasks, simulation])
    if problem.startswith("not tried"):
        pytest.skip(problem)
    assert not problem
