"""A scheduler of ten lines: the shortest waiting job first."""

from pilothouse import Cluster, Policy


class ShortestFirst(Policy):
    def schedule(self, cluster: Cluster) -> None:
        for job in sorted(cluster.queue, key=lambda job: job.walltime):
            if not cluster.start(job):
                break
