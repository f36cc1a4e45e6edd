"""Batsim 5's command line: what its parser accepts, and the exit codes with which it refuses."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilothouse.dropins.batsim5.options import Options, Usage, parse

EDC = ["-l", "libfcfs.so", "init"]


@pytest.fixture
def platform(tmp_path: Path) -> str:
    path = tmp_path / "p.xml"
    path.write_text("<platform/>")
    return str(path)


def refusal(*arguments: str) -> Usage:
    with pytest.raises(Usage) as found:
        parse(arguments)
    return found.value


def test_everything_at_once(platform: str) -> None:
    words = f"-p {platform} -w {platform} {platform} --ee {platform} --export=x/ --trace-machine-state -m boss --mmax 3"
    more = "-r a storage -r b master --edc-library-load-method DLMOPEN -v debug --sg-cfg a:1 b:2 --energy-host"
    options = parse([*words.split(), *more.split(), *EDC])
    assert options == Options(
        platform=platform,
        workload=[platform, platform],
        external_events=[platform],
        export="x/",
        trace_machine_state=True,
        edc_library_str=[["libfcfs.so", "init"]],
        edc_library_load_method="dlmopen",
        master_host="boss",
        add_role=[["a", "storage"], ["b", "master"]],
        mmax=3,
        energy_host=True,
        sg_cfg=["a:1", "b:2"],
        verbosity="debug",
    )
    assert options.edcs == [("edc_library_str", "libfcfs.so", "init")]


def test_an_empty_init_string_is_a_value(platform: str) -> None:
    assert parse(["-p", platform, "-s", "tcp://localhost:28000", ""]).edcs == [
        ("edc_socket_str", "tcp://localhost:28000", "")
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 1, "platform"),
        (["--nonsense"], 109, "not expected: --nonsense"),
        (["-p", "{p}", *EDC, "-e", "x/", "stray"], 109, "not expected: stray"),
        (["--nonsense", "-p", "/nowhere.xml"], 105, "File does not exist"),
        (["--nonsense", "-p"], 114, "1 required"),
        (["-p", "{p}", *EDC, "--nonsense", "-E", "--energy-host"], 108, "--energy excludes --energy-host"),
        (["-c", "/nowhere.toml", "--nonsense"], 103, "no such file: /nowhere.toml"),
        (["-p", "{p}", *EDC, "--energy-host=perhaps"], 104, "neither true nor false"),
        (["-p", "{p}", *EDC, "-r", "a", "storage", "b"], 114, "2 required, received 3"),
        (["-p", "{p}", *EDC, "stray"], 114, "received 3"),
        (["-p", "/nowhere.xml", *EDC], 105, "File does not exist: /nowhere.xml"),
        (["-p", "{p}", *EDC, "-w", "/nowhere.json"], 105, "File does not exist"),
        (["-p", "{p}", *EDC, "-v", "loud"], 105, "loud not in"),
        (["-p", "{p}", *EDC, "--edc-library-load-method", "magic"], 105, "magic not in"),
        (["-p", "{p}", *EDC, "--mmax", "many"], 104, "--mmax"),
        (["-p", "{p}", "-l", "lib.so"], 114, "2 required"),
        (["-p"], 114, "1 required"),
        (["-p", "{p}", *EDC, "-q", "-v", "info"], 108, "excludes"),
        (["-p", "{p}"], 1, "Exactly one External Decision Component"),
        (["-p", "{p}", *EDC, "-s", "tcp://x", "y"], 1, "Exactly one External Decision Component"),
        (["-p", "{p}", *EDC, *EDC], 1, "2 were given"),
        (["-p", "{p}", *EDC, "--energy-link"], 1, "not implemented"),
        (["-p", "{p}", *EDC, "-E"], 1, "not implemented"),
        (["--version", "--simgrid-version"], 1, "cannot be combined"),
        (["--batsim-git-commit"], 1, "not implemented"),
        (["--simgrid-git-commit"], 1, "not implemented"),
    ],
)
def test_what_is_wrong_has_the_exit_code_of_the_real_one(
    arguments: list[str], code: int, told: str, platform: str
) -> None:
    found = refusal(*(word.replace("{p}", platform) for word in arguments))
    assert (found.code, found.output) == (code, "")
    assert told in found.error


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--version"], "v5.0.0-rc2"),
        (["--batsim-version"], "v5.0.0-rc2"),
        (["--simgrid-version"], "4."),
        (["-h"], "--edc-library-str"),
        (["-h", "--version", "--nonsense"], "--edc-library-str"),
        (["--dump-execution-context", "-s", "tcp://a:1", ""], '{"socket_endpoint":"tcp://a:1","export_prefix":"out/"}'),
    ],
)
def test_what_prints_and_exits(arguments: list[str], told: str) -> None:
    found = refusal(*arguments)
    assert (found.code, found.error) == (0, "")
    assert told in found.output


@pytest.mark.parametrize("name", ["c.toml", "c.ini"])
def test_a_written_configuration_reads_back(name: str, platform: str, tmp_path: Path) -> None:
    arguments = ["-p", platform, "-w", platform, platform, "-r", "a", "storage", "--mmax", "3", "--energy-host"]
    arguments += ["-l", "lib with blank.so", 'say "hi" \\o/', "-e", "x/"]
    config = str(tmp_path / name)
    plain = parse(arguments)
    assert parse([*arguments, "--gen-config", config]) == msgspec.structs.replace(plain, gen_config=config)
    assert parse(["-c", config]) == msgspec.structs.replace(plain, config=config)


def test_a_configuration_is_written_also_where_something_is_missing(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    assert refusal("--mmax", "3", "-q", "--version", "--gen-config", str(config)).code == 0
    assert refusal("--mmax", "3", "--ee", str(config), "--gen-config", str(config)).code == 1
    assert config.read_text() == f'ee="{config}"\nmmax=3\n'


def test_lists_of_a_configuration_may_take_several_lines(platform: str, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'workload = [\n  "{platform}",\n  "{platform}"\n]\nplatform="{platform}"\nedc-library-str=["a", "b"]')
    assert parse(["-c", str(config)]).workload == [platform, platform]


def test_what_only_the_command_line_may_say(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("version=true\n")
    assert refusal("-c", str(config)).code == 110


def test_values_that_look_like_options_and_several_pairs(platform: str) -> None:
    options = parse(["-p", platform, "-l", "lib.so", "--nonsense", "-e", "-x", "-r", "a", "storage", "b", "master"])
    assert options.edcs == [("edc_library_str", "lib.so", "--nonsense")]
    assert (options.export, options.add_role) == ("-x", [["a", "storage"], ["b", "master"]])


def test_the_command_line_wins_over_the_configuration(platform: str, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        f"# made by hand\n[default]\nplatform = '{platform}'\nmmax=7 # few\nexport=first/\ntrace-machine-state\n"
        'edc-library-str=["a.so", ""]\nenergy-host=false\n'
    )
    options = parse(["-c", str(config), "-e", "second/"])
    assert (options.mmax, options.export, options.energy_host) == (7, "second/", False)
    assert options.trace_machine_state, "a key alone is a flag"
    assert options.edcs == [("edc_library_str", "a.so", "")]


@pytest.mark.parametrize("line", ["platfrom = 'p.xml'", "nonsense", "[other]", "pp = 1"])
def test_a_misspelt_key_of_a_configuration_is_refused(line: str, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f"# one line\nmmax=3\n{line}\n")
    found = refusal("-c", str(config))
    assert found.code == 110
    assert f"{config}:3: no option of Batsim" in found.error
    if line.startswith("platfrom"):
        assert "did you mean platform?" in found.error


def test_short_names_are_keys_of_a_configuration(platform: str, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f"p = '{platform}'\nl=['a.so', '']\n")
    assert parse(["-c", str(config)]).platform == platform
