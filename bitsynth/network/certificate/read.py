"""Certificates as they are read: text that anybody may have written, checked by the checker that lies beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from bitsynth.errors import Refuted, SpecError, ToolError
from bitsynth.files import read_file
from bitsynth.graph.read import InputCodes
from bitsynth.network.certificate import checker
from bitsynth.network.certificate.kernels import KernelRecord
from bitsynth.network.certificate.write import ENDS, FORMAT

REMEDY = "compile the network again"


class StepClaims(msgspec.Struct, frozen=True):
    """What a step of a network claims, and if nothing, why."""

    kind: str
    nodes: list[tuple[str, str]]
    inputs: list[str]
    claims: list[dict[str, Any]]
    unclaimed: str
    kernels: list[str] = []


class Reading(msgspec.Struct, frozen=True):
    """How a file was read: the options that are no part of the graph's name."""

    batch: int | None
    codes: InputCodes | None
    fixed: list[str]


class NetworkCertificate(msgspec.Struct, frozen=True):
    """The part of a certificate that is shown."""

    network: str
    reference: str
    isa: str
    cpu: str
    threads: int
    graph: str
    reading: Reading
    arena: dict[str, int]
    buffers: dict[str, Any]
    files: dict[str, str]
    steps: list[StepClaims]
    kernels: list[KernelRecord]

    @property
    def proved(self) -> list[StepClaims]:
        """The steps that claim something."""
        return [step for step in self.steps if step.claims]


def checked(path: Path) -> NetworkCertificate:
    """The certificate at `path`, all of it checked but for kernels.

    Raises:
        Refuted: A claim does not hold, or a file beside it is another.
        SpecError: It is no certificate of this version, or was damaged.
        ToolError: It cannot be read.
    """
    given = parsed(path)
    try:
        found = msgspec.convert(given, NetworkCertificate)
        checker.check(given, path.parent)
        _require_all(found, path)
    except AssertionError as why:
        raise Refuted(f"{path}: {why}; {REMEDY}") from None
    except OSError as error:
        raise ToolError(f"cannot read a file beside {path}: {error.strerror or error}") from None
    except Exception as error:
        raise _unread(path, error) from None
    return found


def _require_all(found: NetworkCertificate, path: Path) -> None:
    """AssertionError unless it lists the library's own C and checker, and the kernels of every claim."""
    stem = path.name.removesuffix(ENDS)
    if left := [name for name in (f"{stem}.c", f"{stem}_check.py") if name not in found.files]:
        raise AssertionError(f"it says nothing of {left[0]}")
    known = {kernel.name for kernel in found.kernels}
    if missing := [name for step in found.steps for name in step.kernels if name not in known]:
        raise AssertionError(f"it does not list the kernel {missing[0]}")


def parsed(path: Path) -> Any:
    """The certificate at `path` as JSON; SpecError if it is of another format, ToolError if it cannot be read."""
    try:
        given = json.loads(read_file(path))
    except FileNotFoundError:
        raise SpecError(f"cannot read {path}: there is no such file; name a kernel, or a folder that has one") from None
    except OSError as error:
        raise ToolError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise _unread(path, error) from None
    if not isinstance(given, dict) or given.get("format") != FORMAT:
        raise SpecError(f"{path} is no certificate of format {FORMAT}; {REMEDY}")
    return given


def _unread(path: Path, error: Exception) -> SpecError:
    said = f"{type(error).__name__}: {error}"
    return SpecError(f"{path} is no certificate of this version ({said[:200]}); {REMEDY}")
