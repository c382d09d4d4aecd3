"""One-line mutants of C text: another operator, number, operand or intrinsic, or a statement left out."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

SWAPS = [
    (r" < ", " <= "),
    (r" <= ", " < "),
    (r" > ", " >= "),
    (r" >= ", " > "),
    (r" == ", " != "),
    (r" != ", " == "),
    (r" \+ ", " - "),
    (r" - ", " + "),
    (r" \* ", " + "),
    (r" / ", " * "),
    (r" % ", " / "),
    (r" & ", " | "),
    (r" \| ", " & "),
    (r" << ", " >> "),
    (r" >> ", " << "),
    (r" && ", " || "),
    (r" \|\| ", " && "),
    (r"^( *[\w.\->\[\]]+) = ", r"\1 += "),
    (r" \+= ", " -= "),
    (r" -= ", " += "),
    (r"\+\+", "--"),
    (r"--", "++"),
    (r"_epi8\(", "_epi16("),
    (r"_epi16\(", "_epi8("),
    (r"_epi32\(", "_epi16("),
    (r"\brow0\b", "row1"),
    (r"\brow1\b", "row0"),
    (r"\bacc(\d+)_0\b", r"acc\1_1"),
]
"""Patterns, and what takes the place of one match."""
_NUMBER = re.compile(r"(?<![\w.\[])\d+(?![\w.])")
_STATEMENT = re.compile(r"[\w\->\[\]().*+ ]+? ?(?:[-+*|&^]?=|\+\+|--|\() ?.*;")
_KEPT = ("return", "const ", "static ", "size_t ", "int32_t ", "uint64_t ", "uint8_t ", "__m256i ", "for ", "#")


@dataclass(frozen=True)
class Mutant:
    """A text with line `line`, from 0, changed from `old` to `new`."""

    line: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.line + 1}: {self.old.strip()}  ->  {self.new.strip() or '(left out)'}"

    def of(self, text: str) -> str:
        """The changed text."""
        lines = text.split("\n")
        lines[self.line] = self.new
        return "\n".join(lines)


def mutants(text: str, first: str = "", last: str = "") -> list[Mutant]:
    """All mutants of a text, or of its lines from the first that contains `first` to the next that has `last`."""
    lines = text.split("\n")
    start = next(n for n, line in enumerate(lines) if first in line)
    end = next((n for n, line in enumerate(lines) if last and n > start and last in line), len(lines))
    return [
        Mutant(n, line, new)
        for n, line in _code(lines)
        if start <= n < end
        for new in dict.fromkeys(_changed(line))
        if new != line
    ]


def sample(found: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants, each of another line while there are lines; the same for the same seed."""
    shuffled = random.Random(seed).sample(found, len(found))
    once = {mutant.line: mutant for mutant in shuffled}
    firsts = list(once.values())
    return (firsts + [m for m in shuffled if once[m.line] is not m])[:count]


def _code(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Lines of statements, with their numbers."""
    comment = False
    for n, line in enumerate(lines):
        stripped = line.strip()
        if comment or stripped.startswith("/*"):
            comment = "*/" not in stripped
        elif stripped and stripped[0] not in "#{}" and not stripped.startswith(("enum", "typedef", "extern", "struct")):
            yield n, line


def _changed(line: str) -> Iterator[str]:
    for pattern, other in SWAPS:
        for match in re.finditer(pattern, line):
            yield line[: match.start()] + match.expand(other) + line[match.end() :]
    for match in _NUMBER.finditer(line):
        for number in (int(match[0]) - 1, int(match[0]) + 1):
            if number >= 0:
                yield line[: match.start()] + str(number) + line[match.end() :]
    if _STATEMENT.fullmatch(line.strip()) and not line.strip().startswith(_KEPT):
        yield ""
