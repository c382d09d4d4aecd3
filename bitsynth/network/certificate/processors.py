"""The certificate of a library for several processors: the certificates of each, and the digests of the other files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from bitsynth import __version__
from bitsynth.errors import Refuted, SpecError, ToolError
from bitsynth.files import MARK, as_bytes, read_file
from bitsynth.isa.load import load
from bitsynth.network.certificate.read import REMEDY, parse_certificate
from bitsynth.network.certificate.write import ENDS, FORMAT, as_json, digest
from bitsynth.network.library import NetworkText
from bitsynth.network.library.text import processors_files
from bitsynth.printable import one_line, show


class _Processors(msgspec.Struct, frozen=True):
    """The certificates of processors, in order, and the digests of files; paths are relative to their folder."""

    processors: dict[str, str]
    files: dict[str, str]
    digest: str


def processors_certificate(
    name: str, certificates: Mapping[str, str], files: Mapping[str, str | bytes]
) -> dict[str, str]:
    """Return the certificate of the library `name` of processors with `certificates` among `files`, by file name.

    It has the digests of these certificates and of what lies around their folders, the C that chooses.
    """
    held = {each: text for each, text in files.items() if "/" not in each or each in certificates.values()}
    fields = {
        "about": MARK,
        "format": FORMAT,
        "version": __version__,
        "processors": dict(certificates),
        "files": {each: hashlib.sha256(as_bytes(text)).hexdigest() for each, text in sorted(held.items())},
        "digest": "",
    }
    return {f"{name}{ENDS}": as_json({**fields, "digest": digest(fields)})}


def certificates_of(path: Path) -> list[Path]:
    """Return the network certificates behind `path`: its processors' certificates, or `path` itself.

    Raises:
        Refuted: A file has another digest than the certificate of the library for several processors says.
        SpecError: It is no certificate of this version, or was damaged.
        ToolError: It cannot be read.
    """
    given = parse_certificate(path)
    if "processors" not in given:
        return [path]
    try:
        record = msgspec.convert(given, _Processors)
    except msgspec.ValidationError as error:
        raise SpecError(f"{path} is no certificate of this version ({one_line(str(error))}); {REMEDY}") from None
    if record.digest != digest(given):
        raise Refuted(f"{path}: the certificate was changed; {REMEDY}")
    if not record.processors or (left := set(record.processors.values()) - record.files.keys()):
        what = show(min(left)) if record.processors else "any processor"
        raise Refuted(f"{path}: it says nothing of {what}; {REMEDY}")
    for name, listed in record.files.items():
        _require(path, name, listed)
    return [path.parent / name for name in record.processors.values()]


def files_of(path: Path) -> list[str]:
    """Return the files that the certificate at `path` lists if it is one of several processors, as seen from it."""
    given = parse_certificate(path)
    return list(given["files"]) if "processors" in given else []


def require_around(path: Path, texts: Mapping[str, NetworkText]) -> None:
    """Raise Refuted unless the C around the libraries `texts` of several processors is rendered from these.

    `path` is the path of their certificate, which `certificates_of` accepted.
    """
    stem, listed = path.name.removesuffix(ENDS), {name for name in files_of(path) if "/" not in name}
    (arch,) = {load(text.program.isa).table.arch for text in texts.values()}
    around = processors_files(stem, arch, texts)
    for name in sorted(listed | around.keys()):
        if name not in around or as_bytes(around[name]) != read_file(path.parent / name):
            raise Refuted(f"{path}: {show(name)} is not the C around its networks; {REMEDY}")


def _require(path: Path, name: str, listed: str) -> None:
    """Raise Refuted unless the file `name` in the folder of the certificate at `path` has the `listed` digest."""
    try:
        if not (path.parent / name).resolve().is_relative_to(path.parent.resolve()):
            raise FileNotFoundError
        data = read_file(path.parent / name)
    except (FileNotFoundError, ValueError):
        raise Refuted(f"{path}: there is no file {show(name)}; {REMEDY}") from None
    except OSError as error:
        raise ToolError(f"cannot read {path.parent / name}: {error.strerror or error}") from None
    if hashlib.sha256(data).hexdigest() != listed:
        raise Refuted(f"{path}: {show(name)} was changed; {REMEDY}")
