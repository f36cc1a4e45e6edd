"""Converts jobs: jobspec (RFC 14, RFC 25) to Job, and Job to jobspec."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import msgspec

from pilothouse.formats import constraint, fluid, jobspec
from pilothouse.formats.jobspec import Jobspec
from pilothouse.model.job import Job, Shape
from pilothouse.protocols.rfc27 import payloads

WORKLOAD = "flux"


def our_id(job_id: int) -> str:
    """`flux!f2gdgYX`: a job id that all protocols accept."""
    return f"{WORKLOAD}!f{fluid.to_f58(job_id)[1:]}"


def shape_of(spec: Jobspec, ranks_of_hosts: Mapping[str, list[str]] | None = None) -> Shape | None:
    """The request beyond a number of cores; None if there is nothing more. Raises InputError for bad constraints."""
    wanted = None
    if spec.constraints:
        wanted = msgspec.Raw(msgspec.json.encode(constraint.normalised(spec.constraints, ranks_of_hosts)))
    if spec.nodes:
        gpus = spec.slots * spec.gpus_per_slot
        return Shape(
            nodes=spec.nodes, exclusive=spec.exclusive, gpus_per_node=gpus, constraint=wanted, queue=spec.queue
        )
    if spec.cores_per_slot == 1 and not (spec.gpus_per_slot or spec.exclusive or spec.queue) and wanted is None:
        return None
    chunk = spec.cores_per_slot if spec.cores_per_slot > 1 or spec.gpus_per_slot else 0
    # An exclusive slot has its node to itself, as in Flux's sched-simple: such a job gets whole nodes.
    return Shape(
        chunk=chunk, gpus_per_chunk=spec.gpus_per_slot, exclusive=spec.exclusive, constraint=wanted, queue=spec.queue
    )


def to_job(job_id: str, spec: Jobspec, shape: Shape | None) -> Job:
    """The job of a jobspec. The caller adds user, date and priority."""
    return Job(job_id, spec.slots * spec.cores_per_slot, spec.walltime_s, shape=shape)


def to_jobspec(job: Job) -> Jobspec:
    """The jobspec of a job; of a moldable one, with its lowest number of units."""
    shape = job.shape or Shape()
    duration = 0.0 if job.walltime == inf else job.walltime
    command = job.command.argv if job.command is not None and job.command.argv else (job.local_id,)
    constraints = msgspec.json.decode(shape.constraint) if shape.constraint is not None else None
    units = max(1, job.units)
    if shape.nodes:
        # GPUs are counted per node: one slot has all of them.
        slots, cores = (1, units) if shape.gpus_per_node else (units, 1)
        gpus = shape.gpus_per_node
    else:
        cores = shape.chunk or 1
        slots, gpus = units // cores, shape.gpus_per_chunk
    return Jobspec(
        slots=max(1, slots),
        cores_per_slot=cores,
        gpus_per_slot=gpus,
        nodes=shape.nodes,
        exclusive=shape.exclusive or (bool(shape.nodes) and job.units == 0),
        duration_s=duration,
        queue=shape.queue,
        constraints=constraints,
        command=command,
    )


def jobspec_of(job: Job) -> bytes:
    """The encoded jobspec of a job."""
    return jobspec.encode(to_jobspec(job))


def priority_of(job_priority: float) -> int:
    """Our priority (any number, default 0) as Flux's: 1 to 4294967295, because 0 holds a job."""
    if job_priority == 0:
        return payloads.DEFAULT_URGENCY
    if job_priority < 0:
        return max(1, payloads.DEFAULT_URGENCY + round(max(job_priority, -payloads.DEFAULT_URGENCY)))
    return max(1, min(payloads.MOST_PRIORITY, round(min(job_priority, 1e10))))
