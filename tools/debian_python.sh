#!/bin/sh
# Builds a CPython from Debian's sources: sh tools/debian_python.sh 3.14.7 FOLDER [musl]
# For a machine that reaches a Debian mirror and no other place with interpreters. Then FOLDER/bin/python3.14 is one of
#   PYTHONS="$(command -v python3.13) FOLDER/bin/python3.14" ./do wheels
# With `musl` it is linked against musl, as Alpine's is (Debian package musl-tools): no wheel for glibc fits it.
# Needs gcc, make, curl and, but for musl, Debian's packages libssl-dev libsqlite3-dev libffi-dev zlib1g-dev; for musl, tcl.
set -eu
version=$1 libc=${3:-glibc} mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
mkdir -p "$2" && cd "$2"
prefix=$PWD series=${version%.*}

unpack() {  # POOL_FOLDER ARCHIVE: into ./src/NAME
    name=${2%%_*}
    mkdir -p "src/$name"
    curl --fail --silent --show-error "$mirror/pool/main/$1/$2" >"src/$2"
    tar -xf "src/$2" -C "src/$name" --strip-components=1
}

quietly() { nice "$@" >>"$prefix/build.log" 2>&1 || { tail -5 "$prefix/build.log" >&2; exit 1; }; }

if [ "$libc" = musl ]; then
    # What Debian has for glibc only: three libraries, and the kernel's headers.
    mkdir -p include lib
    for headers in linux asm-generic; do ln -sfn /usr/include/$headers include/$headers; done
    ln -sfn "/usr/include/$(uname -m)-linux-gnu/asm" include/asm
    unpack z/zlib zlib_1.2.13.dfsg.orig.tar.bz2
    (cd src/zlib && CC=musl-gcc CFLAGS="-O2 -fPIC" quietly ./configure --static --prefix="$prefix" && quietly make install)
    unpack libf/libffi libffi_3.4.4.orig.tar.gz
    (cd src/libffi && quietly ./configure CC=musl-gcc --prefix="$prefix" --libdir="$prefix/lib" --disable-shared --with-pic \
        && quietly make install)
    unpack s/sqlite3 sqlite3_3.40.1.orig.tar.xz
    (cd src/sqlite3 && quietly ./configure && quietly make sqlite3.c && quietly musl-gcc -O2 -fPIC -c sqlite3.c \
        && ar rcs "$prefix/lib/libsqlite3.a" sqlite3.o && cp sqlite3.h "$prefix/include/")
    export CC=musl-gcc CPPFLAGS="-I$prefix/include" LDFLAGS="-L$prefix/lib" PKG_CONFIG=false
    export LIBFFI_CFLAGS="-I$prefix/include" LIBFFI_LIBS="-L$prefix/lib -lffi" ZLIB_CFLAGS="-I$prefix/include" ZLIB_LIBS="-L$prefix/lib -lz"
    export LIBSQLITE3_CFLAGS="-I$prefix/include" LIBSQLITE3_LIBS="-L$prefix/lib -lsqlite3 -lm"
fi
unpack "p/python$series" "python${series}_$version.orig.tar.xz"
cd "src/python$series"
quietly ./configure --prefix="$prefix" --disable-test-modules
quietly make -j "$(nproc)"
quietly make install
"$prefix/bin/python$series" -c 'import ctypes, sqlite3, sys, zlib; print(sys.executable, sys.version)'
