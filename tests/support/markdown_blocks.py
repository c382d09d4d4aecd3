"""The code of README, docs and examples: blocks of Markdown, by language."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("README.md"),
    ]
)
_SLOW = "<!-- test: slow -->"
"""In front of a block that takes more than a second."""


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is the first of its text."""

    page: Path
    line: int
    language: str
    text: str
    slow: bool

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command after `$ ` and the output the page shows."""

    words: str
    output: str


def blocks(page: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a page in these languages, in order."""
    return [block for block in _blocks(page) if block.language in languages]


@cache
def _blocks(page: Path) -> list[Block]:
    blocks, before = [], ""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type == "fence":
            line = (token.map or [0])[0] + 2
            blocks.append(Block(page, line, token.info, token.content, before == _SLOW))
        before = token.content.strip()
    return blocks


def all_blocks(*languages: str) -> list[Block]:
    """The fenced blocks of all pages in these languages."""
    return [block for page in PAGES for block in blocks(page, *languages)]


def console(text: str) -> list[Command]:
    """The commands of a console block; what stands before the first is no output of any."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    assert not parts[0], f"a console block begins with '$ ', not with {parts[0]!r}"
    return [Command(*part.partition("\n")[::2]) for part in parts[1:]]


def bitsynth_commands(block: Block) -> Iterator[list[str]]:
    """The arguments of every call of bitsynth in a block of shell or console."""
    shell = [c.words for c in console(block.text)] if block.language == "console" else [block.text]
    for line in "\n".join(shell).replace("\\\n", " ").splitlines():
        for command in re.split(r"&&|\||;", line.partition(" #")[0]):
            words = shlex.split(command, comments=True)
            called = [w for w in words if not re.fullmatch(r"[A-Z_]+=\S*", w)]
            if called and called[0].rpartition("/")[2] == "bitsynth":
                yield called[1:]


def matches(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed: `...` stands for anything, a line of it for any lines.

    Times differ, or are too short to be said.
    """
    lines = [line.rstrip() for line in _untimed(shown).rstrip().splitlines()]
    pattern = "".join(r"(?:.*\n)*?" if x == "..." else ".*?".join(map(re.escape, x.split("..."))) + "\n" for x in lines)
    text = "".join(f"{line.rstrip()}\n" for line in _untimed(printed).rstrip().splitlines())
    return re.fullmatch(pattern, text) is not None


def _untimed(text: str) -> str:
    return re.sub(r" +\d+\.\d s$", "", text, flags=re.MULTILINE)
