"""Certificates with one thing changed, and the changes that no claim rests on."""

import base64
import copy
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

Path = tuple[Any, ...]

WORDS = "shown, and nothing rests on it"
UNUSED = "not used: there is no second tensor, no claim, or no integer there"
SAME = "other operations, which are the same on the whole range: the checker says so, rightly"
HARMLESS = {
    r"(about|cpu|format|network|isa|threads|version)( .*)?": WORDS,
    r"(graph|reading)( .*|/.*)?": "`bitsynth verify --model` reads the file again",
    r"arena/bytes \+1": "more memory than is needed",
    r"edges/[^/]+( -|/)type": WORDS,
    r"edges/[^/]+/shape( -last|/\d -1)": "fewer elements have room too",
    r"edges/(y|zoo.reshape)( -|/)(scale|zero).*": UNUSED,
    r"edges/y/(low|high) .*": "a wider range than results have",
    r"buffers/[^/]+( -|/)(role|layout|type)": WORDS,
    r"buffers/[^/]+/(bits -1|bytes \+1)": "elements have room too",
    r"buffers/[^/]+/holds/\d .1": "a wider range than is carried",
    r"buffers/x( -operand|/operand.*|/alias)": UNUSED,
    r"steps/\d+( -|/)(kind|nodes|kernels).*": WORDS,
    r"steps/\d+/sums( -|/)geometry.*": WORDS,
    r"steps/[12]/sums( -|/)scale.*": "of sums that are kept alone: what weights stand for is in the chain",
    r"steps/\d+/sums -(low|high)": "computed from the weights, whether it is said or not",
    r"steps/\d+/sums/(padded|places)": "0 is among the activations, padded or not; the name of places",
    r"steps/\d+/claims/0/(of_zero|factor).*": UNUSED,
    r"steps/\d+/claims/0/rising .*": "2 is as true as 1",
    r"steps/\d+/claims/0/values \[5\].*": "a level out of reach",
    r"steps/\d+/(constants/|chain/\d+/of -last).*": SAME,
    r"kernels.*": "`bitsynth verify` looks them up by their digests",
}


def mutants(certificate: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was changed, and a certificate in which it is."""
    for path, value in _places(certificate, ()):
        if path != ("digest",):
            for label, changed in _changes(value):
                mutant = copy.deepcopy(certificate)
                _set(mutant, path, changed)
                yield "/".join(map(_shown, path)) + label, mutant


def is_harmless(label: str) -> bool:
    """Whether no claim rests on what was changed."""
    return any(re.fullmatch(pattern, label) for pattern in HARMLESS)


def _places(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and "data" not in value:
        yield from ((path, value),) if path else ()
        for name, inner in value.items():
            yield from _places(inner, (*path, name))
    elif isinstance(value, list):
        yield path, value
        for k, inner in enumerate(value):
            yield from _places(inner, (*path, k))
    else:
        yield path, value


def _shown(part: Any) -> str:
    return str(part).replace("/", ".")


def _changes(value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case bool():
            yield "", not value
        case int():
            yield from ((" +1", value + 1), (" -1", value - 1))
        case str():
            yield "", value + "x"
        case {"data": _}:
            yield from _other_numbers(value)
        case dict():
            yield from ((f" -{name}", {k: v for k, v in value.items() if k != name}) for name in value)
        case list() if value:
            yield " -last", value[:-1]


def _other_numbers(given: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """An array whose first or last number is another."""
    raw = bytearray(base64.b64decode(given["data"]))
    kind = np.dtype(given.get("type", "u1"))
    numbers = np.frombuffer(bytes(raw), kind).copy()
    for place in {0, len(numbers) - 1} if len(numbers) else ():
        for more in (1, -1):
            changed = numbers.copy()
            if kind.kind == "f":
                changed[place] += more * (1 + abs(changed[place]))
            else:
                changed[place] ^= 1 if "bits" in given else 0
                changed[place] += 0 if "bits" in given else more
            yield f" [{place}]{more:+d}", {**given, "data": base64.b64encode(changed.tobytes()).decode()}


def _set(inner: Any, path: Path, value: Any) -> None:
    for part in path[:-1]:
        inner = inner[part]
    inner[path[-1]] = value
