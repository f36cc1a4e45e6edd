"""What a Batsim 5 reads before it starts: platform, workloads, external events, as strictly as the real one.

In: the options. Out: `Batsim5Inputs`, which makes servers. InputError names the file; the drop-in ends with SIGABRT for it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import msgspec

from pilothouse.dropins.batsim5.options import Options
from pilothouse.dropins.batsim5.outputs import Batsim5Outputs
from pilothouse.dropins.simgrid_settings import check_log, settings
from pilothouse.formats import profile_json, workload_json
from pilothouse.formats.rapidjson_numbers import as_read
from pilothouse.formats.text_input import JSON_PROBLEMS, json_error, read_bytes
from pilothouse.formats.workload import Workload
from pilothouse.model.errors import InputError, quoted
from pilothouse.model.events import Begins, ExternalEvent
from pilothouse.model.profile import Profile, Sequence
from pilothouse.worlds.simulated.message_server.generations import BATSIM5, BATSIM5_ALL_PROBES
from pilothouse.worlds.simulated.message_server.server import Server
from pilothouse.worlds.simulated.message_server.sources import EventSource, JobSource, Source
from pilothouse.worlds.simulated.physics.platform import MASTER, Platform
from pilothouse.worlds.simulated.physics.routing import Zone

_PLATFORM = re.compile(rb"<!DOCTYPE\s+platform\s.*<platform\s[^>]*version=", re.DOTALL)

PROFILE_TYPES = {
    "DelayProfile": ("delay",),
    "ParallelTaskProfile": ("cpu", "com"),
    "ParallelTaskHomogeneousProfile": ("cpu", "com", "generation_strategy"),
    "ParallelTaskOnStorageHomogeneousProfile": ("bytes_to_read", "bytes_to_write", "storage", "generation_strategy"),
    "ParallelTaskDataStagingBetweenStoragesProfile": ("nb_bytes", "from", "to"),
    "SequentialCompositionProfile": ("seq", "repeat"),
    "TraceReplayProfile": ("trace_type", "filename"),
}
"""The kinds of profiles, and their fields."""
NOT_IMPLEMENTED = {"ForkJoinCompositionProfile", "ParallelTaskMergeCompositionProfile"}


class _Job(msgspec.Struct, gc=False):
    walltime: float | msgspec.UnsetType = msgspec.UNSET
    extra_data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Type(msgspec.Struct):
    type: str
    extra_data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Profiles(msgspec.Struct):
    profiles: dict[str, msgspec.Raw]


class _File(_Profiles, kw_only=True):
    jobs: list[_Job]


_Int = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
"""What RapidJSON takes for an integer: others are numbers, and refused where an integer is asked for."""


class _Job32(workload_json.WrittenJob, gc=False):
    id: str | _Int
    res: _Int


class _File32(workload_json.WrittenFile):
    nb_res: _Int
    jobs: list[_Job32]  # type: ignore[assignment]


_STRICT = msgspec.json.Decoder(_File32)
_ODD = (b"null", b"-", b"extra_data")
"""Without these no job can have a walltime or extra data that others read more kindly."""


def read_workload(path: str, name: str, elsewhere: Collection[str] = ()) -> Workload:
    """A workload, where also what no job refers to must be right, and only the words of Batsim 5 are known.

    `elsewhere` are the profiles of the workloads before it.
    """
    data = as_read(read_bytes(path))
    try:
        is_odd = any(mark in data for mark in _ODD)
        file = msgspec.json.decode(data, type=_File if is_odd else _Profiles)
    except JSON_PROBLEMS as problem:
        raise json_error(path, data, problem) from None
    for index, job in enumerate(file.jobs if isinstance(file, _File) else ()):
        if job.walltime is not msgspec.UNSET and not job.walltime > 0:
            where, found = f"{path}: $.jobs[{index}].walltime", f"{job.walltime:g}"
            raise InputError(where, "a walltime", expected="above 0, or none", found=found)
        if job.extra_data is not msgspec.UNSET:
            _refuse_null(job.extra_data, f"{path}: $.jobs[{index}].extra_data")
    base = Path(path).absolute().parent
    for local, raw in file.profiles.items():
        where = f"{path}: $.profiles[{local!r}]"
        try:
            head = msgspec.json.decode(raw, type=_Type)
        except JSON_PROBLEMS as problem:
            raise InputError(where, f"not a profile: {problem}") from None
        if head.extra_data is not msgspec.UNSET:
            _refuse_null(head.extra_data, f"{where}.extra_data")
        kind = head.type
        if b"null" in bytes(raw):
            for field, value in msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).items():
                if field == "ret" or field in PROFILE_TYPES.get(kind, ()):
                    _refuse_null(value, f"{where}.{field}")
        if kind in NOT_IMPLEMENTED:
            raise InputError(where, f"{kind} is not implemented")
        if kind not in PROFILE_TYPES:
            raise InputError(where, "unknown profile type", found=quoted(kind))
        profile = profile_json.parse(raw, local, profile_json.Place(where, name, base))
        repeat = profile.spec.repeat if isinstance(profile.spec, Sequence) else 1
        if not -(2**31) <= profile.return_code < 2**31 or repeat >= 2**31:
            raise InputError(where, "a number of more than 32 bits", expected="an integer of 32 bits")
    try:
        workload = workload_json.parse(data, path, name, elsewhere=elsewhere, decoder=_STRICT)
    except InputError as problem:
        if problem.where.endswith("].res") and problem.problem.startswith("Expected"):
            raise InputError(problem.where, f"a non-number 'res' field: {problem.problem}") from None
        raise
    if b"!" in data:
        for full in (job.id for job in workload.jobs):
            if full.count("!") != 1:
                raise InputError(path, "a job's id with a '!' in it", expected="workload!id", found=quoted(full))
    return workload


def _refuse_null(raw: msgspec.Raw, where: str) -> None:
    if bytes(raw) == b"null":
        raise InputError(where, "a field without a value", found="null")


def given_path(path: str) -> str:
    """QUIRK: a relative path is put behind the working directory as it is, without tidying it."""
    return path if path.startswith("/") else f"{os.getcwd()}/{path}"


class Batsim5Inputs:
    """The input of one run: everything is read and checked before the component is spoken to."""

    def __init__(self, options: Options, arguments: list[str]) -> None:
        self._options = options
        self._settings = settings(options.sg_cfg)
        check_log(options.sg_log)
        self.workloads: list[Workload] = []
        profiles: dict[str, Profile] = {}
        for i, path in enumerate(options.workload):
            workload = read_workload(path, f"w{i}", profiles)
            profiles.update(sorted(workload.profiles.items()))
            self.workloads.append(workload)
        self.events = [self._read_events(path, f"ee{i}") for i, path in enumerate(options.external_events)]
        self.platform = self._read_platform()
        self.begins = Begins(
            nodes=self.platform.nodes(),
            storage=self.platform.storage_nodes(),
            energy=options.energy_host,
            workloads={f"w{i}": given_path(path) for i, path in enumerate(options.workload)},
            external_event_lists={f"ee{i}": given_path(path) for i, path in enumerate(options.external_events)},
            profiles=profiles,
            config={
                "batsim_arguments": ["batsim", *arguments],
                "batsim_execution_context_json": options.execution_context,
            },
        )

    def _read_platform(self) -> Platform:
        options = self._options
        most = options.mmax
        if options.mmax_workload:
            widest = max((workload.units for workload in self.workloads), default=0)
            most = min(most, widest) if most else widest
        if most < 0:
            raise InputError("--mmax", "a number of machines", expected="0 or more", found=str(most))
        if not _PLATFORM.search(read_bytes(options.platform)):
            head = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd"> and <platform version="4.1">'
            raise InputError(options.platform, "not a platform that SimGrid reads", expected=head)
        try:
            platform = Platform.load(
                options.platform,
                generation=5,
                master_host=options.master_host,
                roles={pair[0]: pair[1] for pair in options.add_role},
                most_hosts=most,
                needs_master=True,
                settings=self._settings,
            )
        except InputError as problem:
            raise _in_batsims_words(problem) from None
        zone = platform.host(MASTER).zone
        if type(zone) is Zone:
            raise InputError(options.platform, f"no message reaches the master: its zone {zone.name} has the routing None")
        if platform.compute_count < most:
            raise InputError(
                options.platform, f"cannot compute on {most} machines: there are only {platform.compute_count}"
            )
        return platform

    @staticmethod
    def _read_events(path: str, name: str) -> list[ExternalEvent]:
        from pilothouse.formats import external_events

        found = []
        for event in external_events.read(path, name, strict=True):
            if not isinstance(event, ExternalEvent):
                raise InputError(path, "unknown type of external event", expected="generic")
            found.append(event)
        return found

    def server(self, outputs: Batsim5Outputs) -> Server:
        """A new server, its sources in the order of the files."""
        sources: list[Source] = [JobSource(workload.jobs) for workload in self.workloads]
        sources += [EventSource(events) for events in self.events]
        return Server(
            self.begins,
            sources,
            self.platform,
            BATSIM5_ALL_PROBES if self._options.all_probes else BATSIM5,
            record=outputs.record,
            tracers=outputs.tracers,
            strict=self._options.strict,
        )


def _in_batsims_words(problem: InputError) -> InputError:
    if 'no host has the "master" role' in problem.problem:
        return InputError(problem.where, 'Cannot find the "master" role in the platform: no host has it')
    if "master hosts" in problem.problem:
        return InputError(problem.where, f"There are two master hosts (or more) in the platform: {problem.problem}")
    return problem
