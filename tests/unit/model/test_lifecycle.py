"""The table of job states is total, final states are final, and every state has a name in every system."""

import pytest

from pilothouse.model import lifecycle
from pilothouse.model.lifecycle import FINAL, TRANSITIONS, JobState, LifecycleError, Stimulus, launched, step


def test_the_table_is_total() -> None:
    assert set(TRANSITIONS) == {(state, stimulus) for state in JobState for stimulus in Stimulus}


def test_final_states_are_never_left() -> None:
    assert set(lifecycle.ENDS) == FINAL
    for state in FINAL:
        for stimulus in Stimulus:
            with pytest.raises(LifecycleError):
                step(state, stimulus)


def test_every_state_can_be_reached_and_every_life_can_end() -> None:
    reached = {JobState.KNOWN}
    while True:
        more = {t for (s, _), t in TRANSITIONS.items() if s in reached and t is not None} - reached
        if not more:
            break
        reached |= more
    assert reached == set(JobState)


def test_an_end_is_brought_about_by_its_own_stimulus() -> None:
    for state, stimulus in lifecycle.ENDS.items():
        targets = {t for (_, s), t in TRANSITIONS.items() if s is stimulus and t is not None}
        assert targets == {state}


@pytest.mark.parametrize("table", [lifecycle.BATSIM, lifecycle.FLUX, lifecycle.QCG])
def test_every_state_has_a_name_elsewhere(table: dict[JobState, object]) -> None:
    assert set(table) == set(JobState)


def test_batprotocol_names_final_states_only() -> None:
    assert set(lifecycle.BATPROTOCOL) == FINAL
    assert set(lifecycle.FROM_BATSIM) == set(lifecycle.BATSIM.values())


def test_only_a_waiting_job_is_launched() -> None:
    assert launched(JobState.WAITING) is JobState.RUNNING
    for state in set(JobState) - {JobState.WAITING}:
        with pytest.raises(LifecycleError):
            launched(state)
