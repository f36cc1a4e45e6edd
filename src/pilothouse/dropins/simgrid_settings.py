"""SimGrid's settings (`--sg-cfg NAME:VALUE`) and log controls (`--sg-log CATEGORY.KEY:VALUE`), checked as SimGrid does.

In: the words of the options. Out: settings by name, of which a platform uses those that its model knows; InputError for a
name that no SimGrid of Batsim 4 or 5 has, and for a value of the wrong kind.
"""

from __future__ import annotations

from collections.abc import Iterable

from pilothouse.model.errors import InputError, quoted

_NAMES = {
    "a number": """
        bmf/max-iterations bmf/precision cmonkey/host cmonkey/link cmonkey/pid cmonkey/time contexts/guard-size
        contexts/nthreads contexts/stack-size debug/breakpoint maxmin/concurrency-limit maxmin/precision
        model-check/befs-threshold model-check/cached-states-interval model-check/checkpoint model-check/k-alternatives
        model-check/max-depth model-check/max-errors model-check/rand-seed model-check/timeout-soft model-check/visited
        network/TCP-gamma network/loopback-bw network/loopback-lat network/weight-S plugin/dvfs/max-pstate
        plugin/dvfs/min-pstate plugin/dvfs/sampling-rate precision/timing precision/work-amount smpi/async-small-thresh
        smpi/auto-shared-malloc-thresh smpi/cpu-threshold smpi/init smpi/iprobe smpi/iprobe-cpu-usage smpi/list-leaks
        smpi/map smpi/np smpi/send-is-detached-thresh smpi/shared-malloc-blocksize smpi/test smpi/wtime
        storage/max_file_descriptors surf/precision tracing/precision
    """,
    "yes or no": """
        cmonkey/tell cpu/maxmin-selective-update debug/clean-atexit debug/fullstack debug/lmm-leaks debug/verbose-exit
        exception/cutpath help-nostop model-check/communications-determinism model-check/debug
        model-check/debug-soundness model-check/no-fork model-check/output-lts model-check/search-critical
        model-check/send-determinism model-check/termination model-check/timeout model-check/unfolding-checker
        network/crosstraffic network/maxmin-selective-update smpi/barrier-collectives smpi/barrier-finalization
        smpi/display-allocs smpi/display-timing smpi/errors-are-fatal smpi/finalization-barrier
        smpi/grow-injected-times smpi/keep-temps smpi/pedantic smpi/simulate-computation smpi/trace-call-location
        smpi/trace-call-use-absolute-path tracing tracing/actor tracing/basic tracing/categorized
        tracing/disable-destroy tracing/disable_link tracing/disable_power tracing/platform tracing/platform/topology
        tracing/smpi tracing/smpi/computing tracing/smpi/display-sizes tracing/smpi/format/ti-one-file
        tracing/smpi/group tracing/smpi/internals tracing/smpi/sleeping tracing/uncategorized tracing/vm
    """,
    "": """
        contexts/factory contexts/synchro cpu/model cpu/optim cpu/solver disk/model disk/solver host/model host/solver
        model-check model-check/dot-output model-check/exploration-algo model-check/property model-check/reduction
        model-check/replay model-check/setenv model-check/strategy network/bandwidth-factor network/latency-factor
        network/model network/optim network/solver ns3/NetworkModel ns3/TcpModel ns3/seed path plugin
        plugin/dvfs/governor smpi/IB-penalty-factors smpi/allgather smpi/allgatherv smpi/allreduce smpi/alltoall
        smpi/alltoallv smpi/barrier smpi/bcast smpi/buffering smpi/bw-factor smpi/coll-selector
        smpi/comp-adjustment-file smpi/gather smpi/host-speed smpi/hostfile smpi/lat-factor smpi/ois smpi/or smpi/os
        smpi/papi-events smpi/privatization smpi/privatize-libs smpi/reduce smpi/reduce_scatter smpi/replay
        smpi/scatter smpi/shared-malloc smpi/shared-malloc-hugepage smpi/tmpdir storage/model tracing/comment
        tracing/comment-file tracing/filename tracing/smpi/format vm/model
    """,
}
SETTINGS = {name: kind for kind, names in _NAMES.items() for name in names.split()}
"""What the SimGrid of Batsim 4 (3.32) or of Batsim 5 (4.0) knows -> the kind of its value ("": any text)."""
_YES_OR_NO = frozenset({"yes", "on", "true", "1", "no", "off", "false", "0"})
_LOG_KEYS = ("threshold", "additivity", "appender", "fmt")
_LOG_LEVELS = ("trace", "debug", "verbose", "info", "warning", "error", "critical")


def settings(words: Iterable[str]) -> dict[str, str]:
    """Name -> value; a word may hold several settings, with commas or blanks between them."""
    found: dict[str, str] = {}
    for word in words:
        for one in word.replace(",", " ").split():
            name, colon, value = one.partition(":")
            if not colon:
                raise InputError("--sg-cfg", "a setting of SimGrid", expected="name:value", found=quoted(one))
            kind = SETTINGS.get(name)
            if kind is None:
                from difflib import get_close_matches

                near = get_close_matches(name.replace("_", "-"), SETTINGS, 1)
                hint = f"did you mean {near[0]}?" if near else ""
                raise InputError("--sg-cfg", "SimGrid has no such setting", found=quoted(name), hint=hint)
            if not _is_a(kind, value):
                raise InputError("--sg-cfg", name, expected=kind, found=quoted(value))
            found[name] = value
    return found


def _is_a(kind: str, value: str) -> bool:
    if kind == "yes or no":
        return value.lower() in _YES_OR_NO
    try:
        return kind == "" or float(value) is not None
    except ValueError:
        return False


def check_log(words: Iterable[str]) -> None:
    """Refuses log controls that SimGrid refuses. They have no effect here."""
    for word in words:
        for one in word.split():
            name, _, value = one.replace("=", ":").partition(":")
            category, dot, key = name.partition(".")
            full = next((known for known in _LOG_KEYS if key and known.startswith(key)), "")
            if not (category and dot and full and value):
                expected = "category.key:value (keys: " + ", ".join(_LOG_KEYS) + ")"
                raise InputError("--sg-log", "a log control of SimGrid", expected=expected, found=quoted(one))
            if full == "threshold" and value.lower() not in _LOG_LEVELS:
                raise InputError("--sg-log", f"{category}.threshold", expected=", ".join(_LOG_LEVELS), found=quoted(value))
