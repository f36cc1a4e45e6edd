"""The handshake: what a component asks for in its hello, translated to our Wants and back.

Batsim 5.0.0-rc2 ignores the scheduling constraints of a hello; here decisions are checked against them.
"""

from __future__ import annotations

from pilothouse.model.decisions import Wants
from pilothouse.protocols.batprotocol import messages as m
from pilothouse.protocols.batprotocol.events import PROTOCOL_VERSION
from pilothouse.protocols.batprotocol.wire import Malformed

NO_HELLO = (
    "Batsim did not receive an answer to its Hello message. "
    "Please fix your EDC so that it sends an EDCHello back to Batsim."
)


def read_hello(message: m.Message) -> m.EDCHelloEvent:
    """The hello of a component: exactly one event."""
    events = message.events or []
    if len(events) != 1 or type(events[0].event) is not m.EDCHelloEvent:
        raise Malformed(NO_HELLO)
    return events[0].event


def read_wants(hello: m.EDCHelloEvent) -> Wants:
    features = hello.requested_simulation_features or m.EDCRequestedSimulationFeatures()
    rules = hello.scheduling_constraints or m.EDCSchedulingConstraints()
    strategy = rules.job_allocation_validation_strategy
    return Wants(
        features.dynamic_registration,
        features.acknowledge_dynamic_jobs,
        features.profile_reuse,
        features.forward_profiles_on_job_submission,
        features.forward_profiles_on_jobs_killed,
        features.forward_profiles_on_simulation_begins,
        features.forward_unknown_external_events,
        rules.compute_sharing,
        rules.storage_sharing,
        strategy == m.JobAllocationValidationStrategy.MatchJobRequestExactly,
        strategy == m.JobAllocationValidationStrategy.MatchJobRequestBigEnough,
    )


def write_hello(name: str, version: str, wants: Wants) -> m.Message:
    """Our own hello, as a component."""
    strategy = m.JobAllocationValidationStrategy.MatchJobRequestExactly
    if wants.least_count:
        strategy = m.JobAllocationValidationStrategy.MatchJobRequestBigEnough
    elif wants.exact_count is False:
        strategy = m.JobAllocationValidationStrategy.None_
    hello = m.EDCHelloEvent(
        PROTOCOL_VERSION,
        name,
        version,
        "",
        m.EDCRequestedSimulationFeatures(
            bool(wants.dynamic_registration),
            bool(wants.profile_reuse),
            bool(wants.acknowledge_registration),
            bool(wants.forward_profiles),
            bool(wants.forward_profiles_on_kill),
            bool(wants.forward_profiles_at_begin),
            bool(wants.forward_unknown_events),
        ),
        m.EDCSchedulingConstraints(bool(wants.compute_sharing), wants.storage_sharing is not False, strategy),
    )
    return m.Message(0.0, [m.EventAndTimestamp(0.0, hello)])
