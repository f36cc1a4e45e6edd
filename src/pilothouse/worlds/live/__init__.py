"""The live world: real tasks on real nodes, driven like a disBatch, decided by any Decider.

    driver (driver.py, sans-IO)  all state of the run; every change is a record in the journal
    world.py                     the shell around it: implements core/contract.py's World
    contexts/                    where engines come from: local, ssh, slurm
    engine (engine.py, sans-IO)  one per node; engine_process.py is its shell, with warden and cylinders
    cylinder.py                  one process per slot, runs one task at a time (spawn.py, capture.py)
    wire.py, messages.py, channel.py   ZeroMQ with CURVE, typed messages, nothing lost or repeated

How a front end uses it:

    world = LiveWorld(LiveOptions(retries=1), folder=run_folder, recorder=Journal(run_folder),
                      contexts=[LocalContext(slots=4)], feeder=Feeder(read_file(stream, name)))     # or feeder=None
    world.on_task.append(show)         # records.TaskEnded: each attempt; barriers (kind B, C), per-engine commands (P)
    Session(world, PolicyDecider(policy)).run()

Work comes from a Feeder (the lines of a task file), or is submitted while the run goes on:

    world.submit(Job("mine", units=2, walltime=60, after=("other",),
                     command=Command(argv=("prog", "arg"), cwd=..., env=..., stdin=..., stdout="out-{task}.txt")))
    world.bind("mine", Command(...))        # for a job that was submitted without one, before it starts
    world.cancel("mine")
    world.no_more()                         # a world without a feeder (or with options.service) ends only after this
    world.call(lambda: world.submit(...))   # the only method that other threads may use

Jobs keep their ids: the decider sees JobSubmitted("mine") when its dependencies are met, and JobEnded("mine", state,
code). Job.units and Job.shape (nodes, GPUs, memory) are placed by the decider; a job that spans nodes is started on the
engine of its lowest unit with PILOTHOUSE_NODES=name:slots,... in its environment. An engine owns the units of its node,
first..first+slots-1.

Tasks of a file with nothing special about them may reach the decider in bundles: one job whose tasks run one after
another on its units (work.py). LiveOptions(bundle=1) switches that off.

Placeholders in file names and in LiveOptions.task_env: {task} {line} {repeat} {attempt}, also formatted ({task:06d}).
Engines: world.engines() (EngineView: id, rank, node, context, state, slots, tasks given, done and failed);
world.stop_engine(id), world.stop_context(name), world.add_context(context).
Every result is in the journal before anybody hears of it. After a restart: world.restore(journal.replay()), then
world.feed(feeder) (see launch/live_run.py).
"""
