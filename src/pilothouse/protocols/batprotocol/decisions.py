"""Decisions, translated between our model and batprotocol.

`DecisionReader` reads what a decision component sends; it knows the profiles that registered jobs may name.
`write_decision` writes what we, as a component, send to a real Batsim 5.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import ceil
from typing import Any

from pilothouse.model import decisions as d
from pilothouse.model.idset import IdSet
from pilothouse.model.profile import Profile
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.jobs import read_job, read_profile, write_job, write_profile
from pilothouse.protocols.batprotocol.wire import Malformed

SPREAD = d.Placement(d.Strategy.SPREAD)
FILL = d.Placement(d.Strategy.FILL)

METRICS = {
    d.Metric.POWER: m.Metrics.Power,
    d.Metric.NETWORK_LOAD: m.Metrics.NetworkLoad,
    d.Metric.COMPUTATION_LOAD: m.Metrics.ComputationLoad,
    d.Metric.NORMALIZED_NETWORK_LOAD: m.Metrics.NormalizedNetworkLoad,
    d.Metric.NORMALIZED_COMPUTATION_LOAD: m.Metrics.NormalizedComputationLoad,
}
_CUMULATIVE = {
    d.Cumulative.SUM: m.CumulativeFunction.Sum,
    d.Cumulative.MINIMUM: m.CumulativeFunction.Minimum,
    d.Cumulative.MAXIMUM: m.CumulativeFunction.Maximum,
}
_COMPARISONS = {
    d.Comparison.GREATER: m.BooleanComparisonOperator.GreaterThan,
    d.Comparison.GREATER_OR_EQUAL: m.BooleanComparisonOperator.GreaterThanOrEqual,
    d.Comparison.LESS: m.BooleanComparisonOperator.LessThan,
    d.Comparison.LESS_OR_EQUAL: m.BooleanComparisonOperator.LessThanOrEqual,
}
_METRIC_OF = {theirs: ours for ours, theirs in METRICS.items()}
_CUMULATIVE_OF = {theirs: ours for ours, theirs in _CUMULATIVE.items()}
_COMPARISON_OF = {theirs: ours for ours, theirs in _COMPARISONS.items()}


MOST_UNITS = 10_000_000
"""Numbers of hosts are below this."""
_RANGE = re.compile(r"\s*\+?([0-9]{1,9})[^-]*(?:-+\s*\+?([0-9]{1,9})[^-]*)?$")


def read_units(text: str, field: str) -> IdSet:
    """A set of hosts: numbers and ranges, one space or more between two of them.

    QUIRK: what follows the digits of a number is left out, so that `0,1` is host 0 alone, as in Batsim's own parser. A
    space at the beginning or at the end is refused.
    """
    mask = 0
    for part in text.split(" ") if text else ():
        if part.isdecimal() and len(part) < 8:
            mask |= 1 << int(part)
            continue
        if not part and mask and not text.endswith(" "):
            continue  # between two spaces
        found = _RANGE.match(part)
        if found is None:
            raise Malformed(f"{field}: {text!r} is not a set of ids: {part!r} is neither a number nor a range")
        first = int(found[1])
        last = first if found[2] is None else int(found[2])
        if last < first:
            raise Malformed(f"{field}: {part!r} runs backwards")
        if last >= MOST_UNITS:
            raise Malformed(f"{field}: {last} is above {MOST_UNITS - 1}, the highest id")
        mask |= (2 << last) - (1 << first)
    return IdSet(mask)


def _seconds(amount: int, unit: m.TimeUnit) -> float:
    return amount / 1000 if unit == m.TimeUnit.Millisecond else float(amount)


def _read_placement(placement: m.ExecutorPlacement) -> d.Placement:
    if type(placement) is m.PredefinedExecutorPlacementStrategyWrapper:
        spread = m.PredefinedExecutorPlacementStrategy.SpreadOverHostsFirst
        return SPREAD if placement.strategy == spread else FILL
    assert type(placement) is m.CustomExecutorToHostMapping
    return d.Placement(mapping=tuple(placement.mapping or ()))


def _read_period(when: m.Periodic) -> tuple[float, int]:
    """Seconds between two calls, and how many there are (0: no limit)."""
    if when.offset:
        raise Malformed(f"a periodic trigger with offset {when.offset}: only 0 is supported")
    if not when.period:
        raise Malformed("a periodic trigger with period 0")
    count = 0
    if type(when.mode) is m.FinitePeriodNumber:
        count = when.mode.nb_periods
        if not count:
            raise Malformed("a finite periodic trigger with nb_periods 0")
    elif when.mode is None:
        raise Malformed("a periodic trigger without mode")
    return _seconds(when.period, when.time_unit), count


class DecisionReader:
    """Reads the events of one component. `profiles` are those that it may name when it registers jobs. `any_id`: their ids
    need not name a workload."""

    def __init__(self, profiles: dict[str, Profile] | None = None, *, any_id: bool = True) -> None:
        self.profiles: dict[str, Profile] = dict(profiles or {})
        self._any_id = any_id
        self._readers: dict[type, Callable[[Any, float], d.Decision]] = {
            m.ExecuteJobEvent: self._execute,
            m.RejectJobEvent: lambda event, at: d.RejectJob(at, event.job_id),
            m.KillJobsEvent: lambda event, at: d.KillJobs(at, tuple(event.job_ids)),
            m.RegisterProfileEvent: self._register_profile,
            m.RegisterJobEvent: self._register_job,
            m.FinishRegistrationEvent: lambda event, at: d.FinishRegistration(at),
            m.ForceSimulationStopEvent: lambda event, at: d.StopWorld(at),
            m.CallMeLaterEvent: self._call,
            m.StopCallMeLaterEvent: lambda event, at: d.StopCalls(at, event.call_me_later_id),
            m.CreateProbeEvent: self._create_probe,
            m.StopProbeEvent: lambda event, at: d.StopProbe(at, event.probe_id or ""),
            m.TriggerProbeEvent: lambda event, at: d.TriggerProbe(at, event.probe_id or "", event.force_data_emission),
            m.ResetProbeEvent: lambda event, at: d.ResetProbe(at, event.probe_id or "", event.new_value),
            m.ChangeHostsPStateEvent: lambda event, at: d.SetPowerState(
                at, read_units(event.host_ids, "host_ids"), event.pstate
            ),
            m.TurnOnOffHostsEvent: lambda event, at: d.SwitchUnits(
                at, read_units(event.host_ids, "host_ids"), event.state
            ),
        }

    def read(self, event: m.Event | None, at: float) -> d.Decision:
        """One decision. Malformed if a component may not send such an event, or if it makes no sense by itself."""
        reader = self._readers.get(type(event))
        if reader is None:
            raise Malformed(f"{type(event).__name__} is not a decision")
        return reader(event, at)

    def _execute(self, event: m.ExecuteJobEvent, at: float) -> d.StartJob:
        whole = event.allocation
        units = read_units(whole.host_allocation, "host_allocation")
        start = d.StartJob(at, event.job_id, units, _read_placement(whole.executor_placement))
        if event.profile_allocation_override:
            start.overrides = {
                part.profile_id: d.PartPlacement(
                    read_units(part.host_allocation, "host_allocation"), _read_placement(part.executor_placement)
                )
                for part in event.profile_allocation_override
            }
        if event.storage_placement:
            start.storage = {place.storage_name: place.host_id for place in event.storage_placement}
        return start

    def _register_job(self, event: m.RegisterJobEvent, at: float) -> d.RegisterJob:
        workload, _, name = event.job_id.partition("!")
        if not (workload and name) and not self._any_id:
            raise Malformed(f"job {event.job_id!r} was registered without a workload: its id must be WORKLOAD!NAME")
        return d.RegisterJob(at, read_job(event.job_id, event.job, self.profiles.get, at))

    def _register_profile(self, event: m.RegisterProfileEvent, at: float) -> d.RegisterProfile:
        if event.profile is None:
            raise Malformed("RegisterProfileEvent has no profile")
        profile = read_profile(event.profile)
        self.profiles.setdefault(profile.name, profile)
        return d.RegisterProfile(at, profile)

    @staticmethod
    def _call(event: m.CallMeLaterEvent, at: float) -> d.CallAt | d.CallEvery:
        when = event.when
        if type(when) is m.OneShot:
            return d.CallAt(at, _seconds(when.time, when.time_unit), event.call_me_later_id)
        assert type(when) is m.Periodic
        period, count = _read_period(when)
        return d.CallEvery(at, period, event.call_me_later_id, count)

    @staticmethod
    def _create_probe(event: m.CreateProbeEvent, at: float) -> d.CreateProbe:
        probe = d.CreateProbe(at, event.probe_id or "", _METRIC_OF[event.metrics])
        if type(event.resources) is m.HostResources:
            probe.units = read_units(event.resources.host_ids or "", "host_ids")
        elif type(event.resources) is m.LinkResources:
            probe.links = tuple(event.resources.link_ids or ())
        policy = event.measurement_triggering_policy
        trigger = None if policy is None else policy.temporal_trigger
        if type(trigger) is m.OneShot:
            probe.when = _seconds(trigger.time, trigger.time_unit)
        elif type(trigger) is m.Periodic:
            probe.period, probe.count = _read_period(trigger)
        accumulation = event.data_accumulation_strategy
        if type(accumulation) is m.ProbeDataAccumulation:
            probe.accumulate = _CUMULATIVE_OF[accumulation.cumulative_function]
            probe.per_second = accumulation.temporal_normalization
            if type(accumulation.reset_mode) is m.ProbeAccumulationReset:
                probe.reset_to = accumulation.reset_mode.new_value
        aggregation = event.resources_aggregation_function
        if type(aggregation) is m.Sum:
            probe.aggregation = d.Aggregation.SUM
        elif type(aggregation) is m.ArithmeticMean:
            probe.aggregation = d.Aggregation.MEAN
        elif type(aggregation) is m.QuantileFunction:
            probe.aggregation = d.Aggregation.QUANTILE
            probe.quantile = aggregation.threshold
        if type(event.temporal_aggregation_function) is m.ExponentialMovingAverage:
            probe.temporal = "moving"
        elif type(event.temporal_aggregation_function) is m.SlidingWindowOperation:
            probe.temporal = "window"
        if type(event.emission_filtering_policy) is m.ThresholdFilteringFunction:
            probe.only_if = _COMPARISON_OF[event.emission_filtering_policy.operator]
            probe.threshold = event.emission_filtering_policy.threshold
        return probe


# Our decisions, as a component sends them


def _one_shot(when: float) -> m.OneShot:
    """A date in whole seconds if it is one, else in milliseconds, rounded up."""
    if when == int(when):
        return m.OneShot(int(when), m.TimeUnit.Second)
    return m.OneShot(ceil(when * 1000), m.TimeUnit.Millisecond)


def _periodic(period: float, count: int) -> m.Periodic:
    """A period in whole seconds if it is one, else in milliseconds."""
    mode = m.FinitePeriodNumber(count) if count else m.Infinite()
    if period == int(period):
        return m.Periodic(int(period), 0, m.TimeUnit.Second, mode)
    return m.Periodic(max(1, round(period * 1000)), 0, m.TimeUnit.Millisecond, mode)


def _write_placement(placement: d.Placement | None) -> m.ExecutorPlacement:
    if placement is not None and placement.mapping is not None:
        return m.CustomExecutorToHostMapping(list(placement.mapping))
    strategies = m.PredefinedExecutorPlacementStrategy
    fills = placement is not None and placement.strategy is d.Strategy.FILL
    return m.PredefinedExecutorPlacementStrategyWrapper(
        strategies.FillOneHostCoresFirst if fills else strategies.SpreadOverHostsFirst
    )


def _write_start(start: d.StartJob) -> m.ExecuteJobEvent:
    return m.ExecuteJobEvent(
        start.job_id,
        m.AllocationPlacement(str(start.units), _write_placement(start.placement)),
        [
            m.ProfileAllocationPlacement(name, str(part.units), _write_placement(part.placement))
            for name, part in start.overrides.items()
        ],
        [m.StorageHost(label, unit) for label, unit in start.storage.items()],
    )


def _write_call(call: d.CallAt | d.CallEvery) -> m.CallMeLaterEvent:
    trigger = _one_shot(call.when) if isinstance(call, d.CallAt) else _periodic(call.period, call.count)
    return m.CallMeLaterEvent(call.call_id or f"call {call.at:.9f}", trigger)


def _write_probe(probe: d.CreateProbe) -> m.CreateProbeEvent:
    trigger: m.TemporalTrigger | None = None
    if probe.period is not None:
        trigger = _periodic(probe.period, probe.count)
    elif probe.when is not None:
        trigger = _one_shot(probe.when)
    accumulation: m.ProbeDataAccumulationStrategy = m.NoProbeDataAccumulation()
    if probe.accumulate is not None:
        reset: m.ResetMode = m.NoReset() if probe.reset_to is None else m.ProbeAccumulationReset(probe.reset_to)
        accumulation = m.ProbeDataAccumulation(reset, _CUMULATIVE[probe.accumulate], probe.per_second)
    aggregation: m.ResourcesAggregationFunction = m.NoResourcesAggregation()
    if probe.aggregation is d.Aggregation.SUM:
        aggregation = m.Sum()
    elif probe.aggregation is d.Aggregation.MEAN:
        aggregation = m.ArithmeticMean()
    elif probe.aggregation is d.Aggregation.QUANTILE:
        aggregation = m.QuantileFunction(probe.quantile)
    temporal: m.TemporalAggregationFunction = m.NoTemporalAggregation()
    if probe.temporal:
        temporal = m.ExponentialMovingAverage() if probe.temporal == "moving" else m.SlidingWindowOperation()
    filtering: m.ProbeEmissionFilteringPolicy = m.NoFiltering()
    if probe.only_if is not None:
        filtering = m.ThresholdFilteringFunction(probe.threshold, _COMPARISONS[probe.only_if])
    return m.CreateProbeEvent(
        probe.probe_id,
        METRICS[probe.metric],
        write_resources(probe),
        accumulation,
        None if trigger is None else m.TemporalTriggerWrapper(trigger),
        aggregation,
        temporal,
        filtering,
    )


def write_resources(probe: d.CreateProbe) -> m.Resources:
    """What a probe measures: links, or hosts."""
    return m.LinkResources(list(probe.links)) if probe.links else m.HostResources(str(probe.units))


_WRITERS: dict[type, Callable[[Any], m.Event]] = {
    d.StartJob: _write_start,
    d.RejectJob: lambda decision: m.RejectJobEvent(decision.job_id),
    d.KillJobs: lambda decision: m.KillJobsEvent(list(decision.job_ids)),
    d.CallAt: _write_call,
    d.CallEvery: _write_call,
    d.StopCalls: lambda decision: m.StopCallMeLaterEvent(decision.call_id),
    d.RegisterJob: lambda decision: m.RegisterJobEvent(decision.job.id, write_job(decision.job)),
    d.RegisterProfile: lambda decision: m.RegisterProfileEvent(write_profile(decision.profile)),
    d.FinishRegistration: lambda decision: m.FinishRegistrationEvent(),
    d.SetPowerState: lambda decision: m.ChangeHostsPStateEvent(str(decision.units), decision.power_state),
    d.SwitchUnits: lambda decision: m.TurnOnOffHostsEvent(str(decision.units), decision.power_state),
    d.CreateProbe: _write_probe,
    d.StopProbe: lambda decision: m.StopProbeEvent(decision.probe_id),
    d.TriggerProbe: lambda decision: m.TriggerProbeEvent(decision.probe_id, decision.force_emission),
    d.ResetProbe: lambda decision: m.ResetProbeEvent(decision.probe_id, decision.value),
    d.StopWorld: lambda decision: m.ForceSimulationStopEvent(),
}
_LEFT_OUT = (d.Annotate, d.SetMetadata, d.ConfirmWithdrawal, d.AnswerEstimate, d.AnswerFeasibility, d.MeasureEnergy)
"""batprotocol has no words for these decisions, and they change nothing in the world."""


def write_decision(decision: d.Decision) -> m.Event | None:
    """One decision as an event; None if batprotocol has no word for it and nothing is lost."""
    if isinstance(decision, _LEFT_OUT):
        return None
    write = _WRITERS.get(type(decision))
    if write is None:
        raise Malformed(f"batprotocol has no word for {type(decision).__name__}")
    return write(decision)
