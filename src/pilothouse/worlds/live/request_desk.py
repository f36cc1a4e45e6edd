"""Obeys the requests that users leave in a run's folder (requests.py), each at most once, and notes what became of them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from pathlib import Path
from threading import Thread

import msgspec

from pilothouse.access.interfaces import ALL, LOOPBACK
from pilothouse.model.errors import PilothouseError
from pilothouse.worlds.live import records as r
from pilothouse.worlds.live import requests as q
from pilothouse.worlds.live.contexts.programs import ProgramContext
from pilothouse.worlds.live.driver import engine_frames
from pilothouse.worlds.live.driver.state import DriverState, record
from pilothouse.worlds.live.driver.task_requests import (
    Refusal,
    ask_about,
    cancel_task,
    end_run,
    look_at_cancelled,
    retry_task,
)
from pilothouse.worlds.live.engine_supply import EngineSupply

MOST_AT_ONCE = 100
"""Requests that are obeyed in one tick; more are refused."""

MakeContext = Callable[[q.AddContext, str], ProgramContext]
"""Makes the context that a request names, under this name. Raises InputError."""
_ASKED = "asked to leave"


class RequestDesk:
    def __init__(
        self, driver: DriverState, supply: EngineSupply, folder: Path, listens: tuple[str, ...],
        call: Callable[[Callable[[], object]], None], now: Callable[[], float],
    ) -> None:  # fmt: skip
        """`listens`: the addresses that engines can reach; `call` runs an action in the world's thread."""
        self.make_context: MakeContext | None = None
        """None: this run takes no contexts by request."""
        self._state = driver
        self._supply = supply
        self._folder = folder
        self._listens = listens
        self._call = call
        self._now = now
        self._asked: dict[str, q.AskEstimate] = {}
        """Jobs about which the decider was asked."""

    def look(self) -> None:
        look_at_cancelled(self._state, self._now())
        self._look_at_estimates()
        for place, request in enumerate(q.take_requests(self._folder)):
            if place >= MOST_AT_ONCE:
                self._answer(request, f"more than {MOST_AT_ONCE} requests at once", done=False)
            else:
                self.obey(request)

    def obey(self, request: q.Request) -> str:
        """What happens, in words; "": that is said later."""
        try:
            said = self._obey(request)
        except (Refusal, PilothouseError) as refusal:
            self._answer(request, str(refusal), done=False)
            return str(refusal)
        if said:
            self._answer(request, said)
        return said

    def _obey(self, request: q.Request) -> str:
        """What happens, in words; "": that is said later. Raises Refusal or InputError."""
        driver, now = self._state, self._now()
        match request:
            case q.StopEngine(engine):
                if not engine_frames.ask_to_leave(driver, engine, _ASKED, now):
                    raise Refusal(f"there is no engine {engine}")
                return f"engine {engine} finishes its tasks and leaves"
            case q.StopContext(context):
                count = engine_frames.stop_context(driver, context, _ASKED, now)
                if not count:
                    raise Refusal(f"context {context} has no engine")
                record(driver, r.Note(f"{q.CONTEXT_NOTE}{context}", b""), now)
                return f"{count} engine{'s' * (count != 1)} of {context} finish their tasks and leave"
            case q.CancelTask(task):
                return cancel_task(driver, task, now)
            case q.RetryTask(task):
                return retry_task(driver, task, now)
            case q.AskEstimate(task):
                self._asked[ask_about(driver, task, now)] = request
                return ""
            case q.AddContext():
                self._add_context(request)
                return ""
            case q.EndRun(how, reason):
                return end_run(driver, how, reason, now)

    def _look_at_estimates(self) -> None:
        """Tells what the decider has answered."""
        for job_id in self._asked.keys() & self._state.estimates.keys():
            request, seconds = self._asked.pop(job_id), self._state.estimates.pop(job_id)
            if seconds < inf:
                self._answer(request, f"task {request.task} is expected to start in {seconds:.3g} s", seconds=seconds)
            else:
                self._answer(request, "the scheduler does not say when it starts", done=False)

    def _add_context(self, request: q.AddContext) -> None:
        driver = self._state
        if self.make_context is None:
            raise Refusal("this run takes engines from its own program only")
        if driver.too_late:
            raise Refusal("the run ends")
        taken = {context.name for context in self._supply.contexts}
        taken.update(proxy.joined.context for proxy in driver.engines.present.values())
        name = next(name for number in range(1, len(taken) + 2) if (name := f"added{number}") not in taken)
        context = self.make_context(request, name)

        def look_up() -> None:
            """In a thread of its own: names may be slow to resolve."""
            needs = context.listens()
            self._call(lambda: self._start(request, context, needs))

        Thread(target=look_up, daemon=True).start()

    def _start(self, request: q.AddContext, context: ProgramContext, needs: tuple[str, ...]) -> None:
        if ALL not in self._listens and not set(needs) <= {LOOPBACK, *self._listens}:
            where = ", ".join(self._listens)
            hint = "begin the run with these hosts, or with --service"
            self._answer(request, f"the driver listens on {where}, which these hosts cannot reach: {hint}", done=False)
            return
        self._supply.contexts.append(context)
        try:
            self._supply.start(context)
        except PilothouseError as problem:
            self._answer(request, str(problem), done=False)
            return
        record(self._state, r.Note(f"{q.CONTEXT_NOTE}{context.name}", msgspec.json.encode(request)), self._now())
        self._answer(request, f"context {context.name}: starting {context.engines} engine{'s' * (context.engines != 1)}")

    def _answer(self, request: q.Request, text: str, *, done: bool = True, seconds: float | None = None) -> None:
        """The last answers are kept."""
        now, number = self._now(), self._state.answered + 1
        answer = q.Answer(number, self._state.date(now), request, done, text, seconds)
        name = f"{q.ANSWER_NOTE}{number % q.MOST_ANSWERS}"
        record(self._state, r.Note(name, msgspec.json.encode(answer)), now)
