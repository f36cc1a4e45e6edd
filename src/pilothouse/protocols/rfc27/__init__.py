"""Flux's resource allocation protocol (RFC 27): both ends, both dialects, on Flux's own wire.

    frames, rpc              RFC 3 messages and their bytes on a stream; RFC 6 requests, streams, matchtags
    payloads                 the JSON objects of RFC 27, 28 and 16
    handshake, scheduler     the scheduler's end                              ┐ sans-IO: messages and a date in,
    alloc_requests, manager  the job manager's end, over managed_job and      │ messages and events out
                             job_states (RFC 21)                              │
    broker                   the services that a scheduler expects of Flux    ┘
    machine, job_conversion  ranks and cores as units, jobspecs as jobs, and back
    scheduler_adapter, world a Flux instance as a World: any decider allocates for it
    manager_adapter, decider a Flux scheduler as a Decider: it allocates for any world
    pending_reasons          annotations that tell Flux's users why jobs wait
    unix_socket, server, zmq_link     sockets
"""
