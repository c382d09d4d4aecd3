"""Verifies that a certificate is of a model file: the file is compiled again, and must give the same certificate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitsynth.errors import Refuted, SpecError
from bitsynth.graph.read import ReadOptions
from bitsynth.network import processors
from bitsynth.network.certificate.read import parse_certificate
from bitsynth.network.certificate.records import CertificateRecord
from bitsynth.network.certificate.write import ENDS
from bitsynth.network.compiling import compile
from bitsynth.network.run import Network
from bitsynth.progress import Progress, silent

_FIRST = ("reference", "inputs", "outputs", "graph", "edges", "steps", "buffers", "arena", "kernels", "files")
"""The parts that are compared, the most telling ones first."""
_INDEPENDENT_KEYS = {"version", "digest"}


def require_of(record: CertificateRecord, path: Path, model: Path, progress: Progress = silent) -> Network:
    """Compile the file `model` as the certificate `record` at `path` says, and require the same certificate.

    Raises:
        Refuted: Something differs: the certificate is of another network, or claims less or more.
        SpecError: The file is none that can be read, or an input was fixed to many numbers.
    """
    reading = record.reading
    if unknown := [name for name, value in reading.fixed.items() if value is None]:
        raise SpecError(
            f"{path} is of a network whose input {', '.join(unknown)} was fixed to more numbers than it records; "
            "compile the network again and compare the folders"
        )
    options: ReadOptions = {
        "batch": reading.batch,
        "codes": reading.codes,
        "reference": record.reference,
        "fixed": reading.fixed,
        "shapes": reading.shapes,
    }
    net = compile(model, isa=record.isa, cpu=record.cpu, threads=record.threads, progress=progress, **options)
    stem = path.name.removesuffix(ENDS)
    files = net.files(stem, weights_file=_has_weights_file(record, stem))
    _require_same(path, parse_certificate(path), json.loads(files[path.name]), model)
    return net


def require_choice(path: Path, records: Sequence[CertificateRecord], nets: Sequence[Network], model: Path) -> None:
    """Raise Refuted unless the certificate at `path` is for these networks of `model` and the choice among them.

    `records` are the certificates that these networks, as `require_of` gives them, were compiled as.
    """
    stem = path.name.removesuffix(ENDS)
    has_weights_file = all(_has_weights_file(own, f"{stem}_{own.cpu}") for own in records)
    files = processors.files(stem, {net.program.cpu: net for net in nets}, weights_file=has_weights_file)
    _require_same(path, parse_certificate(path), json.loads(files[path.name]), model)


def _has_weights_file(record: CertificateRecord, stem: str) -> bool:
    return f"{stem}_weights.bin" in record.files


def _require_same(path: Path, given: dict[str, Any], compiled: dict[str, Any], model: Path) -> None:
    for name in dict.fromkeys((*_FIRST, *sorted(compiled.keys() | given.keys()))):
        if name not in _INDEPENDENT_KEYS and (place := _difference(compiled.get(name), given.get(name), name)):
            raise Refuted(f"{path}: {place} is not what {model} gives; compile it again{_by_other(compiled, given)}")


def _difference(one: Any, other: Any, place: str) -> str:
    """Return the first path at which two JSON values differ; "" if they are equal."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys((*one, *other)):
            if key not in one or key not in other:
                return f"{place}/{key}"
            if difference := _difference(one[key], other[key], f"{place}/{key}"):
                return difference
        return ""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next(filter(None, (_difference(a, b, f"{place}/{k}") for k, (a, b) in pairs)), "")
    return "" if one == other and type(one) is type(other) else place


def _by_other(compiled: dict[str, Any], given: dict[str, Any]) -> str:
    was, now = given.get("version"), compiled["version"]
    return "" if was == now else f" (it is of bitsynth {was}, this is {now})"
