"""Profiles in all the types that workloads write, and the errors of each field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilothouse.formats import profile_json
from pilothouse.formats.profile_json import Place, full_name
from pilothouse.model import profile as p
from pilothouse.model.errors import InputError

PLACE = Place("w.json: profile p", "w0", Path("/data"))
T, EACH, TOTAL, UNIFORM = p.TraceKind, p.Spread.EACH, p.Spread.TOTAL, p.Spread.UNIFORM


def read(**written: Any) -> p.Profile:
    return profile_json.parse(msgspec.Raw(json.dumps(written).encode()), "p", PLACE)


@pytest.mark.parametrize(
    ("written", "spec"),
    [
        ({"type": "delay", "delay": 3}, p.Delay(3.0)),
        ({"type": "parallel", "cpu": [1, 2], "com": [0, 1, 2, 3]}, p.ParallelTask((1.0, 2.0), (0.0, 1.0, 2.0, 3.0))),
        ({"type": "ParallelTaskProfile", "cpu": [1, 2]}, p.ParallelTask((1.0, 2.0), ())),
        ({"type": "ParallelTaskProfile", "com": [1, 2, 3, 4]}, p.ParallelTask((), (1.0, 2.0, 3.0, 4.0))),
        ({"type": "parallel_homogeneous", "cpu": 1, "com": 2}, p.HomogeneousTask(1.0, 2.0, EACH)),
        ({"type": "parallel_homogeneous_total", "cpu": 1, "com": 0}, p.HomogeneousTask(1.0, 0.0, TOTAL)),
        (
            {
                "type": "ParallelTaskHomogeneousProfile", "cpu": 1, "com": 2,
                "generation_strategy": "DefinedAmountsSpreadUniformly",
            },
            p.HomogeneousTask(1.0, 2.0, UNIFORM),
        ),
        ({"type": "ParallelTaskHomogeneousProfile", "cpu": 1, "com": 2}, p.HomogeneousTask(1.0, 2.0, EACH)),
        ({"type": "parallel_homogeneous_pfs", "bytes_to_read": 5}, p.StorageTask(5.0, 0.0, "pfs", EACH)),
        ({"type": "parallel_homogeneous_pfs", "bytes_to_write": 6, "storage": "s"}, p.StorageTask(0.0, 6.0, "s", EACH)),
        ({"type": "msg_par_hg_pfs", "com": 7, "host": "h"}, p.StorageTask(0.0, 7.0, "h", EACH)),
        ({"type": "msg_par_hg_pfs", "bytes_to_read": 1, "com": 7}, p.StorageTask(1.0, 0.0, "pfs", EACH)),
        ({"type": "data_staging", "nb_bytes": 9, "from": "a", "to": "b"}, p.StagingTask(9.0, "a", "b")),
        ({"type": "composed", "seq": ["a", "w1!b"]}, p.Sequence(("w0!a", "w1!b"), 1)),
        ({"type": "composed", "seq": ["a"], "nb": 4}, p.Sequence(("w0!a",), 4)),
        ({"type": "composed", "seq": ["a"], "nb": 4, "repeat": 2}, p.Sequence(("w0!a",), 2)),
        ({"type": "ForkJoinCompositionProfile", "seq": ["a", "b"]}, p.ForkJoin(("w0!a", "w0!b"))),
        ({"type": "ParallelTaskMergeCompositionProfile", "seq": ["a"]}, p.Merge(("w0!a",))),
        ({"type": "smpi", "trace": "t/x"}, p.TraceReplay(T.SMPI, "t/x", "/data")),
        ({"type": "usage_trace", "trace": "/y"}, p.TraceReplay(T.USAGE, "/y", "/data")),
        ({"type": "TraceReplayProfile", "trace_type": "SMPI", "filename": "z"}, p.TraceReplay(T.SMPI, "z", "/data")),
        ({"type": "recv"}, p.ReceiveMessage(".*", "", "", "", 0.005)),
        (
            {"type": "recv", "regex": "x", "success": "a", "failure": "b", "timeout": "c", "polltime": 1},
            p.ReceiveMessage("x", "w0!a", "w0!b", "w0!c", 1.0),
        ),
    ],
)  # fmt: skip
def test_every_type(written: dict[str, Any], spec: p.Spec) -> None:
    assert read(**written).spec == spec


@pytest.mark.parametrize(
    "written",
    [
        {"type": "delay"},
        {"type": "delay", "delay": 0},
        {"type": "delay", "delay": -1},
        {"type": "delay", "delay": "x"},
        {"type": "parallel", "cpu": [1, 2]},
        {"type": "parallel", "com": [1, 2, 3, 4]},
        {"type": "parallel", "cpu": [1, 2], "com": [1, 2, 3]},
        {"type": "parallel", "cpu": [1, -2], "com": [0, 0, 0, 0]},
        {"type": "parallel", "cpu": 1, "com": [0]},
        {"type": "ParallelTaskProfile"},
        {"type": "ParallelTaskProfile", "com": [1, 2, 3]},
        {"type": "parallel_homogeneous", "cpu": 1},
        {"type": "parallel_homogeneous", "cpu": 1, "com": -1},
        {"type": "parallel_homogeneous_pfs"},
        {"type": "data_staging", "nb_bytes": 9, "from": 1, "to": "b"},
        {"type": "composed", "seq": []},
        {"type": "composed", "seq": ["a"], "repeat": 0},
        {"type": "smpi"},
        {"type": "smpi", "trace": ""},
        {"type": "TraceReplayProfile", "trace_type": "x", "filename": "z"},
        {"type": "TraceReplayProfile", "trace_type": "SMPI"},
        {"type": "send"},
        {"type": "send", "msg": "x", "sleeptime": 0},
        {"type": "recv", "polltime": 1e-300},
        {"type": "recv", "polltime": 0},
        {"type": "recv", "polltime": 9e-7},
        {"type": "nothing"},
        {"type": "delay", "delay": 1, "extra_data": 5},
    ],
)
def test_what_is_refused(written: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^w\.json: profile p: "):
        read(**written)


def test_messages_are_kept_as_they_are() -> None:
    sent = read(type="send", msg={"a": [1]}, sleeptime=2).spec
    assert isinstance(sent, p.SendMessage) and (bytes(sent.message), sent.seconds) == (b'{"a": [1]}', 2.0)


def test_extra_data_is_text_or_compact_json() -> None:
    assert read(type="delay", delay=1).extra_data is None
    assert read(type="delay", delay=1, extra_data="x").extra_data == "x"
    assert read(type="delay", delay=1, extra_data={"a": [1, 2]}).extra_data == '{"a":[1,2]}'


def test_names_with_their_workload() -> None:
    assert [full_name("w0", "p"), full_name("w0", "w1!p"), full_name("", "p")] == ["w0!p", "w1!p", "p"]
    assert read(type="delay", delay=1).name == "w0!p"


def test_profiles_of_equal_content() -> None:
    one, other, third = p.Profile("a", p.Delay(1.0)), p.Profile("b", p.Delay(1.0)), p.Profile("a", p.Delay(2.0))
    assert p.is_same(one, other) and not p.is_same(one, third)
    assert not p.is_same(one, p.Profile("a", p.Delay(1.0), 1)) and not p.is_same(one, p.Profile("a", p.Delay(1.0), 0, "x"))
    written = read(type="delay", delay=1)
    assert p.is_same(written, read(delay=1, type="delay")) and not p.is_same(written, read(type="delay", delay=1, x=2))


def test_types_of_other_generations() -> None:
    profile_json.refuse_other_generations(msgspec.Raw(b'{"type": "delay"}'), PLACE)
    with pytest.raises(InputError, match="Batsim 4 does not know"):
        profile_json.refuse_other_generations(msgspec.Raw(b'{"type": "DelayProfile"}'), PLACE)
