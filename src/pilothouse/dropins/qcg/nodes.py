"""Nodes on this host: one engine each, under the names that `--nodes 4,4,2` or `--nodes a:4,b:2` gives them."""

from __future__ import annotations

from pilothouse.model.errors import InputError, quoted
from pilothouse.worlds.live.contexts.programs import ProgramContext

MOST_NODES = 1024


class VirtualNodes(ProgramContext):
    """A context whose engines are all on this host."""

    NAME = "nodes"
    remote = False

    def __init__(self, nodes: list[tuple[str, int]], *, gpus: tuple[str, ...] = ()) -> None:
        super().__init__(self.NAME, dict(nodes), gpus=gpus)
        self.nodes = self.slots

    def adopt(self, engines: dict[str, str]) -> None:
        # An engine takes the place of a node of its own name only.
        super().adopt({key: node for key, node in engines.items() if node in self.nodes})


def parse_nodes(text: str, host: str, cores: int) -> list[tuple[str, int]]:
    """`4,4,2` or `a:4,b:2`: (name, cores) each; nothing: this host with its cores. Raises InputError."""
    if not text:
        return [(host, cores)]
    nodes: list[tuple[str, int]] = []
    for number, part in enumerate(text.split(",")):
        name, _, count = part.strip().rpartition(":")
        if not count.isdigit() or int(count) < 1:
            raise InputError(
                "--nodes", "number of cores for a node must not be less than 1", expected="4,4,2 or a:4,b:2",
                found=quoted(text),
            )  # fmt: skip
        nodes.append((name or f"n{number}", int(count)))
    if len(nodes) > MOST_NODES:
        raise InputError("--nodes", f"more than {MOST_NODES} nodes on one host")
    if len({name for name, _ in nodes}) < len(nodes):
        raise InputError("--nodes", "two nodes have one name", found=quoted(text))
    return nodes
