"""The live world: real tasks on real nodes, run as disBatch does, decided by any Decider.

    world.py     the face, and the shell around the driver: implements core/contract.py's World
    options, records, snapshots, feeder, requests, stream_lines     what front ends need besides
    driver/      sans-IO: the state of the run, and functions that change it; every change is a record in the journal
    contexts/    where engines come from: local, ssh, jobs of batch systems
    engine/      one engine per node (engine.py, sans-IO; process.py is its shell, with a warden), and one cylinder per
                 slot that runs one task at a time
    wire/        ZeroMQ with CURVE, typed messages, a channel that neither loses nor repeats
    services/    what tasks of a run may use, such as disBatch's key-value service

How a front end uses it:

    world = LiveWorld(LiveOptions(retries=1), folder=run_folder, recorder=Journal(run_folder),
                      contexts=[LocalContext(slots=4)], feeder=Feeder(read_file(stream, name)))     # or feeder=None
    world.on_task.append(show)         # records.TaskEnded: each attempt; barriers (kind B, C), per-engine commands (P)
    Session(world, decider).run()

Work comes from a Feeder (the lines of a task file), or is submitted while the run goes on:

    world.submit(Job("mine", units=2, walltime=60, after=("other",),
                     command=Command(argv=("prog", "arg"), cwd=..., env=..., stdin=..., stdout="out-{task}.txt")))
    world.bind("mine", Command(...))        # for a job that was submitted without a command, before it starts
    world.cancel("mine")
    world.no_more()                         # a world without a feeder (or with options.service) ends only after this
    world.call(lambda: world.submit(...))   # the only method that other threads may use

Jobs keep their ids: the decider gets JobSubmitted("mine") when its dependencies are met, and JobEnded("mine", state,
code). Job.units and Job.shape (nodes, GPUs, memory) are placed by the decider. A job that spans nodes is started on the
engine of its lowest unit with PILOTHOUSE_NODES=name:slots,... in its environment. An engine owns the units of its node,
first..first+slots-1.

Short tasks of a file may reach the decider in bundles: one job whose tasks run one after another on its units
(Pace). LiveOptions(bundle=1) switches that off.

Placeholders in file names and in LiveOptions.task_env: {task} {line} {repeat} {attempt}, also formatted ({task:06d}).
Engines: world.engines() (EngineView: id, rank, node, context, state, slots, tasks given, done and failed);
world.stop_engine(id), world.stop_context(name), world.add_context(context).
Every result is in the journal before on_task or the decider gets it. After a restart: world.restore(journal.replay()),
world.adopt(contexts, is_gone), then world.feed(feeder) (see launch/live_run.py).
"""
