#!/bin/sh
# Tries the wheels of dist/ in an empty Debian, as a plain user, without a compiler: sh tools/in_chroot.sh FOLDER [SUITE] [PYTHON]
#   FOLDER  made by debootstrap if it is not there       SUITE  bookworm, trixie, ...      PYTHON  python3, python3.14, ...
# Needs root and debootstrap. Prints what each step prints; ends with 0 if all went well.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
root=$1 suite=${2:-bookworm} python=${3:-python3}
if [ ! -x "$root/usr/bin/$python" ]; then
    debootstrap --variant=minbase --include="$python,$python-venv,ca-certificates" "$suite" "$root" >"$root.log"
fi
cp /etc/resolv.conf "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
rm -rf "$root/wheels" "$root/home/user"
cp -r "$here/dist" "$root/wheels"
mkdir -p "$root/home/user"
chown 1000:1000 "$root/home/user"
mount -t proc proc "$root/proc"
trap 'umount "$root/proc"' EXIT
chroot --userspec=1000:1000 "$root" env -i HOME=/home/user PATH=/usr/bin:/bin PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHON="$python" sh -eu <<'END'
cd
if command -v gcc cc; then echo "there is a compiler here"; exit 1; fi
echo "== $(id -u) $(. /etc/os-release; echo "$PRETTY_NAME"), $($PYTHON --version)"
$PYTHON -m venv env
env/bin/pip install --quiet --find-links /wheels pilothouse
PATH=$HOME/env/bin:$PATH
echo "== $(pip list --format freeze | grep -v '^pip\|^setuptools' | tr '\n' ' ')"
python -c 'import importlib.util as u; print("== compiled parts:", u.find_spec("pilothouse.model._masks") is not None)'
pilothouse demo
pilothouse run 'echo {}' ::: $(seq 100)
pilothouse simulate -p 100 -w pilothouse-demo/kth-sp2-5000.swf.gz --policy conservative
pilothouse shims shims && PATH=$HOME/shims:/usr/bin:/bin batsim --version
END
