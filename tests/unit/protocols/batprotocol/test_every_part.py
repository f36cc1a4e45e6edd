"""batprotocol part by part: sets of hosts, triggers, probes, hosts, progress; and how a component's replies are dated."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilothouse.core.cluster import Cluster
from pilothouse.model import decisions as d
from pilothouse.model import events as e
from pilothouse.model import profile as p
from pilothouse.model.errors import InputError, PeerError
from pilothouse.model.idset import IdSet
from pilothouse.model.job import Job, Node
from pilothouse.model.lifecycle import FINAL, JobState
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.codec import Format, decode, encode
from pilothouse.protocols.batprotocol.decider import EdcDecider, edc_decider
from pilothouse.protocols.batprotocol.decisions import MOST_UNITS, DecisionReader, read_units, write_decision
from pilothouse.protocols.batprotocol.events import EventReader, EventWriter
from pilothouse.protocols.batprotocol.hello import read_hello, read_wants, write_hello
from pilothouse.protocols.batprotocol.jobs import read_job, read_profile, write_job
from pilothouse.protocols.batprotocol.scheduler import SchedulerSide
from pilothouse.protocols.batprotocol.wire import Malformed

DELAY = p.Profile("w!d", p.Delay(5.0))


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("", []), ("3", [3]), ("0 2", [0, 2]), ("0-2 7", [0, 1, 2, 7]), ("5-5", [5]), ("3  1", [1, 3]), ("0,1", [0]),
        ("+4", [4]), ("1x-3y", [1, 2, 3]), ("1--3", [1, 2, 3]), ("9999999", [9999999]), ("00000001", [1]),
    ],
)  # fmt: skip
def test_sets_of_hosts(text: str, units: list[int]) -> None:
    assert read_units(text, "hosts") == IdSet.of(units)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (" 3", "is not a set of ids: ''"), ("3 ", "is not a set of ids: ''"),
        ("1- +2", "hosts: .* '1-' is neither"), ("-3", "'-3' is neither"),
        ("3-1", "'3-1' runs backwards"), (f"{MOST_UNITS}", f"{MOST_UNITS} is above {MOST_UNITS - 1}, the highest id"),
        (f"0-{MOST_UNITS}", "the highest id"), ("0  ", "is not a set of ids"), ("1234567890", "the highest id"),
    ],
)  # fmt: skip
def test_what_is_no_set_of_hosts(text: str, problem: str) -> None:
    with pytest.raises(Malformed, match=problem):
        read_units(text, "hosts")


@pytest.mark.parametrize(
    ("call", "trigger"),
    [
        (d.CallAt(1.0, 10.0, "c"), m.OneShot(10, m.TimeUnit.Second)),
        (d.CallAt(1.0, 10.0001, "c"), m.OneShot(10001, m.TimeUnit.Millisecond)),
        (d.CallAt(1.0, 0.5, "c"), m.OneShot(500, m.TimeUnit.Millisecond)),
        (d.CallEvery(1.0, 3.0, "c"), m.Periodic(3, 0, m.TimeUnit.Second, m.Infinite())),
        (d.CallEvery(1.0, 3.0, "c", 2), m.Periodic(3, 0, m.TimeUnit.Second, m.FinitePeriodNumber(2))),
        (d.CallEvery(1.0, 0.0304, "c"), m.Periodic(30, 0, m.TimeUnit.Millisecond, m.Infinite())),
        (d.CallEvery(1.0, 0.0001, "c"), m.Periodic(1, 0, m.TimeUnit.Millisecond, m.Infinite())),
    ],
)
def test_calls_are_in_seconds_or_milliseconds(call: d.CallAt | d.CallEvery, trigger: m.TemporalTrigger) -> None:
    assert write_decision(call) == m.CallMeLaterEvent("c", trigger)
    assert write_decision(msgspec.structs.replace(call, at=1.5, call_id="")) == m.CallMeLaterEvent("call 1.500000000", trigger)


@pytest.mark.parametrize(
    ("trigger", "call"),
    [
        (m.OneShot(7, m.TimeUnit.Second), d.CallAt(1.0, 7.0, "c")),
        (m.OneShot(7, m.TimeUnit.Millisecond), d.CallAt(1.0, 0.007, "c")),
        (m.Periodic(7, 0, m.TimeUnit.Second, m.Infinite()), d.CallEvery(1.0, 7.0, "c", 0)),
        (m.Periodic(1500, 0, m.TimeUnit.Millisecond, m.FinitePeriodNumber(1)), d.CallEvery(1.0, 1.5, "c", 1)),
    ],
)
def test_triggers_are_read(trigger: m.TemporalTrigger, call: d.Decision) -> None:
    assert DecisionReader().read(m.CallMeLaterEvent("c", trigger), 1.0) == call


PROBES = [
    {"metric": metric, "aggregation": aggregation, "accumulate": accumulate, "only_if": only_if}
    for metric, aggregation, accumulate, only_if in zip(
        [*d.Metric] * 4, [*d.Aggregation] * 5, [None, *d.Cumulative] * 5, [None, *d.Comparison] * 4, strict=False
    )
]


@pytest.mark.parametrize("more", PROBES)
def test_probes_of_every_kind_come_back(more: dict[str, Any]) -> None:
    whens: tuple[dict[str, Any], ...] = ({}, {"when": 4.5}, {"period": 2.5}, {"period": 2.0, "count": 3})
    for when in whens:
        for reset in ({}, {"reset_to": 0.0}, {"per_second": True, "reset_to": 1.5}):
            wanted: dict[str, Any] = {**more, **when, **(reset if more["accumulate"] is not None else {})}
            wanted |= {"threshold": 2.5} if more["only_if"] is not None else {}
            wanted |= {"quantile": 0.25} if more["aggregation"] is d.Aggregation.QUANTILE else {}
            probe = d.CreateProbe(1.0, "p", units=IdSet.of([1, 2]), **wanted)
            assert DecisionReader().read(write_decision(probe), 1.0) == probe


def test_probe_data_names_what_was_measured() -> None:
    writer = EventWriter(d.Wants())
    unknown = writer.write(e.ProbeData(1.0, "p", (1.5, 2.5), aggregated=False, emitted=2, triggered=3))
    assert unknown == m.ProbeDataEmittedEvent("p", None, m.Metrics.Power, m.VectorialProbeData([1.5, 2.5]), False, 2, 3)
    for links, resources in ((("l", "k"), m.LinkResources(["l", "k"])), ((), m.HostResources("0 2"))):
        writer.note(d.CreateProbe(0.0, "p", d.Metric.NETWORK_LOAD, IdSet.of([0, 2]), links=links))
        event = writer.write(e.ProbeData(1.0, "p", (1.5,), aggregated=True, triggered_by_hand=True))
        assert isinstance(event, m.ProbeDataEmittedEvent)
        assert (event.resources, event.metrics, event.data) == (resources, m.Metrics.NetworkLoad, m.AggregatedProbeData(1.5))
    for data in (None, m.VectorialProbeData(None)):
        read = EventReader().read(m.ProbeDataEmittedEvent("p", data=data), 1.0)
        assert isinstance(read, e.ProbeData) and read.values == () and not read.aggregated


def test_calls_that_are_the_last_of_a_series() -> None:
    writer, reader = EventWriter(d.Wants()), EventReader()
    for last in (True, False):
        assert writer.write(e.CallArrived(1.0, "c", last)) == m.RequestedCallEvent("c", False)
        assert reader.read(m.RequestedCallEvent("c", last), 1.0) == e.CallArrived(1.0, "c", True)
    for side in (writer, reader):
        side.note(d.CallEvery(0.0, 1.0, "c"))
        side.note(d.CallAt(0.0, 1.0, "d"))
    for last in (True, False):
        assert writer.write(e.CallArrived(1.0, "c", last)) == m.RequestedCallEvent("c", last)
        assert writer.write(e.CallArrived(1.0, "d", last)) == m.RequestedCallEvent("d", False)
        assert reader.read(m.RequestedCallEvent("c", last), 1.0) == e.CallArrived(1.0, "c", last)


def test_hosts_are_written_with_what_is_known_of_them() -> None:
    of_a = {"properties": {"z": "1", "b": "2"}, "zone_properties": {"k": "v"}, "speeds": (2.0, 1.0), "power_state": 1}
    nodes = (Node("a", 3, 2, cores=4, **of_a), Node("b", 7))  # type: ignore[arg-type]
    config: dict[str, object] = {"batsim_execution_context_json": '{"x":1}', "batsim_arguments": ["a", 3]}
    begins = e.Begins(nodes, (Node("s", 9, 2),), workloads={"w": "/w"}, profiles={"w!d": DELAY}, config=config,
                      external_event_lists={"l": "/l"})  # fmt: skip
    writer = EventWriter(d.Wants())
    found = writer.write_begins(begins)
    assert writer.profiles == {"w!d": DELAY} and found.profiles == []
    properties, zone = [m.HostProperty("b", "2"), m.HostProperty("z", "1")], [m.HostProperty("k", "v")]
    assert found.computation_hosts == [
        m.Host("a:0", 3, 1, 2, m.HostState.IDLE, properties, zone, 4, [2.0, 1.0]),
        m.Host("a:1", 4, 1, 2, m.HostState.IDLE, properties, zone, 4, [2.0, 1.0]),
        m.Host("b", 7, 0, 1, m.HostState.IDLE, [], [], nodes[1].cores, [1.0]),
    ]
    assert (found.host_number, found.computation_host_number, found.storage_host_number) == (4, 3, 1)
    assert (found.batsim_execution_context_json, found.batsim_arguments) == ('{"x":1}', ["a", "3"])
    assert found.workloads == [m.WorkloadAndFilename("w", "/w")]
    assert found.external_event_lists == [m.ExternalEventListAndFilename("l", "/l")]
    assert (found.batprotocol_version, found.batsim_version, found.batsim_commit) == ("1.0.0", "v5.0.0-rc2", "")
    odd = EventWriter(d.Wants()).write_begins(e.Begins((), config={"batsim_execution_context_json": 3, "batsim_arguments": 3}))
    assert (odd.batsim_execution_context_json, odd.batsim_arguments) == ("{}", [])
    back = EventReader()
    back.read(found, 2.5)
    assert back.begins is not None and back.begins.started_at == 2.5 and back.begins.storage[0].name == "s:0"
    assert back.begins.config == {**config, "batsim_arguments": ["a", "3"], "batsim_version": "v5.0.0-rc2"}


@pytest.mark.parametrize("code", [0, 1, 255, -1, -9, 2**31 - 1, -(2**31)])
def test_return_codes_are_32_bits_with_a_sign(code: int) -> None:
    event = EventWriter(d.Wants()).write(e.JobEnded(1.0, "j", JobState.FAILED, code, IdSet.of([1])))
    assert isinstance(event, m.JobCompletedEvent) and 0 <= event.return_code < 2**32
    back = EventReader()
    back.note(d.StartJob(0.0, "j", IdSet.of([1])))
    assert back.read(event, 1.0) == e.JobEnded(1.0, "j", JobState.FAILED, code, IdSet.of([1]))
    assert back.read(event, 1.0) == e.JobEnded(1.0, "j", JobState.FAILED, code, IdSet()), "its units are told once"


def test_every_final_state_has_a_word() -> None:
    for state in FINAL:
        event = EventWriter(d.Wants()).write(e.JobEnded(1.0, "j", state, 0, IdSet()))
        assert isinstance(event, m.JobCompletedEvent)


def test_profiles_are_told_with_kills_only_on_demand() -> None:
    job = Job("w!1", 1, profile=DELAY)
    for wanted, profiles in ((None, None), (True, ["w!d"])):
        writer = EventWriter(d.Wants(forward_profiles_on_kill=wanted))
        writer.write(e.JobSubmitted(0.0, job))
        writer.write(e.JobSubmitted(0.0, Job("w!2", 1)))
        killed = writer.write(e.JobsKilled(1.0, ("w!1", "w!2"), {"w!1": e.Progress("w!d", 0.5), "w!2": e.Progress("", 0.0)}))
        assert isinstance(killed, m.JobsKilledEvent)
        assert (None if killed.profiles is None else [profile.id for profile in killed.profiles]) == profiles
        assert writer.profiles == {"w!d": DELAY}
    unknown = EventWriter(d.Wants(forward_profiles_on_kill=True)).write(e.JobsKilled(1.0, ("x",), {"x": e.Progress("", 0.0)}))
    assert isinstance(unknown, m.JobsKilledEvent) and unknown.profiles == []


@pytest.mark.parametrize(
    ("event", "data"),
    [
        (e.UnitsAvailable(1.0, IdSet.of([0, 1])), '{"type":"UnitsAvailable","units":"0-1"}'),
        (e.WalltimeChanged(1.0, "j", 7.5), '{"type":"WalltimeChanged","job_id":"j","walltime":7.5}'),
        (e.PrioritiesChanged(1.0, {"j": 2.0}), '{"type":"PrioritiesChanged","priorities":{"j":2.0}}'),
        (e.NodesLeft(1.0, ("a",), IdSet.of([3])), '{"type":"NodesLeft","units":"3","names":["a"]}'),
    ],
)
def test_events_without_a_word(event: e.Event, data: str) -> None:
    assert EventWriter(d.Wants()).write(event) is None
    name = f"pilothouse!{type(event).__name__}"
    written = m.ExternalEventOccurredEvent(name, m.GenericExternalEvent(data))
    assert EventWriter(d.Wants(forward_unknown_events=True)).write(event) == written
    assert EventReader().read(written, 1.0) == e.ExternalEvent(1.0, name, "generic", data)
    assert EventReader().read(m.ExternalEventOccurredEvent(None, None), 1.0) == e.ExternalEvent(1.0, "", "generic", "")


def test_jobs_are_written_and_read() -> None:
    assert write_job(Job("w!1", 4, 60.0, profile=DELAY, extra_data="x")) == m.Job(4, 60.0, "x", True, "w!d")
    assert write_job(Job("w!1", 4, most_units=8)) == m.Job(4, None, "", False, "")
    assert write_job(Job("w!1", 4, most_units=4)).rigid
    known = {"w!d": DELAY}
    for walltime, read in ((None, inf), (-1.0, inf), (0.0, 0.0), (5.0, 5.0)):
        job = read_job("w!1", m.Job(2, walltime, "", True, "d"), known.get, 3.0)
        assert (job.walltime, job.units, job.submitted_at, job.profile, job.extra_data) == (read, 2, 3.0, DELAY, None)
    assert read_job("v!1", m.Job(2, None, "x", True, "w!d"), known.get, 0.0).profile is DELAY
    assert read_job("v!1", m.Job(2, None, "x", True, "d"), known.get, 0.0).profile is None


def test_parts_of_profiles_belong_to_the_workload() -> None:
    parts = m.SequentialCompositionProfile(["a", "v!b"], 2)
    assert read_profile(m.ProfileAndId("w!s", parts)).spec == p.Sequence(("w!a", "v!b"), 2)
    assert read_profile(m.ProfileAndId("s", parts)).spec == p.Sequence(("a", "v!b"), 2)
    with pytest.raises(Malformed, match="Invalid registration of profile 'w!d'"):
        read_profile(m.ProfileAndId("w!d", m.DelayProfile(-1.0)))


def test_the_first_profile_of_a_name_counts() -> None:
    reader = DecisionReader({"w!d": DELAY})
    other = m.ProfileAndId("w!d", m.DelayProfile(9.0))
    again = reader.read(m.RegisterProfileEvent(other), 1.0)
    assert isinstance(again, d.RegisterProfile) and again.profile.spec == p.Delay(9.0)
    assert reader.profiles == {"w!d": DELAY}
    events = EventReader()
    events.profiles["w!d"] = DELAY
    found = events.read(m.JobSubmittedEvent("w!1", m.Job(1, profile_id="w!d"), 0.0, other), 1.0)
    assert isinstance(found, e.JobSubmitted) and found.job.profile is DELAY


# ---- hello and turns


@pytest.mark.parametrize("name", [
    "dynamic_registration", "acknowledge_registration", "profile_reuse", "forward_profiles", "forward_profiles_on_kill",
    "forward_profiles_at_begin", "forward_unknown_events", "compute_sharing", "storage_sharing", "exact_count", "least_count",
])  # fmt: skip
def test_every_wish_of_a_hello_comes_back(name: str) -> None:
    plain = read_wants(read_hello(write_hello("n", "v", d.Wants())))
    assert plain == d.Wants(False, False, False, False, False, False, False, False, True, True, False)
    for value in (True, False):
        found = read_wants(read_hello(write_hello("n", "v", d.Wants(**{name: value}))))
        assert getattr(found, name) is value
        others = {"exact_count", "least_count", name} if "count" in name else {name}
        for other in d.Wants.__struct_fields__:
            assert other in others or getattr(found, other) == getattr(plain, other)
    hello = read_hello(write_hello("n", "v", d.Wants()))
    assert (hello.decision_component_name, hello.decision_component_version) == ("n", "v")


def test_a_hello_is_one_event() -> None:
    hello = write_hello("n", "v", d.Wants())
    assert hello.events is not None
    for events in (None, [], [*hello.events, *hello.events], [m.EventAndTimestamp(0.0, m.SimulationEndsEvent())]):
        with pytest.raises(Malformed, match="EDCHello"):
            read_hello(m.Message(0.0, events))


class Component:
    """Answers with these messages, in this form."""

    name = "component"

    def __init__(self, form: Format, *replies: m.Message, hello: str = "n", **wants: Any) -> None:
        self.form, self.replies, self.wants, self._hello = form, list(replies), d.Wants(**wants), hello
        self.heard: list[m.Message] = []
        self.closed = False

    def hello(self, init: bytes) -> tuple[int, bytes]:
        return int(self.form), encode(write_hello(self._hello, "1", self.wants), self.form)

    def exchange(self, message: bytes) -> bytes:
        self.heard.append(decode(message, self.form))
        return encode(self.replies.pop(0), self.form)

    def close(self) -> None:
        self.closed = True


def joined(component: Component, begins: e.Begins | None = None) -> EdcDecider:
    decider = EdcDecider(component)
    assert decider.hello() == read_wants(read_hello(write_hello("n", "1", component.wants)))
    begins = begins or e.Begins((Node("a", 0, 4),), profiles={"w!d": DELAY})
    decider.begin(begins, Cluster(begins, "n"))
    return decider


def said(*events: tuple[float, m.Event], now: float) -> m.Message:
    return m.Message(now, [m.EventAndTimestamp(at, event) for at, event in events])


EXECUTE = write_decision(d.StartJob(0.0, "w!1", IdSet.of([0, 2]), d.Placement(d.Strategy.FILL)))
REJECT = m.RejectJobEvent("w!2")


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize("frequent", [True, False])
def test_dates_of_a_reply(form: Format, frequent: bool) -> None:
    assert EXECUTE is not None
    reply = said((0.5, EXECUTE), (2.0, REJECT), (2.0 + 1e-10, REJECT), (2.5, REJECT), (3.0, EXECUTE), now=3.0)
    decider = joined(Component(form, reply, said((1.0, REJECT), now=2.0 - 1e-10), said(now=1.0)))
    decider.lenient = True
    event: e.Event = e.NoMoreJobs(2.0) if frequent else e.CallArrived(2.0, "c")
    found = decider.decide(e.Batch(2.0, [event]))
    assert found.now == 3.0 and [decision.at for decision in found.decisions] == [2.0, 2.0, 2.0, 2.5, 3.0]
    assert [type(decision) for decision in found.decisions] == [d.StartJob, d.RejectJob, d.RejectJob, d.RejectJob, d.StartJob]
    first = found.decisions[0]
    assert isinstance(first, d.StartJob) and first.units == IdSet.of([0, 2]) and first.placement == d.Placement(d.Strategy.FILL)
    assert decider.decide(e.Batch(2.0, [event])) == d.Reply(2.0, [d.RejectJob(2.0, "w!2")])
    assert decider.decide(e.Batch(2.0, [event])) == d.Reply(2.0, [])
    exact = Component(form, said((2.0, REJECT), (2.0 + 1e-10, REJECT), now=2.0 + 1e-10))
    decider = joined(exact)
    decider.precision_s = 0.0
    assert [decision.at for decision in decider.decide(e.Batch(2.0, [event])).decisions] == [2.0, 2.0 + 1e-10]
    decider = joined(Component(form, said((2.5, REJECT), (2.75, REJECT), now=2.75), said((2.5, REJECT), now=2.5)))
    decider.precision_s = 0.5
    assert [decision.at for decision in decider.decide(e.Batch(2.0, [event])).decisions] == [2.0, 2.75]
    assert decider.decide(e.Batch(2.0, [event])) == d.Reply(2.0, [d.RejectJob(2.0, "w!2")]), "a date that is not later by more"


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize("frequent", [True, False])
def test_dates_before_the_message_are_refused(form: Format, frequent: bool) -> None:
    event: e.Event = e.NoMoreJobs(2.0) if frequent else e.CallArrived(2.0, "c")
    early = [said((1.5, REJECT), now=2.0), said(now=1.5), said((2.0, REJECT), (1.5, REJECT), now=2.0), m.Message(0.0, [])]
    decider = joined(Component(form, *early, said((2.0 - 1e-10, REJECT), now=2.0 - 1e-10)))
    for _ in early:
        with pytest.raises(PeerError, match="no decision can be made before `now`"):
            decider.decide(e.Batch(2.0, [event]))
    assert decider.decide(e.Batch(2.0, [event])) == d.Reply(2.0, [d.RejectJob(2.0, "w!2")]), "a rounded date"


@pytest.mark.parametrize("form", list(Format))
def test_events_without_words_are_not_sent(form: Format) -> None:
    component = Component(form, said(now=3.0))
    decider = joined(component)
    assert decider.decide(e.Batch(1.0, [e.UnitsAvailable(1.0, IdSet())])) == d.Reply(1.0, [])
    assert decider.decide(e.Batch(1.0, [])) == d.Reply(1.0, [])
    decider.decide(e.Batch(3.0, [e.UnitsAvailable(1.0, IdSet()), e.CallArrived(2.5, "c")]))
    assert component.heard == [said((2.5, m.RequestedCallEvent("c", False)), now=3.0)]
    decider.close()
    assert component.closed and decider.name == "n"
    assert joined(Component(form, hello="")).name == "component"


@pytest.mark.parametrize("form", list(Format))
def test_what_a_component_asked_for_is_remembered(form: Format) -> None:
    every, probe = write_decision(d.CallEvery(0.0, 1.0, "e")), write_decision(d.CreateProbe(0.0, "p", d.Metric.NETWORK_LOAD))
    once = m.CallMeLaterEvent("o", m.OneShot(1, m.TimeUnit.Second))
    assert every is not None and probe is not None
    component = Component(form, said((0.0, every), (0.0, probe), (0.0, once), now=0.0), said(now=5.0))
    decider = joined(component)
    assert decider.decide(e.Batch(0.0, [e.CallArrived(0.0, "x")])).decisions[2] == d.CallAt(0.0, 1.0, "o")
    decider.decide(e.Batch(5.0, [e.CallArrived(5.0, "e", True), e.ProbeData(5.0, "p", (1.0,), aggregated=False)]))
    call, data = [item.event for item in component.heard[-1].events or ()]
    assert call == m.RequestedCallEvent("e", True)
    assert isinstance(data, m.ProbeDataEmittedEvent) and data.metrics == m.Metrics.NetworkLoad


def test_the_end_of_a_conversation_is_noticed() -> None:
    side = SchedulerSide("s", Format.JSON)
    batch = side.batch(encode(said((1.0, m.AllStaticJobsHaveBeenSubmittedEvent()), now=2.0), Format.JSON))
    assert batch == e.Batch(2.0, [e.NoMoreJobs(1.0)]) and not side.ended and side.begins is None
    side.batch(encode(said(now=2.0), Format.JSON))
    assert not side.ended
    side.batch(encode(said((3.0, m.SimulationEndsEvent()), now=3.0), Format.JSON))
    assert side.ended
    with pytest.raises(PeerError, match=r"Batsim: .*RejectJobEvent is not an event that Batsim sends"):
        side.batch(encode(said((3.0, REJECT), now=3.0), Format.JSON))
    with pytest.raises(PeerError, match="s: batprotocol has no word for SendToJob"):
        side.reply(d.Reply(1.0, [d.SendToJob(1.0, "a", "b")]))


def test_components_by_name(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(b"")
    for options in ({}, {"load": "dlmopen"}, {"inprocess": "1"}, {"inprocess": "no"}, {"init": "x"}):
        assert isinstance(edc_decider(str(library), options), EdcDecider)
    with pytest.raises(InputError, match="cannot be read"):
        edc_decider(str(library), {"init_file": str(tmp_path / "nothing")})
    with pytest.raises(InputError, match="dlopen or dlmopen, found 'x'"):
        edc_decider(str(library), {"load": "x"})


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize("wanted", [{}, {"forward_profiles": True}, {"forward_profiles_on_kill": True}])
def test_profiles_are_forwarded_in_every_form(form: Format, wanted: dict[str, bool]) -> None:
    component = Component(form, said(now=1.0), said(now=2.0), **wanted)
    decider = joined(component)
    decider.decide(e.Batch(1.0, [e.JobSubmitted(1.0, Job("w!1", 1, profile=DELAY))]))
    decider.decide(e.Batch(2.0, [e.JobsKilled(2.0, ("w!1",), {"w!1": e.Progress("w!d", 0.5)})]))
    submitted, killed = [(message.events or [])[0].event for message in component.heard]
    assert isinstance(submitted, m.JobSubmittedEvent) and isinstance(killed, m.JobsKilledEvent)
    assert (submitted.profile is not None) is wanted.get("forward_profiles", False)
    assert bool(killed.profiles) is wanted.get("forward_profiles_on_kill", False)
