"""Rendering of templates, with C laid out.

Lines have at most WIDTH columns, and are broken as `.clang-format` says.

Templates and programs write a statement to a line; if that is too long, arguments go to the next line, or each to
one of its own. Tables of many numbers are left to fill lines.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket

WIDTH = 100
INDENT = "    "
_TABLES_MEET = re.compile(r"clang-format on \*/\n */\* clang-format off")
"""A cheap test for two tables that follow each other, before the slow substitution."""
_BETWEEN_TABLES = re.compile(r"^ */\* clang-format on \*/\n */\* clang-format off \*/\n", re.MULTILINE)


def lay_out(text: str) -> str:
    """Return `text` with long lines broken, and one pair of clang-format comments around neighbouring tables."""
    text = _BETWEEN_TABLES.sub("", text) if _TABLES_MEET.search(text) else text
    if max(map(len, text.split("\n"))) <= WIDTH:
        return text
    lines = (_break_line(line) if len(line) > WIDTH else [line] for line in text.split("\n"))
    return "\n".join(part for parts in lines for part in parts)


def block(head: str, body: Sequence[str]) -> list[str]:
    """Return `head` and the body in braces; an empty head gives braces alone."""
    return [f"{head} {{".lstrip(), *indent_lines(body), "}"]


def indent_lines(lines: Sequence[str], levels: int = 1) -> list[str]:
    """Return lines indented by `levels`; preprocessor directives stay at the margin."""
    return [line if line.startswith("#") or not line else INDENT * levels + line for line in lines]


def comment(text: str) -> str:
    """Return a C comment of paragraphs. List items begin with blanks; their continuation lines hang below the text."""
    lines: list[str] = []
    for paragraph in re.split(r"\n(?=\n)|\n(?= )|(?<=\n)\n", text.strip("\n")):
        hang = re.match(r" +\S+ {2,}|", paragraph)
        words = paragraph if paragraph.startswith(" ") else " ".join(paragraph.split())
        lines += _fill(words, WIDTH - 6, " " * len(hang[0] if hang else "")) or [""]
    return "/* " + "\n".join(f" * {line}".rstrip() for line in lines)[3:] + " */"


def array(declaration: str, items: Sequence[str], indent: str = "") -> str:
    """Return an array with its initializers on one line, or a power of two of them a line."""
    line = f"{indent}{declaration} = {{{', '.join(items)}}};"
    if len(line) <= WIDTH:
        return line
    fit = (WIDTH - len(indent) - len(INDENT) + 1) // (max(map(len, items)) + 2)
    each = 1 << fit.bit_length() - 1
    rows = (items[k : k + each] for k in range(0, len(items), each))
    filled = [f"{indent}{INDENT}{', '.join(row)}," for row in rows]
    off, on = (f"{indent}/* clang-format {word} */" for word in ("off", "on"))
    return "\n".join([off, f"{indent}{declaration} = {{", *filled, f"{indent}}};", on])


def declare(kind: str, names: Sequence[str]) -> list[str]:
    """Return declarations of `names` of type `kind`, as many in each as fit a moderately indented line."""
    texts = textwrap.wrap(" ".join(f"{n.replace(' ', chr(0))}," for n in names), WIDTH - 24 - len(kind))
    return [f"{kind} {text[:-1].replace(chr(0), ' ')};" for text in texts]


def _fill(words: str, width: int, after: str = "") -> list[str]:
    return textwrap.wrap(words, width, subsequent_indent=after, break_long_words=False, break_on_hyphens=False)


def _break_line(line: str) -> list[str]:
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    if text.startswith(("/*", "* ")):
        return _comment(indent, text)
    if text.startswith("#define "):
        head, body = re.fullmatch(r"(#define \w+(?:\([^)]*\))?) (.*)", text).groups()  # type: ignore[union-attr]
        lines = [head, *_expression(INDENT, body, WIDTH - 2)]
        return [*(f"{part} \\" for part in lines[:-1]), lines[-1]]
    if text.startswith("#error "):
        return ["#error \\", INDENT + text.removeprefix("#error ")]
    return _expression(indent, text, WIDTH)


def _comment(indent: str, text: str) -> list[str]:
    start, words = text.split(" ", 1)
    if start == "*":
        indent = indent.removesuffix(" ")
    filled = _fill(words.replace(" */", "\N{NO-BREAK SPACE}*/"), WIDTH - len(indent) - 3)
    lines = [f"{indent} * {part}".replace("\N{NO-BREAK SPACE}", " ") for part in filled]
    return [f"{indent}/* {lines[0][len(indent) + 3 :]}" if start == "/*" else lines[0], *lines[1:]]


def _expression(indent: str, text: str, width: int) -> list[str]:
    """Break a declaration or call: arguments on the next line, or one a line; conditions before their operators."""
    deeper = indent + INDENT
    left, equals, value = text.partition(" = ")
    if len(indent + text) <= width:
        return [indent + text]
    if equals and "(" not in left and len(deeper + value) <= width:
        return [f"{indent}{left} =", deeper + value]
    if not (group := _last_group(text)):
        return [indent + text]
    start, end = group
    head, inside, tail = text[:start], text[start:end], text[end:]
    if len(conditions := list(_parts(inside, r" (?=\|\| |&& )"))) > 1:
        return [
            indent + head + conditions[0],
            *(deeper + x for x in conditions[1:-1]),
            deeper + conditions[-1] + tail,
        ]
    if len(deeper + inside + tail) <= width:
        return [indent + head, deeper + inside + tail]
    arguments = list(_parts(inside, r", "))
    ends = [*[","] * (len(arguments) - 1), tail]
    return [
        indent + head,
        *(x for a, end in zip(arguments, ends, strict=True) for x in _expression(deeper, a + end, width)),
    ]


def _last_group(text: str) -> tuple[int, int] | None:
    """Return start and end of the text in the last outermost parentheses; None without parentheses."""
    depth, start, group = 0, 0, None
    for at, sign in enumerate(_without_strings(text)):
        if sign in "([{":
            depth += 1
            if depth == 1:
                start = at + 1
        elif sign in ")]}":
            depth -= 1
            if depth == 0 and sign == ")":
                group = start, at
    return group


def _parts(text: str, separator: str) -> Iterator[str]:
    """Split `text` at `separator`, outside of parentheses and strings."""
    start = depth = 0
    looked_at = _without_strings(text)
    for at, sign in enumerate(looked_at):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and at >= start and (separated := re.compile(separator).match(looked_at, at)):
            yield text[start:at]
            start = separated.end()
    yield text[start:]


def _without_strings(text: str) -> str:
    """Return `text` with string literals replaced by letters, so that their content is not parsed."""
    return re.sub(r'"(?:[^"\\]|\\.)*"', lambda string: "s" * len(string[0]), text)


FOLDER = Path(__file__).parent / "templates"


class _TemplateCache(jinja2.FileSystemBytecodeCache):
    """Cache of compiled templates next to them, as Python caches modules: skipped where writing is not allowed."""

    def __init__(self) -> None:
        super().__init__(str(FOLDER / "__pycache__"))

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                Path(self.directory).mkdir(exist_ok=True)
                super().dump_bytecode(bucket)


@cache
def environment() -> jinja2.Environment:
    """Return the environment of C templates: no escaping, and an undefined name is an error."""
    jinja = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        bytecode_cache=_TemplateCache(),
    )
    jinja.filters["comment"] = lambda text: comment(text) + "\n"
    jinja.globals["array"] = array
    return jinja


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return the text of a template, laid out if it is C."""
    text = environment().get_template(template).render(values)
    return lay_out(text) if template.endswith((".c.j2", ".h.j2")) else text
