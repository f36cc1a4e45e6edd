"""A drop-in for disBatch: its command line, files, messages and exit codes around a live world.

    command.py       the program: options in, exit code out; options.py: its command line
    run.py           one run; names.py: names of its files; mail.py: mail about finished tasks
    status_file.py   lines of the status file: written, read, used to resume
    status_json.py   the status that monitors read under the key "DisBatch status"
    bridge.py        between a run and the key-value service: status, barriers, results, requests, task sources
    batcher.py       disBatch's class for Python programs
    foreign_engines.py   engines of the real disBatch at our driver; kvs_engine.py: our context and engine for a real driver

The key-value service is worlds/live/services, contexts are worlds/live/contexts/{layout,nodes}.py, and the script that adds
contexts to a run is launch/add_engines.py: `pilothouse run` has them too.
"""
