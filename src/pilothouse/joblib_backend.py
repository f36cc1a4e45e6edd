"""joblib on a Pool, and with it what uses joblib (scikit-learn): its calls run on the pool's nodes.

    with Pool.here() as pool, joblib.parallel_config(backend=PoolBackend(pool)):
        results = joblib.Parallel()(joblib.delayed(function)(x) for x in values)

In: batches of calls, as joblib makes them. Out: futures of the pool. `Parallel` inside such a call uses threads of its worker.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib.parallel import AutoBatchingMixin, ParallelBackendBase

from pilothouse.pool import Pool


class PoolBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # joblib has no types
    """For `joblib.parallel_config(backend=PoolBackend(pool))`. The pool stays open afterwards."""

    supports_retrieve_callback = True
    default_n_jobs = -1

    def __init__(self, pool: Pool) -> None:
        super().__init__(nesting_level=0)
        self._pool = pool
        self._under_way: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """joblib's count: -1 is every slot of the pool, -2 all but one."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        wanted = -1 if n_jobs is None else n_jobs
        return wanted if wanted > 0 else max(1, self._pool.slots + 1 + wanted)

    def submit(self, func: Callable[[], Any], callback: Callable[[Future[Any]], None] | None = None) -> Future[Any]:
        future = self._pool.submit(func)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """After an exception: what has not begun does not begin."""
        for future in list(self._under_way):
            future.cancel()
