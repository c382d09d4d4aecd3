"""The command line: it runs a command, and prints each failure as one message with an exit code."""

from __future__ import annotations

import os
import re
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO, cast

from bitsynth.cli import interrupts
from bitsynth.errors import BitsynthError, BitsynthWarning, SpecError, ToolError

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run `bitsynth` with `argv`, by default the arguments of the process; return the exit code."""
    # These stay open as long as the process.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        _never_fail_to_encode(stream)
    try:
        with interrupts.handle_signals(), _show_warnings():
            code = _run(argv)
            sys.stdout.flush()
            return code
    except (BitsynthError, OSError, MemoryError, KeyboardInterrupt) as error:
        return _report_failure(error)


@contextmanager
def _show_warnings() -> Iterator[None]:
    """Print warnings of the library as warnings of the command."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", BitsynthWarning)
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, BitsynthWarning):
                return others(message, category, *where)
            from bitsynth.cli import output

            return output.warning(str(message))

        warnings.showwarning = cast(Any, show)
        yield


def command() -> NoReturn:
    """Run `bitsynth` as a process; once its work is done, signals no longer disturb it."""
    code = main()
    for number in interrupts.SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def _run(argv: Sequence[str] | None) -> int:
    """Parse and dispatch; return the exit code, or raise what typer would print and exit with."""
    import typer

    from bitsynth.cli.app import Passing, group

    usage_error: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "UsageError")
    try:
        code = group()(args=argv, prog_name="bitsynth", standalone_mode=False)
    except Passing as passing:
        raise passing.error from None
    except usage_error as error:
        raise SpecError(_usage_message(error)) from None
    except SystemExit as gone:  # typer and rich end the process themselves if the reader of a help text has gone.
        if isinstance(gone.__context__, BrokenPipeError):
            raise gone.__context__ from None
        raise
    return code if isinstance(code, int) else 0


def _report_failure(error: BaseException) -> int:
    """Print what went wrong as one message; return the exit code."""
    from bitsynth.cli import output

    match error:
        case KeyboardInterrupt():
            output.note(str(error) or "interrupted", style="red")
            return getattr(error, "exit_code", INTERRUPTED)
        case BrokenPipeError():
            output.close_quietly()
            return output.BROKEN_PIPE
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            output.error(f"{where}{error.strerror or error}")
            output.close_quietly()
            return ToolError.exit_code
        case MemoryError():
            why = str(error) or "an allocation failed"
            output.error(f"not enough memory: {why}; give inputs a smaller shape, or this process more memory")
            return ToolError.exit_code
        case _:
            output.error(str(error))
            return getattr(error, "exit_code", 1)


_OF_PARSERS = (
    (re.compile(r"Value error, "), ""),
    (re.compile(r"Input should be a valid integer\b.*"), "want a whole number"),
    (re.compile(r"Input should be a valid number\b.*"), "want a number"),
    (re.compile(r"Input should be "), "must be "),
)
"""Phrases of pydantic, which parses values for typer, and what replaces them in messages."""


def _usage_message(error: Exception) -> str:
    """Return what is wrong with the arguments, and where to read what is right."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "bitsynth"
    message: str = error.format_message() if hasattr(error, "format_message") else str(error)
    for theirs, ours in _OF_PARSERS:
        message = theirs.sub(ours, message)
    return f"{message[:1].lower()}{message[1:].rstrip('.')}; see `{command} --help`"


def _never_fail_to_encode(stream: TextIO) -> None:
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
