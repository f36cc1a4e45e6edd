"""Flux's resource allocation protocol (RFC 27): both ends, both dialects, on Flux's own wire.

    frames, rpc              RFC 3 messages and how they lie on a stream; RFC 6 calls, streams, matchtags
    payloads                 what the messages of RFC 27, 28 and 16 say
    handshake, scheduler     the scheduler's end of the protocol           ┐ sans-IO: messages and a date in,
    desk, manager            the job manager's end, over managed_job,      │ messages and events out
                             joblife (RFC 21) and annotations              │
    broker                   what a scheduler expects of a broker          ┘
    machine, requests        cores as units, jobspecs as jobs, and back
    instance, world          a Flux instance as a World: any decider allocates for it
    seat, decider            a Flux scheduler as a Decider: it allocates for any world
    notes                    why jobs wait, told to Flux's users
    unix_socket, server, zmq_link, inprocess     ways to carry the same frames
"""
