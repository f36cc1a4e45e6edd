"""Flux's resource allocation protocol (RFC 27): both ends, both dialects, on Flux's own wire.

    frames        RFC 3 messages and how they lie on a stream
    rpc           RFC 6: requests, responses, streams, matchtags
    payloads      what the messages of RFC 27, 28 and 16 say
    scheduler     the scheduler's end of the protocol          ┐ sans-IO: messages and a date in,
    manager       the job manager's end                        │ messages and facts out
    broker        the services that a scheduler expects of a   ┘ broker (services, KVS, inventory, routing)
    world         a Flux instance as a World: any decider allocates for it
    decider       a Flux scheduler as a Decider: it allocates for any world
    unix_socket, zmq_link, inprocess     three ways to carry the same frames
"""
