"""Batsim 5's command line: what its options mean, and how its parser (CLI11) reads them and complains.

In: the arguments. Out: `Options`, or `Usage` with the exit code and the lines that the real program would end with:
109 for an unknown argument, 105 for a value that fails its check, 114 and 104 for missing and unreadable values, 108
for two options that exclude each other, 103 and 110 for a configuration file that is not there or sets what only the
command line may, 1 for anything that makes no sense together. Its order of complaints is kept: missing values, values,
help, exclusions, unknown arguments, and then what its own code looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from pilothouse.dropins.batsim5 import config as batsim_config

VERSION = "v5.0.0-rc2"
SIMGRID_VERSION = "4.0.0"
NO_FILE, CONVERSION, VALIDATION, EXCLUDES, EXTRAS, CONFIG, MISMATCH = 103, 104, 105, 108, 109, 110, 114
_TRUE = ("true", "on", "yes", "enable", "t", "y", "+", "1")
_FALSE = ("false", "off", "no", "disable", "f", "n", "-", "0")


class Usage(Exception):
    """The command line is wrong (or there is nothing to do but to print): the exit code, and what goes where."""

    def __init__(self, code: int, error: str = "", output: str = "") -> None:
        super().__init__(error or output)
        self.code = code
        self.error = error
        self.output = output


class Options(msgspec.Struct):
    """What was asked for. Names are those of the long options."""

    platform: str = ""
    workload: list[str] = []
    external_events: list[str] = []
    export: str = "out/"
    trace_machine_state: bool = False
    trace_pstate_changes: bool = False
    trace_probe_data: str = "auto"
    edc_library_str: list[list[str]] = []
    edc_library_file: list[list[str]] = []
    edc_socket_str: list[list[str]] = []
    edc_socket_file: list[list[str]] = []
    edc_library_load_method: str = "dlopen"
    master_host: str = "master_host"
    add_role: list[list[str]] = []
    mmax: int = 0
    mmax_workload: bool = False
    energy_host: bool = False
    energy_link: bool = False
    energy: bool = False
    sg_cfg: list[str] = []
    sg_log: list[str] = []
    verbosity: str = "info"
    quiet: bool = False
    config: str = ""
    gen_config: str = ""
    help: bool = False
    version: bool = False
    simgrid_version: bool = False
    batsim_git_commit: bool = False
    simgrid_git_commit: bool = False
    dump_execution_context: bool = False
    # Ours
    strict: bool = False
    all_probes: bool = False
    inprocess: bool = False
    edc_timeout: float = 0.0

    @property
    def edcs(self) -> list[tuple[str, str, str]]:
        """The decision components that were named: (option, where, what)."""
        kinds = ("edc_library_str", "edc_library_file", "edc_socket_str", "edc_socket_file")
        return [(kind, pair[0], pair[1]) for kind in kinds for pair in getattr(self, kind)]

    @property
    def socket_endpoint(self) -> str:
        return next((where for kind, where, _ in self.edcs if "socket" in kind), "")

    @property
    def execution_context(self) -> str:
        """What the decision component is told of how it is run, as the peer prints it."""
        context = {"socket_endpoint": self.socket_endpoint, "export_prefix": self.export}
        return msgspec.json.encode(context).decode()


class Option(msgspec.Struct):
    """One option: how many values (0: a flag, -1: as many as there are), and what they must be."""

    names: tuple[str, ...]
    field: str
    values: int = 1
    check: Callable[[str], str] | None = None
    many: bool = False
    """May be given several times; the values are added."""
    text: str = ""

    @property
    def long(self) -> str:
        return next(name for name in self.names if name.startswith("--"))[2:]


def existing_file(value: str) -> str:
    path = Path(value)
    if not path.exists():
        return f"File does not exist: {value}"
    return f"File is actually a directory: {value}" if path.is_dir() else ""


def one_of(*known: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        return "" if value.lower() in known else f"{value} not in {{{','.join(known)}}}"

    return check


def number(value: str) -> str:
    return "" if value.lstrip("+-").isdigit() else "not a number"


OPTIONS = (
    Option(("-p", "--platform"), "platform", check=existing_file, text="the simulated platform (SimGrid XML)"),
    Option(("-w", "--workload"), "workload", -1, existing_file, many=True, text="workload files"),
    Option(("--ee", "--external-events"), "external_events", -1, existing_file, many=True, text="external event files"),
    Option(("-e", "--export"), "export", text="prefix of the output files (default out/)"),
    Option(("--trace-machine-state",), "trace_machine_state", 0, text="write machine_states.csv"),
    Option(("--trace-pstate-changes",), "trace_pstate_changes", 0, text="write pstate_changes.csv"),
    Option(("--trace-probe-data",), "trace_probe_data", check=one_of("always", "never", "auto"), text="no effect"),
    Option(("-l", "--edc-library-str"), "edc_library_str", 2, many=True, text="EDC library, init string"),
    Option(("-L", "--edc-library-file"), "edc_library_file", 2, many=True, text="EDC library, init file"),
    Option(("-s", "--edc-socket-str"), "edc_socket_str", 2, many=True, text="EDC endpoint, init string"),
    Option(("-S", "--edc-socket-file"), "edc_socket_file", 2, many=True, text="EDC endpoint, init file"),
    Option(
        ("--edc-library-load-method",),
        "edc_library_load_method",
        check=one_of("dlmopen", "dlopen"),
        text="how to load the library (default dlopen)",
    ),
    Option(("-m", "--master-host"), "master_host", text="name of the master host"),
    Option(("-r", "--add-role"), "add_role", 2, many=True, text="HOST ROLE (master, storage, compute_node)"),
    Option(("--mmax",), "mmax", check=number, text="keep only the first N compute hosts"),
    Option(("--mmax-workload",), "mmax_workload", 0, text="as many hosts as the workloads speak of"),
    Option(("--energy-host",), "energy_host", 0, text="simulate the energy of hosts"),
    Option(("--energy-link",), "energy_link", 0, text="not implemented"),
    Option(("-E", "--energy"), "energy", 0, text="not implemented"),
    Option(("--sg-cfg",), "sg_cfg", -1, many=True, text="SimGrid settings (loopbacks, TCP-gamma)"),
    Option(("--sg-log",), "sg_log", -1, many=True, text="SimGrid log controls (no effect)"),
    Option(("-v", "--verbosity"), "verbosity", check=one_of("quiet", "info", "debug"), text="quiet, info or debug"),
    Option(("-q", "--quiet"), "quiet", 0, text="the same as --verbosity quiet"),
    Option(("-c", "--config"), "config", text="read options from a file"),
    Option(("--gen-config",), "gen_config", text="write the options to a file, and go on"),
    Option(("-h", "--help"), "help", 0, text="print this help and exit"),
    Option(("--version", "--batsim-version"), "version", 0, text="print the version and exit"),
    Option(("--simgrid-version",), "simgrid_version", 0, text="print the version of SimGrid and exit"),
    Option(("--batsim-git-commit",), "batsim_git_commit", 0, text="not implemented"),
    Option(("--simgrid-git-commit",), "simgrid_git_commit", 0, text="not implemented"),
    Option(("--dump-execution-context",), "dump_execution_context", 0, text="print the execution context and exit"),
    Option(("--strict",), "strict", 0, text="(pilothouse) enforce the scheduling constraints of the EDC's hello"),
    Option(("--all-probes",), "all_probes", 0, text="(pilothouse) carry out TriggerProbe, ResetProbe and probes of every kind"),
    Option(("--in-process",), "inprocess", 0, text="(pilothouse) load the EDC library into this process"),
    Option(("--edc-timeout",), "edc_timeout", text="(pilothouse) give the EDC up after so many silent seconds"),
)
BY_NAME = {name: option for option in OPTIONS for name in option.names}
BY_KEY = {name.lstrip("-"): option for option in OPTIONS for name in option.names}
_RUN_WITH_HELP = "Run with --help for more information."


def parse(arguments: Sequence[str]) -> Options:
    """Reads the command line and the configuration file; raises Usage for everything that is not a simulation."""
    found, extras = _split(arguments)
    no_config = ""
    if "config" in found:
        path = found["config"][-1][0]
        if Path(path).is_file():
            try:
                configured = batsim_config.read(path, BY_KEY)
            except batsim_config.UnknownKey as unknown:
                raise Usage(CONFIG, f"{unknown}\n{_RUN_WITH_HELP}") from None
            for field, groups in configured.items():
                if field in batsim_config.NOT_CONFIGURABLE:
                    raise Usage(CONFIG, f"{path}: {field} belongs on the command line\n{_RUN_WITH_HELP}")
                found.setdefault(field, groups)  # the command line wins
        else:
            no_config = path
    options = _fill(found)
    if options.help:
        raise Usage(0, output=help_text())
    if no_config:
        raise Usage(NO_FILE, f"--config: no such file: {no_config}\n{_RUN_WITH_HELP}")
    _refuse_exclusions(found)
    if extras:
        noun = "argument was" if len(extras) == 1 else "arguments were"
        raise Usage(EXTRAS, f"The following {noun} not expected: {' '.join(extras)}\n{_RUN_WITH_HELP}")
    if options.gen_config:
        batsim_config.write(options.gen_config, found, OPTIONS)
    _print_and_exit(options)
    _refuse_nonsense(options)
    return options


def _split(arguments: Sequence[str]) -> tuple[dict[str, list[list[str]]], list[str]]:
    """Field -> the values of each time that its option was given; and what belongs to no option.

    The first values of an option are taken whatever they look like; an option that may be given several times goes on
    as long as no word looks like an option.
    """
    found: dict[str, list[list[str]]] = {}
    extras: list[str] = []
    todo = list(arguments)
    while todo:
        word = todo.pop(0)
        name, attached = word, None
        if word.startswith("--") and "=" in word:
            name, _, attached = word.partition("=")
        elif word not in BY_NAME and word.startswith("-") and word[:2] in BY_NAME and not word.startswith("--"):
            name, rest = word[:2], word[2:]
            if BY_NAME[name].values:
                attached = rest.removeprefix("=")
            else:  # several flags in one word
                todo.insert(0, "-" + rest)
        option = BY_NAME.get(name)
        if option is None:
            extras.append(word)
            continue
        values = [] if attached is None else [attached]
        least = abs(option.values)
        while todo and len(values) < least:
            values.append(todo.pop(0))
        while todo and option.values and option.many and not _is_option(todo[0]):
            values.append(todo.pop(0))
        if least and (len(values) < least or len(values) % least):
            raise Usage(MISMATCH, f"--{option.long}: {least} required, received {len(values)}\n{_RUN_WITH_HELP}")
        groups = [values[at : at + 2] for at in range(0, len(values), 2)] if option.values == 2 else [values]
        found.setdefault(option.field, []).extend(groups)
    return found, extras


def _is_option(word: str) -> bool:
    """What ends a list of values: a dash and a letter (a negative number is a value)."""
    return len(word) > 1 and word[0] == "-" and not word[1].isdigit() and word[1] != "." and word[1] != " "


def _check_values(option: Option, groups: list[list[str]]) -> None:
    for value in (value for values in groups for value in values):
        if option.check is not None and (problem := option.check(value)):
            code = CONVERSION if option.check is number else VALIDATION
            raise Usage(code, f"--{option.long}: {problem}\n{_RUN_WITH_HELP}")
        if option.values == 0 and value.lower() not in _TRUE + _FALSE:
            raise Usage(CONVERSION, f"--{option.long}: {value!r} is neither true nor false\n{_RUN_WITH_HELP}")


def _fill(found: dict[str, list[list[str]]]) -> Options:
    options = Options()
    for option in OPTIONS:
        groups = found.get(option.field)
        if groups is None:
            continue
        _check_values(option, groups)
        if option.values == 0:
            setattr(options, option.field, not groups[-1] or groups[-1][0].lower() in _TRUE)
        elif option.values < 0:
            setattr(options, option.field, [value for values in groups for value in values])
        elif option.values == 2:
            setattr(options, option.field, groups)
        elif len(groups) > 1:
            raise Usage(MISMATCH, f"--{option.long}: 1 required, received {len(groups)}\n{_RUN_WITH_HELP}")
        elif option.field == "mmax":
            options.mmax = int(groups[0][0])
        elif option.field == "edc_timeout":
            try:
                options.edc_timeout = float(groups[0][0])
            except ValueError:
                raise Usage(CONVERSION, f"--edc-timeout: not a number\n{_RUN_WITH_HELP}") from None
        else:
            setattr(options, option.field, groups[0][0])
    if options.quiet:
        options.verbosity = "quiet"
    options.verbosity = options.verbosity.lower()
    options.edc_library_load_method = options.edc_library_load_method.lower()
    return options


def _refuse_exclusions(found: dict[str, list[list[str]]]) -> None:
    for one, others in (("quiet", ("verbosity",)), ("energy", ("energy_host", "energy_link"))):
        for other in others:
            if one in found and other in found:
                names = f"--{one} excludes --{other.replace('_', '-')}"
                raise Usage(EXCLUDES, f"{names}\n{_RUN_WITH_HELP}")


def _print_and_exit(options: Options) -> None:
    asked = [
        name
        for name in ("version", "simgrid_version", "dump_execution_context")
        if getattr(options, name)
    ]
    missing = [name for name in ("batsim_git_commit", "simgrid_git_commit") if getattr(options, name)]
    if len(asked) + len(missing) > 1:
        names = ", ".join("--" + name.replace("_", "-") for name in asked + missing)
        raise Usage(1, f"Options that print something and exit cannot be combined: {names}")
    if missing:
        raise Usage(1, f"--{missing[0].replace('_', '-')} is not implemented")
    if options.version:
        raise Usage(0, output=VERSION)
    if options.simgrid_version:
        raise Usage(0, output=SIMGRID_VERSION)
    if options.dump_execution_context:
        raise Usage(0, output=options.execution_context)


def _refuse_nonsense(options: Options) -> None:
    problems = []
    if not options.platform:
        problems.append("A platform is required: --platform was not given")
    edcs = len(options.edcs)
    if edcs != 1:
        kinds = "--edc-library-str, --edc-library-file, --edc-socket-str, --edc-socket-file"
        problems.append(f"Exactly one External Decision Component (EDC) is required, {edcs} were given ({kinds})")
    if options.energy_link:
        problems.append("--energy-link is not implemented")
    if options.energy:
        problems.append("--energy is not implemented")
    if problems:
        raise Usage(1, "\n".join(problems))


def help_text() -> str:
    lines = ["Usage: batsim [OPTIONS]", "", "Options:"]
    for option in OPTIONS:
        values = {0: "", -1: " VALUE...", 2: " A B"}.get(option.values, " VALUE")
        lines.append(f"  {','.join(option.names) + values:<42} {option.text}")
    lines += [
        "",
        "Examples:",
        "  pilothouse batsim -p cluster.xml -w workload.json -l ./libfcfs.so '' -e out/",
        "  pilothouse batsim -p cluster.xml -w workload.json -s tcp://localhost:28000 '' -e out/",
    ]
    return "\n".join(lines)
