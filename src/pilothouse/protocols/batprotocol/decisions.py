"""Orders, between our words and batprotocol's: what a decision component may say, and what we say to a real Batsim 5.

`DecisionReader` reads a component's events (it knows the profiles that jobs may name); `write_decision` writes ours.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from pilothouse.model import decisions as d
from pilothouse.model.errors import InputError
from pilothouse.model.idset import IdSet
from pilothouse.model.profile import Profile
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.jobs import read_job, read_profile, write_job, write_profile
from pilothouse.protocols.batprotocol.wire import Malformed

SPREAD = d.Placement(d.Strategy.SPREAD)
FILL = d.Placement(d.Strategy.FILL)

_METRICS_IN = {
    m.Metrics.Power: d.Metric.POWER,
    m.Metrics.NetworkLoad: d.Metric.NETWORK_LOAD,
    m.Metrics.ComputationLoad: d.Metric.COMPUTATION_LOAD,
    m.Metrics.NormalizedNetworkLoad: d.Metric.NORMALIZED_NETWORK_LOAD,
    m.Metrics.NormalizedComputationLoad: d.Metric.NORMALIZED_COMPUTATION_LOAD,
}
METRICS_OUT = {ours: theirs for theirs, ours in _METRICS_IN.items()}
_CUMULATIVE_IN = {
    m.CumulativeFunction.Sum: d.Cumulative.SUM,
    m.CumulativeFunction.Minimum: d.Cumulative.MINIMUM,
    m.CumulativeFunction.Maximum: d.Cumulative.MAXIMUM,
}
_CUMULATIVE_OUT = {ours: theirs for theirs, ours in _CUMULATIVE_IN.items()}
_COMPARISON_IN = {
    m.BooleanComparisonOperator.GreaterThan: d.Comparison.GREATER,
    m.BooleanComparisonOperator.GreaterThanOrEqual: d.Comparison.GREATER_OR_EQUAL,
    m.BooleanComparisonOperator.LessThan: d.Comparison.LESS,
    m.BooleanComparisonOperator.LessThanOrEqual: d.Comparison.LESS_OR_EQUAL,
}
_COMPARISON_OUT = {ours: theirs for theirs, ours in _COMPARISON_IN.items()}


def read_units(text: str, field: str) -> IdSet:
    """A set of hosts. Plain numbers and ranges are read here, at half the cost; the rest, and errors, by IdSet."""
    mask = 0
    for part in text.split():
        if part.isdecimal() and len(part) < 8:
            mask |= 1 << int(part)
            continue
        first, _, last = part.partition("-")
        if not (first.isdecimal() and last.isdecimal() and len(last) < 8 and int(first) <= int(last)):
            break
        mask |= (2 << int(last)) - (1 << int(first))
    else:
        return IdSet(mask)
    try:
        return IdSet.parse(text, where=field)
    except InputError as problem:
        raise Malformed(str(problem)) from None


def seconds_of(amount: int, unit: m.TimeUnit) -> float:
    return amount / 1000 if unit == m.TimeUnit.Millisecond else float(amount)


def read_placement(placement: m.ExecutorPlacement) -> d.Placement:
    if type(placement) is m.PredefinedExecutorPlacementStrategyWrapper:
        spread = m.PredefinedExecutorPlacementStrategy.SpreadOverHostsFirst
        return SPREAD if placement.strategy == spread else FILL
    assert type(placement) is m.CustomExecutorToHostMapping
    return d.Placement(mapping=tuple(placement.mapping or ()))


class DecisionReader:
    """Reads the events of one component. `profiles` are those that it may name when it registers jobs."""

    def __init__(self, profiles: dict[str, Profile] | None = None) -> None:
        self.profiles: dict[str, Profile] = dict(profiles or {})
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
            m.ChangeHostsPStateEvent: self._power_state,
            m.TurnOnOffHostsEvent: self._switch,
        }

    def read(self, event: m.Event | None, at: float) -> d.Decision:
        """One order; Malformed if the event is not one that a component sends, or makes no sense by itself."""
        reader = self._readers.get(type(event))
        if reader is None:
            raise Malformed(f"{type(event).__name__} is not an order")
        return reader(event, at)

    def _execute(self, event: m.ExecuteJobEvent, at: float) -> d.StartJob:
        allocation = event.allocation
        order = d.StartJob(
            at,
            event.job_id,
            read_units(allocation.host_allocation, "host_allocation"),
            read_placement(allocation.executor_placement),
        )
        if event.profile_allocation_override:
            order.overrides = {
                part.profile_id: d.PartPlacement(
                    read_units(part.host_allocation, "host_allocation"), read_placement(part.executor_placement)
                )
                for part in event.profile_allocation_override
            }
        if event.storage_placement:
            order.storage = {place.storage_name: place.host_id for place in event.storage_placement}
        return order

    def _register_profile(self, event: m.RegisterProfileEvent, at: float) -> d.RegisterProfile:
        if event.profile is None:
            raise Malformed("RegisterProfileEvent has no profile")
        profile = read_profile(event.profile)
        self.profiles.setdefault(profile.name, profile)
        return d.RegisterProfile(at, profile)

    def _register_job(self, event: m.RegisterJobEvent, at: float) -> d.RegisterJob:
        return d.RegisterJob(at, read_job(event.job_id, event.job, self.profiles.get, at))

    def _call(self, event: m.CallMeLaterEvent, at: float) -> d.CallAt | d.CallEvery:
        when = event.when
        if type(when) is m.OneShot:
            return d.CallAt(at, seconds_of(when.time, when.time_unit), event.call_me_later_id)
        assert type(when) is m.Periodic
        period, count = self._periodic(when)
        return d.CallEvery(at, period, event.call_me_later_id, count)

    @staticmethod
    def _periodic(when: m.Periodic) -> tuple[float, int]:
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
        return seconds_of(when.period, when.time_unit), count

    def _create_probe(self, event: m.CreateProbeEvent, at: float) -> d.CreateProbe:
        order = d.CreateProbe(at, event.probe_id or "", _METRICS_IN[event.metrics])
        if type(event.resources) is m.HostResources:
            order.units = read_units(event.resources.host_ids or "", "host_ids")
        elif type(event.resources) is m.LinkResources:
            order.links = tuple(event.resources.link_ids or ())
        policy = event.measurement_triggering_policy
        trigger = None if policy is None else policy.temporal_trigger
        if type(trigger) is m.OneShot:
            order.when = seconds_of(trigger.time, trigger.time_unit)
        elif type(trigger) is m.Periodic:
            order.period, order.count = self._periodic(trigger)
        accumulation = event.data_accumulation_strategy
        if type(accumulation) is m.ProbeDataAccumulation:
            order.accumulate = _CUMULATIVE_IN[accumulation.cumulative_function]
            order.per_second = accumulation.temporal_normalization
            if type(accumulation.reset_mode) is m.ProbeAccumulationReset:
                order.reset_to = accumulation.reset_mode.new_value
        aggregation = event.resources_aggregation_function
        if type(aggregation) is m.Sum:
            order.aggregation = d.Aggregation.SUM
        elif type(aggregation) is m.ArithmeticMean:
            order.aggregation = d.Aggregation.MEAN
        elif type(aggregation) is m.QuantileFunction:
            order.aggregation = d.Aggregation.QUANTILE
            order.quantile = aggregation.threshold
        if type(event.temporal_aggregation_function) is m.ExponentialMovingAverage:
            order.temporal = "moving"
        elif type(event.temporal_aggregation_function) is m.SlidingWindowOperation:
            order.temporal = "window"
        if type(event.emission_filtering_policy) is m.ThresholdFilteringFunction:
            order.only_if = _COMPARISON_IN[event.emission_filtering_policy.operator]
            order.threshold = event.emission_filtering_policy.threshold
        return order

    def _power_state(self, event: m.ChangeHostsPStateEvent, at: float) -> d.SetPowerState:
        return d.SetPowerState(at, read_units(event.host_ids, "host_ids"), event.pstate)

    def _switch(self, event: m.TurnOnOffHostsEvent, at: float) -> d.SwitchUnits:
        return d.SwitchUnits(at, read_units(event.host_ids, "host_ids"), event.state)


# Ours, as a component says them.


def _trigger(when: float | None, period: float | None, count: int) -> m.TemporalTrigger | None:
    """A date or a period as whole seconds where it is one, else as whole milliseconds (dates are rounded up)."""
    if period is not None:
        mode = m.FinitePeriodNumber(count) if count else m.Infinite()
        if period == int(period):
            return m.Periodic(int(period), 0, m.TimeUnit.Second, mode)
        return m.Periodic(max(1, round(period * 1000)), 0, m.TimeUnit.Millisecond, mode)
    if when is None:
        return None
    if when == int(when):
        return m.OneShot(int(when), m.TimeUnit.Second)
    return m.OneShot(ceil(when * 1000), m.TimeUnit.Millisecond)


def _placement_out(placement: d.Placement | None) -> m.ExecutorPlacement:
    if placement is not None and placement.mapping is not None:
        return m.CustomExecutorToHostMapping(list(placement.mapping))
    if placement is not None and placement.strategy is d.Strategy.FILL:
        return m.PredefinedExecutorPlacementStrategyWrapper(
            m.PredefinedExecutorPlacementStrategy.FillOneHostCoresFirst
        )
    return m.PredefinedExecutorPlacementStrategyWrapper()


def _start_out(order: d.StartJob) -> m.ExecuteJobEvent:
    return m.ExecuteJobEvent(
        order.job_id,
        m.AllocationPlacement(str(order.units), _placement_out(order.placement)),
        [
            m.ProfileAllocationPlacement(name, str(part.units), _placement_out(part.placement))
            for name, part in order.overrides.items()
        ],
        [m.StorageHost(label, unit) for label, unit in order.storage.items()],
    )


def _call_out(order: d.CallAt | d.CallEvery) -> m.CallMeLaterEvent:
    if type(order) is d.CallEvery:
        trigger = _trigger(None, order.period, order.count)
    else:
        trigger = _trigger(order.when, None, 0)  # type: ignore[union-attr]
    assert trigger is not None
    return m.CallMeLaterEvent(order.call_id or f"call {order.at:.9f}", trigger)


def _probe_out(order: d.CreateProbe) -> m.CreateProbeEvent:
    accumulation: m.ProbeDataAccumulationStrategy = m.NoProbeDataAccumulation()
    if order.accumulate is not None:
        reset: m.ResetMode = m.NoReset() if order.reset_to is None else m.ProbeAccumulationReset(order.reset_to)
        accumulation = m.ProbeDataAccumulation(reset, _CUMULATIVE_OUT[order.accumulate], order.per_second)
    aggregation: m.ResourcesAggregationFunction = m.NoResourcesAggregation()
    if order.aggregation is d.Aggregation.SUM:
        aggregation = m.Sum()
    elif order.aggregation is d.Aggregation.MEAN:
        aggregation = m.ArithmeticMean()
    elif order.aggregation is d.Aggregation.QUANTILE:
        aggregation = m.QuantileFunction(order.quantile)
    temporal: m.TemporalAggregationFunction = m.NoTemporalAggregation()
    if order.temporal:
        temporal = m.ExponentialMovingAverage() if order.temporal == "moving" else m.SlidingWindowOperation()
    filtering: m.ProbeEmissionFilteringPolicy = m.NoFiltering()
    if order.only_if is not None:
        filtering = m.ThresholdFilteringFunction(order.threshold, _COMPARISON_OUT[order.only_if])
    trigger = _trigger(order.when, order.period, order.count)
    return m.CreateProbeEvent(
        order.probe_id,
        METRICS_OUT[order.metric],
        m.LinkResources(list(order.links)) if order.links else m.HostResources(str(order.units)),
        accumulation,
        None if trigger is None else m.TemporalTriggerWrapper(trigger),
        aggregation,
        temporal,
        filtering,
    )


_OUT: dict[type, Callable[[Any], m.Event]] = {
    d.StartJob: _start_out,
    d.RejectJob: lambda order: m.RejectJobEvent(order.job_id),
    d.KillJobs: lambda order: m.KillJobsEvent(list(order.job_ids)),
    d.CallAt: _call_out,
    d.CallEvery: _call_out,
    d.StopCalls: lambda order: m.StopCallMeLaterEvent(order.call_id),
    d.RegisterJob: lambda order: m.RegisterJobEvent(order.job.id, write_job(order.job)),
    d.RegisterProfile: lambda order: m.RegisterProfileEvent(write_profile(order.profile)),
    d.FinishRegistration: lambda order: m.FinishRegistrationEvent(),
    d.SetPowerState: lambda order: m.ChangeHostsPStateEvent(str(order.units), order.power_state),
    d.SwitchUnits: lambda order: m.TurnOnOffHostsEvent(str(order.units), order.power_state),
    d.CreateProbe: _probe_out,
    d.StopProbe: lambda order: m.StopProbeEvent(order.probe_id),
    d.TriggerProbe: lambda order: m.TriggerProbeEvent(order.probe_id, order.force_emission),
    d.ResetProbe: lambda order: m.ResetProbeEvent(order.probe_id, order.value),
    d.StopWorld: lambda order: m.ForceSimulationStopEvent(),
}

UNSAID: frozenset[type] = frozenset(
    (d.Annotate, d.SetMetadata, d.ConfirmWithdrawal, d.AnswerEstimate, d.AnswerFeasibility, d.MeasureEnergy)
)
"""Orders for which batprotocol has no word and that change nothing in the world: they are left out."""


def write_decision(order: d.Decision) -> m.Event | None:
    """One order as an event; None if batprotocol has no word for it and nothing is lost."""
    write = _OUT.get(type(order))
    if write is not None:
        return write(order)
    if type(order) in UNSAID:
        return None
    raise Malformed(f"batprotocol has no word for {type(order).__name__}")
