"""Values of options: lists of bits, sizes and paddings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bitsynth.errors import SpecError
from bitsynth.spec.matmul import Encoding

if TYPE_CHECKING:
    from bitsynth.graph.read import InputCodes, ReadOptions

MAX_PIXELS = (1 << 15) - 1


def parse_bits(option: str, text: str) -> list[int]:
    """Return the numbers in `1-4` or `1,2`, each once; SpecError for anything but 1 to 8."""
    out: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([1-8])(?:-([1-8]))?", part, re.ASCII)
        if not match or int(match[1]) > int(match[2] or 8):
            raise SpecError(f"{option}: want bits from 1 to 8, such as 1-4 or 1,2, not {text!r}")
        out |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(out)


def parse_numbers(option: str, text: str, *counts: int) -> int | tuple[int, ...]:
    """Return the number in `2`, or the numbers in `2,1`; SpecError unless their count is one of `counts`."""
    parts = text.split(",")
    if len(parts) not in counts or not all(map(_is_number, parts)):
        raise SpecError(f"{option}: want {' or '.join(map(str, counts))} whole numbers with commas, not {text!r}")
    return int(text) if len(parts) == 1 else tuple(map(int, parts))


def parse_padding(option: str, text: str) -> int | tuple[int, ...] | str:
    """Return padding in `1`, `1,2` or `0,1,2,3`, or the word same; SpecError for anything else."""
    return text if text == "same" else parse_numbers(option, text, 1, 2, 4)


def _is_number(text: str) -> bool:
    """Return whether the text is a whole number of at most nine digits."""
    return re.fullmatch(r"\d{1,9}", text, re.ASCII) is not None


def parse_size(option: str, text: str) -> tuple[int, int]:
    """Return height and width of `28x28`, `28,28` or `28`."""
    parts = re.split("[x,]", text) if re.search("[x,]", text) else [text, text]
    if len(parts) != 2 or not all(_is_number(p) and 0 < int(p) <= MAX_PIXELS for p in parts):
        raise SpecError(f"{option}: want height and width, such as 28x28, not {text!r}")
    return int(parts[0]), int(parts[1])


def parse_shapes(texts: Sequence[str] | None) -> dict[str, int | tuple[int, ...]]:
    """Return shapes and sizes by name of texts such as `x=1x3x224x224` or `height=224`; SpecError for anything else."""
    shapes: dict[str, int | tuple[int, ...]] = {}
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        parts = sizes.split("x")
        if not name or not all(_is_number(part) and int(part) for part in parts) or name in shapes:
            raise SpecError(f"--shape: want a name, once, and its sizes, such as x=1x3x224x224, not {text!r}")
        shapes[name] = int(sizes) if len(parts) == 1 else tuple(map(int, parts))
    return shapes


_NUMBER = re.compile(r"-?\d{1,18}|-?\d{1,18}\.\d{0,18}(?:e-?\d{1,3})?", re.ASCII)


def parse_fixed(texts: Sequence[str] | None) -> dict[str, int | float]:
    """Return numbers by the name of an input of texts such as `sr=16000`; SpecError for anything else."""
    fixed: dict[str, int | float] = {}
    for text in texts or ():
        name, _, number = text.rpartition("=")
        if not name or not _NUMBER.fullmatch(number) or name in fixed:
            raise SpecError(f"--fix: want an input, once, and a number, such as sr=16000, not {text!r}")
        fixed[name] = float(number) if "." in number else int(number)
    return fixed


def read_options(
    batch: int | None,
    reference: str | None,
    codes: InputCodes | None,
    shapes: Sequence[str] | None,
    fixed: Sequence[str] | None,
) -> ReadOptions:
    """Return the options with which a command reads a file; SpecError for texts that are no shapes or numbers."""
    return {
        "batch": batch,
        "reference": reference,
        "codes": codes,
        "shapes": parse_shapes(shapes),
        "fixed": parse_fixed(fixed),
    }


def input_codes(bits: int | None, scale: float, encoding: Encoding) -> InputCodes | None:
    """Return what inputs without a quantizer hold; None by default, SpecError for a scale without bits."""
    from bitsynth.graph.read import InputCodes

    if bits is None and (scale != 1.0 or encoding is not Encoding.UNSIGNED):
        raise SpecError("--input-scale and --input-encoding say more of the codes of --input-bits; give that too")
    return None if bits is None else InputCodes(bits, scale, encoding.value)
