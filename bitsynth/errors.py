"""Errors that a user can meet, each with its exit code.

A message says where the failure happened, what was wanted, what was given and what to do next. The command line prints
it and exits with `exit_code`; the Python API raises it.
"""

from __future__ import annotations

INSTALL_Z3 = "pip install --only-binary :all: 'z3-solver>=4.15.4,<6'"
"""The command to run if Z3 is missing. Wheels alone: if the newest has none, pip would build it from source."""


class BitsynthError(Exception):
    """Base class of all errors; the command line returns `exit_code`."""

    exit_code = 1


class BitsynthWarning(UserWarning):
    """A fault that does not stop the command."""


class SpecError(BitsynthError):
    """Bad user input, a bad spec file or a bad cache file."""

    exit_code = 2


class NoKernel(BitsynthError):
    """A search proved that no program in a sketch meets the specification."""

    exit_code = 1


class Refuted(BitsynthError):
    """A program is wrong; the message has inputs, the result and the expected one."""

    exit_code = 1


class Undecided(BitsynthError):
    """The solver's budget is spent, or it answered `unknown`; this never counts as proved."""

    exit_code = 3


class ToolError(BitsynthError):
    """A compiler, an emulator, a device, the file system or memory failed."""

    exit_code = 4
