"""The state tables of engines are total, and end where they must."""

from __future__ import annotations

from itertools import product

from pilothouse.worlds.live.driver import engines
from pilothouse.worlds.live.engine import engine


def test_engine_table_is_total() -> None:
    assert set(engine.TRANSITIONS) == set(product(engine.EngineState, engine.EngineStimulus))


def test_engine_never_returns_from_gone() -> None:
    gone = engine.EngineState.GONE
    assert all(engine.TRANSITIONS[gone, stimulus] is gone for stimulus in engine.EngineStimulus)
    deserted = engine.EngineStimulus.DESERTED
    assert all(engine.TRANSITIONS[state, deserted] is gone for state in engine.EngineState)


def test_table_of_engines_is_total_and_final_states_stay() -> None:
    assert set(engines.TRANSITIONS) == set(product(engines.ProxyState, engines.ProxyStimulus))
    for state in set(engines.ProxyState) - engines.PRESENT:
        assert all(engines.TRANSITIONS[state, stimulus] is state for stimulus in engines.ProxyStimulus)
