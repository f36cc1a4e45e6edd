"""Makes what is uploaded: the sdist, one wheel for this platform, and one that fits everywhere.

    python tools/wheels.py [--out dist] [PYTHON...]       default: this Python; ./do wheels names all that are found

Out: pilothouse-V.tar.gz; pilothouse-V-py3-none-manylinux_X_Y_ARCH.whl (musllinux where the C library is musl);
pilothouse-V-py3-none-any.whl, without compiled parts.

The wheel of the platform holds the compiled parts once for each PYTHON. An interpreter loads those whose names end as it
wants (`_masks.cpython-312-x86_64-linux-gnu.so`) and sees no others; one that finds none uses the twins in Python. So there is
one wheel for all versions, as with the stable ABI, which is not used because it costs speed: an int's digits cannot be read
through it (docs/explanation/speed.md has the figures).
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLIBC = re.compile(rb"GLIBC_2\.(\d+)")
OLDEST_GLIBC = 17
OLDEST_MUSL = "1_2"
"""Tags of older ones have other names, or none; no system that has Python 3.11 needs them."""


def build(kind: str, source: Path, out: Path, python: str, **variables: str) -> Path:
    """One sdist or wheel, made by that Python (`python -m build`), which has what that needs."""
    before = set(out.iterdir())
    command = [python, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(out), str(source)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | variables)
    (made,) = set(out.iterdir()) - before
    return made


def merge(wheels: list[Path], out: Path) -> Path:
    """One wheel with the files of all: they differ in compiled parts alone."""
    files: dict[str, bytes] = {}
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                data = archive.read(name)
                if files.setdefault(name, data) != data and not name.endswith((".dist-info/WHEEL", ".dist-info/RECORD")):
                    raise SystemExit(f"{wheel.name}: {name} differs from that of {wheels[0].name}")
    info = next(name.partition("/")[0] for name in files if name.endswith(".dist-info/WHEEL"))
    check_parts(files, len(wheels))
    tag = f"py3-none-{platform_tag(files)}"
    lines = [line for line in files[f"{info}/WHEEL"].decode().splitlines() if line and not line.startswith("Tag:")]
    files[f"{info}/WHEEL"] = "\n".join([*lines, f"Tag: {tag}", ""]).encode()
    del files[f"{info}/RECORD"]
    record = [f"{name},{_digest(data)},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    made = out / f"{info.removesuffix('.dist-info')}-{tag}.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)  # of 1980, whenever it is made
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return made


def check_parts(files: dict[str, bytes], pythons: int) -> None:
    """Every part is there for every Python. A part that does not compile is left out by setup.py, which is right for those who
    install from source and wrong for a release."""
    found = Counter(name.partition(".")[0] for name in files if name.endswith(".so"))
    wanted = {name.removesuffix(".c") for name in files if name.endswith(".c")} | set(found)
    short = sorted(name for name in wanted if found[name] != pythons)
    if short:
        raise SystemExit(f"not compiled for every Python (the compiler's messages are above): {', '.join(short)}")


def platform_tag(files: dict[str, bytes]) -> str:
    """The oldest C library that has every symbol of the compiled parts: a glibc, or a musl, whose symbols have no versions."""
    parts = {name: data for name, data in files.items() if name.endswith(".so")}
    musl = [name for name in parts if name.endswith("-musl.so")]
    if musl and len(musl) < len(parts):
        raise SystemExit("these Pythons have different C libraries: a wheel is for one (make two, with two --out)")
    if musl:
        return f"musllinux_{OLDEST_MUSL}_{platform.machine()}"
    needed = max(int(version) for data in parts.values() for version in GLIBC.findall(data))
    return f"manylinux_2_{max(needed, OLDEST_GLIBC)}_{platform.machine()}"


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("pythons", nargs="*", default=[sys.executable], metavar="PYTHON", help="with build, cython, setuptools")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        sdist = build("sdist", ROOT, place, sys.executable)
        made = [sdist, build("wheel", sdist_tree(sdist, place), place, sys.executable, PILOTHOUSE_PURE="1")]
        wheels = [build("wheel", sdist_tree(sdist, place), place, python) for python in options.pythons]
        made.append(merge(wheels, place))
        for path in made:
            target = options.out / path.name
            target.write_bytes(path.read_bytes())
            print(f"{target} ({target.stat().st_size / 1e6:.2f} MB)")


def sdist_tree(sdist: Path, place: Path) -> Path:
    """The sdist, unpacked anew: wheels are made from what is shipped, not from the clone."""
    folder = Path(tempfile.mkdtemp(dir=place, prefix=".tree-"))
    subprocess.run(["tar", "-xzf", str(sdist), "-C", str(folder), "--strip-components=1"], check=True)
    return folder


if __name__ == "__main__":
    main()
