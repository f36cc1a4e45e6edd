"""Prints random sentences of the project, to be read as a stranger would: `python tools/sentences.py --seed 7 --count 100`.

Where they come from: docstrings, comments and longer texts in the source, and the prose of the documentation. A sentence that
must be read twice is rewritten. Style: short declarative sentences, the usual terms of the field, the subject first.
"""

from __future__ import annotations

import argparse
import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
LEAST_WORDS = 4
GENERATED = {"binary.py", "messages.py", "text.py"}
_WORD = re.compile(r"[A-Za-z]{2,}")
_ENDS = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*])")


Sentence = tuple[str, int, str]
"""File, line, text."""


def of_text(name: str, line: int, text: str) -> Iterator[Sentence]:
    """The sentences of a paragraph."""
    for sentence in _ENDS.split(" ".join(text.split())):
        if len(_WORD.findall(sentence)) >= LEAST_WORDS:
            yield name, line, sentence


def of_source(path: Path) -> Iterator[Sentence]:
    """Docstrings, comments, and texts that look like sentences."""
    name = str(path.relative_to(ROOT))
    tree = ast.parse(path.read_text())
    parts = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}  # no whole texts
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in parts:
            for paragraph in re.split(r"\n\s*\n", node.value):
                yield from of_text(name, node.lineno, paragraph)
    with tokenize.open(path) as stream:
        for token in tokenize.generate_tokens(stream.readline):
            if token.type == tokenize.COMMENT:
                yield from of_text(name, token.start[0], token.string.lstrip("# "))


def of_page(path: Path) -> Iterator[Sentence]:
    """Prose, items of lists and cells of tables; no code, no generated tables."""
    name = str(path.relative_to(ROOT))
    text = re.sub(r"<!-- table:.*?<!-- end -->", lambda found: "\n" * found[0].count("\n"), path.read_text(), flags=re.S)
    text = re.sub(r"```.*?```", lambda found: "\n" * found[0].count("\n"), text, flags=re.S)
    line = 1
    for paragraph in re.split(r"(\n(?=[*|#-] |\|)|\n\s*\n)", text):
        if paragraph.strip():
            cells = paragraph.split("|") if paragraph.startswith("|") else [paragraph]
            for cell in cells:
                yield from of_text(name, line, re.sub(r"^[*#\s-]+", "", cell))
        line += paragraph.count("\n")


def sentences() -> list[Sentence]:
    found: dict[str, Sentence] = {}
    for path in sorted((ROOT / "src").rglob("*.py")):
        if path.name not in GENERATED:
            found.update({text: (name, line, text) for name, line, text in of_source(path)})
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    for path in sorted(pages):
        found.update({text: (name, line, text) for name, line, text in of_page(path)})
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description="Print random sentences of source and documentation.")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--under", default="", help="only of files whose path begins so")
    arguments = parser.parse_args()
    known = [one for one in sentences() if one[0].startswith(arguments.under)]
    for name, line, text in Random(arguments.seed).sample(known, min(arguments.count, len(known))):
        print(f"{name}:{line}\n    {text}")


if __name__ == "__main__":
    main()
