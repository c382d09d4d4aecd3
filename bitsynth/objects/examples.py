"""Searches for bytes of buffers on which machine code and the proved program compute different results."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from bitsynth.objects.values import Byte, Content, Contents

_LANE = 4
"""Bytes of an element of the result."""
_RANDOM, _SHORTENED = 8, 60
"""How many random contents are tried, and how often one that shows a difference is shortened."""
_SHOWN = 6
"""The most bytes of an example that are shown."""
_ENDS = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)

UnknownBytes = dict[Byte, int]
"""Values of unknown bytes; others are 0."""


@dataclass(frozen=True)
class UnequalResult:
    """Bytes on which element `lane` of two results differs: what the code stores, and what the program computes."""

    memory: UnknownBytes
    lane: int
    stored: int
    computed: int

    def __str__(self) -> str:
        arrays: dict[Hashable, list[str]] = defaultdict(list)
        given = [(byte, x) for byte, x in self.memory.items() if x and isinstance(byte, tuple)]
        for (array, place), x in given[:_SHOWN]:
            arrays[array].append(f"byte {place} = {x:#04x}")
        shown = "; ".join(f"{_name(array)} {', '.join(places)}" for array, places in arrays.items())
        more = f" and {len(given) - _SHOWN} more" if len(given) > _SHOWN else ""
        inputs = f"with {shown}{more}, other bytes 0" if given else "with all bytes 0"
        return f"{inputs}: element {self.lane} is {self.stored}, the program's {self.computed}"


def _name(array: Hashable) -> str:
    return " ".join(map(str, array)) if isinstance(array, tuple) else str(array)


def different(values: Contents, have: Content, want: Content) -> UnequalResult | None:
    """Return an example on which two contents differ; None if none was found.

    Bytes are the ends of ranges, and random. Of an example that is found as many bytes as possible are set to 0.
    """
    operations = values.operations_of(have, want)
    if operations is None:
        return None
    unknown: dict[Byte, None] = {}

    def difference(memory: UnknownBytes) -> UnequalResult | None:
        def byte(of: Byte) -> int:
            unknown[of] = None
            return memory.get(of, 0)

        sides = values.evaluate([have, want], operations, byte)
        if not all(isinstance(x, int) for side in sides for x in side):
            return None
        left, right = (_elements([x for x in side if isinstance(x, int)]) for side in sides)
        unequal = (k for k, (x, y) in enumerate(zip(left, right, strict=True)) if x != y)
        return next((UnequalResult(memory, k, left[k], right[k]) for k in unequal), None)

    example = difference({})
    rng = random.Random(1)
    choices: list[Callable[[], int]] = [lambda end=end: end for end in _ENDS[1:]]  # type: ignore[misc]
    choices += [lambda: rng.choice(_ENDS), lambda: rng.randrange(256)] * _RANDOM
    for choice in choices:
        if example:
            break
        example = difference({byte: choice() for byte in unknown})
    return _shorten(example, difference) if example else None


def _elements(data: Sequence[int]) -> list[int]:
    return [int.from_bytes(data[k : k + _LANE], "little", signed=True) for k in range(0, len(data), _LANE)]


def _shorten(example: UnequalResult, difference: Callable[[UnknownBytes], UnequalResult | None]) -> UnequalResult:
    """Return an example with fewer bytes: halves, quarters and so on are left out while a difference remains."""
    tries, size = 0, len(example.memory)
    while size > 1 and tries < _SHORTENED:
        size = (size + 1) // 2
        first = 0
        while first < len(example.memory) and tries < _SHORTENED:
            tries += 1
            items = list(example.memory.items())
            shorter = difference(dict(items[:first] + items[first + size :]))
            if shorter:
                example = shorter
            else:
                first += size
    return example
