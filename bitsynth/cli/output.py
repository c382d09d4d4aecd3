"""The output of commands: results on stdout, messages and progress on stderr, files in folders that can be written to.

Tables are folded to the width of a terminal, and not at all elsewhere. Only terminals get colour. If the reader of
stdout goes away, the command ends without a message.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from pathlib import Path
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from bitsynth.cli import interrupts
from bitsynth.errors import ToolError
from bitsynth.files import ADVICE
from bitsynth.printable import count as count  # noqa: PLC0414 (commands call output.count)
from bitsynth.printable import printable
from bitsynth.progress import Progress, silent

BROKEN_PIPE = 141
_UNBOUNDED = 100_000
_BAR = 24
_GAPS = (2, 1)
"""Blanks between the columns of a table."""
_NAME = 24
"""Columns of a name that is cut, at least, if another form of the table leaves as many."""
_SHORTEST_NAME = 4
"""Columns of a name in the narrowest table, as many as its heading has."""
_LABEL = re.compile(r" *(?:\S+(?: \S+){0,2} {2,})?")
"""The label of a line: blanks, then up to three words with two blanks or more behind them."""


class _Console(Console):
    """A console that escapes control characters in text of boards, compilers and file names."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text as it is shown, so that cells of tables have room for it."""
        return super().render_str(printable(text), **options)


def console(stream: TextIO) -> Console:
    """Return a console that changes no text. Without a terminal its lines have any length.

    A terminal of no width, as COLUMNS=0 declares one, has 80 columns.
    """
    target = _Console(
        file=stream, width=None if stream.isatty() else _UNBOUNDED, markup=False, highlight=False, emoji=False
    )
    if target.width < 1:
        target.width = 80
    return target


def on_terminal() -> bool:
    """Return whether stdout is a terminal."""
    return sys.stdout.isatty()


def width() -> int:
    """Return the columns that a line may take."""
    return console(sys.stdout).width


def write(*parts: RenderableType) -> None:
    """Print `parts`, one below the other: strings are wrapped at words, `Text` is left as long as it is."""
    _print(sys.stdout, *parts)


def _print(stream: TextIO, *parts: RenderableType) -> None:
    """Print by the stream itself: a console would write past what keeps a live line below."""
    target = console(stream)
    with target.capture() as captured:
        for part in parts:
            target.print(_fold_lines(part, target) if isinstance(part, str) else part, soft_wrap=isinstance(part, Text))
    lines = captured.get().split("\n")
    stream.write("\n".join(line.rstrip(" ") for line in lines))
    stream.flush()


def _fold_lines(text: str, target: Console) -> str:
    """Fold lines at words, and indent the folded parts to the column behind the line's label."""
    out: list[str] = []
    for line in text.split("\n"):
        indent = min(_LABEL.match(line).end(), target.width // 2)  # type: ignore[union-attr]
        if cell_len(line) <= target.width:
            out.append(line)
            continue
        first, *others = Text(line[indent:]).wrap(target, target.width - indent)
        out += [line[:indent] + first.plain, *(" " * indent + other.plain for other in others)]
    return "\n".join(out)


def write_json(value: Any) -> None:
    """Print `value` as JSON, and nothing else."""
    sys.stdout.write(json.dumps(value, indent=2) + "\n")
    sys.stdout.flush()


def error(message: str) -> None:
    """Print one message on stderr."""
    note(message, "error: ", "bold red")


def warning(message: str) -> None:
    """Print a warning on stderr."""
    note(message, "warning: ", "yellow")


def note(message: str, label: str = "", style: str = "") -> None:
    """Print a line on stderr, above a live one. `style` is for the label, or without a label for the line."""
    try:
        _print(sys.stderr, Text.assemble((label, style), message) if label else Text(message, style))
    except OSError:
        close_quietly()


def close_quietly() -> None:
    """Drop buffered output whose reader is gone or whose disk is full."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def table(*columns: str, right: Sequence[str] = (), whole: Sequence[str] = (), gap: int = 2) -> Table:
    """Return a plain table: the columns in `right` are numbers, the columns in `whole` are never folded."""
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=column in right or column in whole,
            overflow="fold",
        )
    return table


def fit_table(*makes: Callable[[int], Table]) -> Table:
    """Return the first table that fits the terminal, with a gap of two blanks between columns or one; else the last."""
    for make in makes:
        for gap in _GAPS:
            if _measure_width(table := make(gap)) <= width():
                return table
    return table


def fit_named_table(*makes: Callable[[int, int], Table]) -> Table:
    """Return the first table that fits the terminal with whole names in its first column.

    Else the first that fits with names cut to 24 columns or more, and else the last, its names cut to what is left.

    Args:
        makes: Functions of the gap between columns and of the most columns of a name, which `cut_name` cuts it to.
    """
    columns = width()
    for make in makes:
        for gap in _GAPS:
            if _measure_width(table := make(gap, _UNBOUNDED)) <= columns:
                return table
    for make in makes:
        for gap in _GAPS:
            table = make(gap, _SHORTEST_NAME)
            names = max(cell_len(str(cell)) for cell in table.columns[0].cells)
            room = columns - (_measure_width(table) - names)
            if room >= _NAME:
                return make(gap, room)
    return make(gap, max(room, _SHORTEST_NAME))


def _measure_width(table: Table) -> int:
    """Return the columns that a table takes if nothing is folded."""
    target = console(sys.stdout)
    return target.measure(table, options=target.options.update(max_width=_UNBOUNDED)).maximum


def cut_name(name: str, room: int) -> str:
    """Return a name in at most `room` columns, without its middle: `/large/codes/Quant` becomes `/large/../Quant`."""
    if cell_len(name) <= room:
        return name
    name = name.removesuffix("_output_0")
    first, *parts = name.split("/")
    shorter = [f"{'/'.join([first, *parts[:k]])}/../{parts[-1]}" for k in range(len(parts) - 2, 0, -1)]
    tail = max(room - 2, 0) // 2
    plain = f"{keep_start(name, max(room - 2 - tail, 1))}..{keep_end(name, tail)}"
    return next((text for text in (name, *shorter) if cell_len(text) <= room), plain)


def keep_start(text: str, room: int) -> str:
    """Return the first letters of a text, as many as `room` columns hold; a wide letter (CJK) takes two."""
    return text[: bisect_right(list(accumulate(map(cell_len, text))), room)]


def keep_end(text: str, room: int) -> str:
    """Return the last letters of a text, as many as `room` columns hold; a wide letter (CJK) takes two."""
    return keep_start(text[::-1], room)[::-1]


@contextmanager
def progress(title: str, *, bar: bool = False) -> Iterator[Progress]:
    """Show a live line with `title`, the latest message and the seconds; nothing if stderr is no terminal.

    A `bar` shows how much is done. Each message also raises an interrupt that was lost before.
    """
    target = console(sys.stderr)
    seen = sys.stderr.isatty() and not target.is_dumb_terminal
    with _live(target, title, bar) if seen else nullcontext(silent) as show:

        def say(message: str, done: float = 0, total: float | None = None) -> None:
            interrupts.raise_pending()
            show(message, done, total)

        yield say
    interrupts.raise_pending()


@contextmanager
def _live(target: Console, title: str, bar: bool) -> Iterator[Progress]:
    from rich import progress as bars

    spinner = "dots" if target.encoding.startswith("utf") else "line"
    columns = (
        bars.SpinnerColumn(spinner),
        bars.TextColumn(title, style="bold", markup=False),
        *([bars.BarColumn(_BAR)] if bar else []),
        bars.TextColumn("{task.fields[message]}", markup=False),
        bars.TextColumn("{task.elapsed:.1f} s", style="dim", markup=False),
    )
    with bars.Progress(*columns, console=target, transient=True, refresh_per_second=10) as live:
        task = live.add_task(title, message="")
        room = max(10, target.width - len(title) - 16 - bar * (_BAR + 1))

        def show(message: str, done: float = 0, total: float | None = None) -> None:
            live.update(task, message=message[:room], completed=done, total=total)

        yield show


def require_writable(folder: Path, advice: str = ADVICE) -> None:
    """Raise ToolError before long work if `folder` cannot be written to."""
    try:
        for part in (*reversed(folder.parents), folder):
            if os.path.lexists(part) and not part.is_dir():
                what = "a link to nothing" if part.is_symlink() and not part.exists() else "not a folder"
                raise ToolError(f"cannot write to {folder}: {part} is {what}; {advice}")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ToolError(f"cannot write to {folder}: {error.strerror or error}; {advice}") from None
