"""Errors that a user can meet, each with its exit code.

A message says where, what was wanted, what came and what to do next. The command
line prints it and exits with `exit_code`; the Python API raises it.
"""

from __future__ import annotations

INSTALL_Z3 = "pip install --only-binary :all: 'z3-solver>=4.15.4,<6'"
"""The command to run if Z3 is missing. Wheels alone: if the newest has none, pip would build it from source."""


class BitsynthError(Exception):
    """Base of all errors; `exit_code` is what the command line returns."""

    exit_code = 1


class BitsynthWarning(UserWarning):
    """A fault that does not stop the work."""


class SpecError(BitsynthError):
    """Bad user input, a bad spec file or a bad cache file."""

    exit_code = 2


class NoKernel(BitsynthError):
    """A sketch proved empty: no program in it meets the specification."""

    exit_code = 1


class Refuted(BitsynthError):
    """A wrong program; the message carries inputs, the result that came and the one wanted."""

    exit_code = 1


class Undecided(BitsynthError):
    """A spent solver budget, or the solver's answer `unknown`: never a pass."""

    exit_code = 3


class ToolError(BitsynthError):
    """A compiler, an emulator, a device, the file system or memory failed."""

    exit_code = 4
