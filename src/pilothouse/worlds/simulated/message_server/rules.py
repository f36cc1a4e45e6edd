"""What the generations of Batsim differ in, as one struct. generations.py has one for each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pilothouse.worlds.simulated.message_server.rounds import Actor

if TYPE_CHECKING:
    from pilothouse.worlds.simulated.message_server.server import Server

Handler = Callable[["Server", Any], Sequence[Actor] | Actor | None]
"""What the server does with a decision. It returns actors to start, or an actor if the server itself has to wait."""


class Rules(msgspec.Struct, frozen=True):
    """The defaults are Batsim 4's."""

    handlers: Mapping[type, Handler]
    """One for each kind of decision."""
    in_words_of_5: bool = False
    """Refusals have the words that users of Batsim 5 look for."""
    first_turn: bool = False
    """Sources that are there at the beginning have a turn before the first batch."""
    keeper: bool = False
    """An actor keeps periodic calls and probes. The server is busy for one message whenever it talks to it."""
    stale_dates: frozenset[type] = frozenset()
    """Events that are dated like the last event of another kind, not with the date at which the server heard of them."""
    exact_count: bool = True
    """An allocation must be as large as the job asks for."""
    judges_sharing: bool = True
    judges_mappings: bool = False
    """Executor mappings of rigid profiles are judged, and profiles that Batsim 5 cannot run are refused."""
    late_call_is_wrong: bool = True
    """A call for a date that has passed is refused; otherwise it arrives at once."""
    ends_with_workflows: bool = False
    """Jobs that are submitted after the last workflow's end are left out."""
    holds_dependents: bool = False
    """A job is submitted when the jobs that it depends on have succeeded."""
    meters_take_turns: bool = True
    """Reading energy lets others go on within the round."""
    cut_takes_turn: bool = True
    """So does cancelling a parallel task that reached its walltime."""
    hosts_asked_first: bool = False
    """With energy, the first submission asks each host for its energy, which takes a turn."""
    kill_takes_turn: bool = False
    """A job runs on until the actor that kills it has had its turn."""
    own_return_codes: bool = False
    """A profile's negative return codes are taken for Batsim's own."""
    tasks_linger: bool = False
    """A parallel task that reached its walltime stays on hosts and links until the server has got the message of the
    job's end: it ends with the job's actor."""
    messages_share_links: bool = False
    """The message of a job's end gets its share of links that parallel tasks use."""
    switch_ends_metered: bool = False
    """The table of energy gets a row at the end of a switch too."""
    stay_computing: bool = False
    """A machine is not idle again after its last job."""
    registered_when_read: bool = True
    """Jobs and profiles exist as soon as the reply that registers them is read, before its messages are sent."""
    tiny_messages: bool = False
    """Messages to the server have almost no size: they take the latency of their route."""
    writes_at_once: bool = False
    """A decider that is ready is written to even if another message to the server waits."""
    submits_singly: bool = False
    """A source sends each job in a message of its own."""
    notifies: bool = True
    """The decider hears that no more jobs or external events will come."""
    ends_in_last_message: bool = False
    """The end of the run is told with the event that ends it, and calls that are still to come do not keep the run alive."""
    keeps_jobs: bool = False
    """Decisions may name jobs that have ended."""
    confirms_all_kills: bool = False
    """Kills may name jobs that have ended or are being killed, and are confirmed with all of their names."""
    kill_code: int | None = None
    """The return code of all killed jobs. None: it depends on what the job was doing."""
    any_workload: bool = False
    """Jobs may be registered for workloads that do not exist yet."""
    profiles_outlive_jobs: bool = True
    """Without reuse, a profile is gone for new jobs when the decider has answered the message with a job's end. Otherwise
    it is gone when that message is sent."""
