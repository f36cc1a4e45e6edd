"""disBatch's command line."""

from __future__ import annotations

from typing import Any

import pytest

from pilothouse.dropins.disbatch.options import parse_run
from pilothouse.launch.add_engines import UsageError, parse_context


def test_a_later_context_takes_over_what_it_does_not_say() -> None:
    run = parse_run(["-c", "2", "-t", "3", "-E", "A,B", "-C", "9", "tasks"]).context
    late = parse_context(["-t", "4"]).or_else(run)
    assert (late.cpus_per_task, late.tasks_per_node, late.env_resources, late.task_limit) == (2, 4, ("A", "B"), 0)


@pytest.mark.parametrize(
    ("arguments", "raised"),
    [
        ([], SystemExit),
        (["--nope", "tasks"], SystemExit),
        (["tasks", "--version"], SystemExit),
        (["--mailFreq", "2", "tasks"], UsageError),
        *((["-c", count, "tasks"], UsageError) for count in ("0", "-2", "nan")),
        (["-t", "-5", "tasks"], UsageError),
        (["-S", "-s", "a:1", "tasks"], UsageError),
        (["--taskserver", "a:1", "--kvsserver", "b:2"], UsageError),
    ],
)
def test_usage_errors(arguments: list[str], raised: type[BaseException], capsys: Any) -> None:
    with pytest.raises(raised) as caught:
        parse_run(arguments)
    if isinstance(caught.value, SystemExit):
        assert caught.value.code == 2


def test_abbreviations_and_repeats_as_in_disbatch() -> None:
    options = parse_run(["--fail", "-r", "a", "-r", "b", "--tasksPer=3", "-"])
    assert (options.fail_fast, options.resume_from, options.context.tasks_per_node) == (True, ("a", "b"), 3)
    assert options.task_file == "-"


def test_short_options_of_2021() -> None:
    said = parse_run(["--dialect", "2021", "-g", "-E", "A", "-k", "give $NODE back", "-l", "L", "tasks"])
    assert said.edition == 2
    assert said.context.dealt == ("A", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL")
    assert said.context.retire_command == "give $NODE back"
    assert parse_run(["-K", "tasks"]).context.retire_command == ""
    assert parse_context(["-k", "x"]).retire_command == "x"
    assert parse_run(["-g", "tasks"]).context.dealt == ()
