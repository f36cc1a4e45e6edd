"""disBatch's messages: values of its key-value service that its driver, contexts and engines exchange. No sockets here.

    pickles.py    Python pickles of plain values and of disBatch's own classes, read and written without running anything
    messages.py   the messages themselves, typed; what goes under which key
"""
