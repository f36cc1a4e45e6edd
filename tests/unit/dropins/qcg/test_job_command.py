"""What is started once a job has its cores: variables of the second phase, environment, host files, models."""

from __future__ import annotations

import msgspec
import pytest

from pilothouse.dropins.qcg.job_command import LaunchSettings, PreparedJob, Share, prepare
from pilothouse.formats.qcg_description import Description, describe
from pilothouse.formats.qcg_dialect import LATER, SPECIFICATION, Dialect

LOCAL = LaunchSettings("/pilot")
SLURM = LaunchSettings("/pilot", slurm=True, slurm_variables=True)
BOUND = msgspec.structs.replace(SLURM, binding=True)
TWO_NODES = [Share("e1", (0, 1)), Share("e2", (4,))]


def description(dialect: Dialect = LATER, **execution: object) -> Description:
    raw = {"name": "j", "execution": {"exec": "/bin/x", **execution}, "resources": {"numCores": {"exact": 3}}}
    return describe(raw, dialect)


def launch(described: Description, settings: LaunchSettings = LOCAL, shares: list[Share] | None = None) -> PreparedJob:
    return prepare(described, None, shares or TWO_NODES, settings, "step")


def test_variables_of_the_start() -> None:
    found = launch(description(args=["${root_wd} ${ncores} ${nnodes} ${nlist}"], stdout="o.${ncores}.${nnodes}"))
    assert found.command.argv == ("/bin/x", "/pilot 3 2 e1,e2")
    assert found.command.stdout == "/pilot/o.3.2"


def test_iteration_variables_of_the_later_dialect() -> None:
    raw = {"name": "v", "iteration": {"values": ["x", "y"]}, "execution": {"exec": "e", "args": ["${it}${itval}"]}}
    found = prepare(describe(raw, LATER), 1, [Share("n0", (0,))], LOCAL, "s")
    assert found.command.argv == ("e", "1y")


@pytest.mark.parametrize("dialect", [LATER, SPECIFICATION])
def test_two_dollars_are_one_at_the_start_too(dialect: Dialect) -> None:
    found = launch(description(dialect, args=["$${ncores} $$ ${HOME}"], wd="w$$"))
    assert found.command.argv == ("/bin/x", "${ncores} $ ${HOME}")
    assert found.wd == "/pilot/w$"


def test_working_directories_are_relative_to_the_managers_and_created() -> None:
    assert launch(description()).wd == "/pilot"
    found = launch(description(wd="sub", stdout="logs/out", stdin="/etc/in"))
    assert found.wd == found.command.cwd == "/pilot/sub"
    assert found.directories == ("/pilot/sub", "/pilot/sub/logs")
    assert found.command.stdin == "/etc/in"
    assert launch(description(wd="/abs")).wd == "/abs"


def test_environment_of_the_specification() -> None:
    env = launch(description(SPECIFICATION, env={"A": "${nnodes}"}), SLURM).command.env
    three, two = "3", "2"
    for name in ("SLURM_NPROCS", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "QCG_PM_NPROCS", "QCG_PM_NTASKS"):
        assert env[name] == three
    for name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES", "QCG_PM_NNODES"):
        assert env[name] == two
    for name in ("SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURM_STEP_NODELIST", "QCG_PM_NODELIST"):
        assert env[name] == "e1,e2"
    for name in ("NTASKS_PER_NODE", "STEP_TASKS_PER_NODE", "TASKS_PER_NODE"):
        assert env[f"SLURM_{name}"] == "2,1"
    assert env["QCG_PM_TASKS_PER_NODE"] == "2,1" and env["QCG_PM_STEP_ID"] == "step" and env["A"] == "2"
    for model, per_node in (("default", "2,1"), ("srunmpi", None)):
        env = launch(description(SPECIFICATION, model=model), SLURM).command.env
        assert env.get("SLURM_NTASKS_PER_NODE") == per_node and env["SLURM_OVERLAP"] == "1"
    outside = launch(description(SPECIFICATION), msgspec.structs.replace(LOCAL, slurm_variables=True)).command.env
    assert len([name for name in outside if name.startswith("SLURM_")]) == 13, "the twelve of the text, and the host file"


def test_environment_of_the_later_dialect() -> None:
    env = launch(description(), SLURM).command.env
    assert env["SLURM_TASKS_PER_NODE"] == "2,1" and "SLURM_NTASKS_PER_NODE" not in env
    even = launch(description(), SLURM, [Share("e1", (0, 1)), Share("e2", (0, 1))]).command.env
    assert even["SLURM_TASKS_PER_NODE"] == "2(x2)" and even["SLURM_NTASKS_PER_NODE"] == "2"
    assert even["SLURM_OVERLAP"] == "1"
    local = launch(description()).command.env
    assert not any(name.startswith("SLURM_") for name in local)
    networked = msgspec.structs.replace(LOCAL, address="tcp://h:1")
    assert launch(description(), networked).command.env["QCG_PM_ZMQ_ADDRESS"] == "tcp://h:1"


def test_host_file_names_each_node_once_per_core() -> None:
    found = launch(description(), SLURM)
    assert found.files == (("/pilot/.j.hostfile", "e1\ne1\ne2\n"),)
    assert found.command.env["SLURM_HOSTFILE"] == "/pilot/.j.hostfile"


def test_machine_files_of_the_specification_wherever_a_parallel_job_runs() -> None:
    files = {
        "/pilot/w/.j.hostfile": "e1\ne1\ne2\n",
        "/pilot/w/.j.runconfig": "0\t/bin/x a 'b c'\n1-2 /bin/true\n",
    }
    described = description(SPECIFICATION, args=["a", "b c"], wd="w")
    listed = msgspec.structs.replace(LOCAL, slurm_variables=True)
    for settings in (LOCAL, listed, SLURM):
        found = launch(described, settings)
        assert dict(found.files) == files
        assert ("SLURM_HOSTFILE" in found.command.env) is settings.slurm_variables
    two, one = [Share("e1", (0, 1))], [Share("e1", (0,))]
    assert dict(launch(described, LOCAL, two).files)["/pilot/w/.j.runconfig"].splitlines()[1:] == ["1 /bin/true"]
    assert launch(described, LOCAL, one).files == (), "a job of one core is not parallel"
    assert dict(launch(described, listed, one).files)["/pilot/w/.j.runconfig"] == "0\t/bin/x a 'b c'\n"
    assert launch(description(), LOCAL).files == ()


def test_stdin_is_relative_to_the_managers_folder_in_the_specification() -> None:
    """The program of 2018 opens it there; the text does not say where."""
    for dialect, stdin in ((SPECIFICATION, "/pilot/in"), (LATER, "/pilot/sub/in")):
        found = launch(description(dialect, wd="sub", stdin="in", stdout="out", stderr="/err")).command
        assert (found.stdin, found.stdout, found.stderr) == (stdin, "/pilot/sub/out", "/err")


@pytest.mark.parametrize(
    ("model", "settings", "words"),
    [
        ("default", SLURM, "/bin/x"),
        ("threads", SLURM, "srun -n 1 --cpus-per-task 3 -w e1 --overcommit --overlap --mem-per-cpu=0 --cpu-bind=none"),
        ("threads", BOUND, "srun -n 1 --cpus-per-task 3 -w e1 --overcommit --overlap --mem-per-cpu=0 --cpu-bind=mask_cpu:0x13"),
        ("openmpi", SLURM, "mpirun -n 3 --bind-to none"),
        ("openmpi", BOUND, "mpirun --rankfile /pilot/.j.rankfile"),
        ("intelmpi", SLURM, "mpirun -n 3"),
        ("intelmpi", BOUND, "mpirun -host e1 -n 2 -env I_MPI_PIN_PROCESSOR_LIST=0,1 : -host e2 -n 1 -env "
         "I_MPI_PIN_PROCESSOR_LIST=4"),
        ("srunmpi", SLURM, "srun -n 3 --overcommit --overlap --mem-per-cpu=0 -m arbitrary --cpu-bind=none"),
        ("srunmpi", BOUND, "srun -n 3 --overcommit --overlap --mem-per-cpu=0 -m arbitrary --cpu-bind=mask_cpu:0x1,0x2,0x10"),
    ],
)  # fmt: skip
def test_models(model: str, settings: LaunchSettings, words: str) -> None:
    found = launch(description(model=model, args=["1"]), settings)
    assert " ".join(found.command.argv) == (f"{words} /bin/x 1" if model != "default" else "/bin/x 1")
    assert found.program == "x"


def test_rank_file_and_options_of_models() -> None:
    found = launch(description(model="openmpi"), BOUND)
    assert dict(found.files)["/pilot/.j.rankfile"] == "rank 0=e1 slot=0\nrank 1=e1 slot=1\nrank 2=e2 slot=4\n"
    assert found.command.env["QCG_PM_CPU_SET"] == "0,1,4"
    options = {"mpirun": "/opt/mpirun", "mpirun_args": ["--quiet"], "srun_args": ["--mpi=pmi2"]}
    argv = launch(description(model="openmpi", model_opts=options), SLURM).command.argv
    assert argv[0] == "/opt/mpirun" and "--quiet" in argv
    assert "--mpi=pmi2" in launch(description(model="srunmpi", model_opts=options), SLURM).command.argv


def test_models_change_nothing_for_one_core_and_outside_slurm() -> None:
    one = [Share("e1", (0,))]
    assert launch(description(model="openmpi"), SLURM, one).command.argv == ("/bin/x",)
    assert launch(description(model="openmpi"), LOCAL).command.argv == ("/bin/x",)


def test_scripts_modules_and_virtual_environments() -> None:
    script = describe({"name": "s", "execution": {"script": "echo a; echo b"}}, LATER)
    found = launch(script)
    assert found.command.argv == ("bash", "-l", "-c", "echo a; echo b") and found.program == "bash"
    loaded = launch(description(args=["a b", "$HOME"], modules=["gcc", "mpi"], venv="/venv")).command.argv
    assert loaded[:3] == ("bash", "-l", "-c")
    assert loaded[3] == (
        "source /etc/profile && module load gcc mpi; source /venv/bin/activate; exec /bin/x 'a b' '$HOME'"
    )
