"""Reading certificates, which anybody may have written, and checking them with the checker that lies next to them."""

from __future__ import annotations

import json
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import Any

from bitsynth import __version__
from bitsynth.emit.c_names import can_name
from bitsynth.errors import BitsynthError, Refuted, SpecError, ToolError
from bitsynth.files import read_file
from bitsynth.network.certificate import checker
from bitsynth.network.certificate.rebuild import Library, library_of, require_files
from bitsynth.network.certificate.records import CertificateRecord, record_of
from bitsynth.network.certificate.write import ENDS, FORMAT
from bitsynth.printable import abbreviate, one_line

MAX_WEIGHTS = 1 << 32
"""Bytes of a file of weights that is read."""
MAX_FILES = 1 << 16
"""Files of a folder that are looked at."""
REMEDY = "compile the network again"
_MAX_REASON = 200
"""The most characters of the reason why a file is no certificate."""


def check_certificate(path: Path) -> CertificateRecord:
    """Return the certificate at `path` after all of it but the kernels was checked.

    Raises:
        Refuted: A claim does not hold, or a file next to it is another one.
        SpecError: It is no certificate of this version, or was damaged.
        ToolError: It cannot be read.
    """
    given = parse_certificate(path)
    try:
        checker.check(given, path.parent)
        certificate = record_of(given, CertificateRecord)
        _require_all(certificate, path)
    except AssertionError as why:
        raise Refuted(f"{path}: {one_line(str(why))}; {REMEDY}") from None
    except OSError as error:
        raise ToolError(f"cannot read a file next to {path}: {error.strerror or error}") from None
    except Exception as error:
        raise _unread(path, error) from None
    return certificate


def _require_all(certificate: CertificateRecord, path: Path) -> None:
    """Raise AssertionError unless it lists the library's own C and checker."""
    stem = path.name.removesuffix(ENDS)
    if left := [name for name in (f"{stem}.c", f"{stem}_check.py") if name not in certificate.files]:
        raise AssertionError(f"it says nothing of {left[0]}")


def render_library(certificate: CertificateRecord, path: Path) -> Library:
    """Return the library that a certificate describes, after its files were compared with it, byte for byte.

    The self-test is not compared: its numbers are evaluated from the graph.

    Args:
        certificate: The certificate, as `check_certificate` returned it.
        path: Where it is.

    Raises:
        Refuted: A file, or a step's C, is another than the certificate claims.
        SpecError: It describes no library.
        ToolError: A file cannot be read.
    """
    stem = path.name.removesuffix(ENDS)
    try:
        weights = {
            name: read_file(path.parent / name, MAX_WEIGHTS) for name in certificate.files if "_weights." in name
        }
        library = library_of(certificate, stem, weights)
        require_files(library, certificate.files)
    except AssertionError as why:
        by = (
            ""
            if certificate.version == __version__
            else f" (it is of bitsynth {certificate.version}, this is {__version__})"
        )
        raise Refuted(f"{path}: {one_line(str(why))}; {REMEDY}{by}") from None
    except OSError as error:
        raise ToolError(f"cannot read a file next to {path}: {error.strerror or error}") from None
    except SpecError as error:
        raise SpecError(f"{path}: {one_line(str(error))}") from None
    except BitsynthError:
        raise
    except Exception as error:
        raise _unread(path, error) from None
    return library


def further_files(folder: Path, listed: Collection[str]) -> list[str]:
    """Return the files in a folder, as seen from it, that are none of those `listed`, nor certificates.

    Raises:
        Refuted: One of them, at any depth, is a header that is not of another library: a compiler that looks into the
            folder could include it instead of the system's header of that name.
    """
    paths = sorted(path.relative_to(folder) for path in islice(folder.rglob("*"), MAX_FILES) if path.is_file())
    left = [path for path in paths if str(path) not in listed and not path.name.endswith(ENDS)]
    for path in left:
        if path.suffix == ".h" and not _is_of_library(folder / path):
            raise Refuted(f"{folder / path} is a header of no certificate here, which C may include; remove it")
    return [str(path) for path in left]


def _is_of_library(header: Path) -> bool:
    """Return whether a header is named as a header of a library that has a certificate in the same folder."""
    stems = [path.name.removesuffix(ENDS) for path in header.parent.glob(f"*{ENDS}")]
    known = [stem for stem in stems if can_name(stem)]
    return bool(known) and header.name.startswith(("bs_", *(stem + end for stem in known for end in (".h", "_"))))


def parse_certificate(path: Path) -> Any:
    """Return the certificate at `path` as JSON; SpecError for another format, ToolError if it cannot be read."""
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
    reason = f"{type(error).__name__}: {error}"
    return SpecError(
        f"{path} is no certificate of this version ({abbreviate(one_line(reason), _MAX_REASON)}); {REMEDY}"
    )
