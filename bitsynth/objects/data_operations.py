"""What instructions on general registers compute of data: forms of one lane, which run on terms.

A general register that holds data has bytes of buffers, or what was computed of them. An operation on such a register
gives data too, and leaves flags without values: so a branch that depends on data is refused, as an address is.
"""

from __future__ import annotations

from functools import cache

from bitsynth.isa.instr import Instr, Operand
from bitsynth.isa.types import VecType
from bitsynth.objects.affine import AffineNumber
from bitsynth.objects.arithmetic import GATES, shift_amount
from bitsynth.objects.declared import GeneralOperation
from bitsynth.objects.memory import NotShown
from bitsynth.objects.values import Byte, Content, Contents

_LANES = {
    "add": "a[0] + b[0]",
    "subtract": "a[0] - b[0]",
    "multiply": "a[0] * b[0]",
    "and": "a[0] & b[0]",
    "or": "a[0] | b[0]",
    "xor": "a[0] ^ b[0]",
    "count ones": "popcount(b[0])",
    "rotate right": "a[0] >> n | a[0] << T_bits - n",
    "shift left": "a[0] << n",
    "shift right": "a[0] >> n",
    "shift right signed": "asr(a[0], n)",
}
"""The result of an operation by `GeneralOperation.does`; `n` is how far it shifts."""
_CARRIES = {"add": "a[0] + b[0] + n", "subtract": "a[0] - b[0] - n"}
"""The result with a carry, which is `n`."""


@cache
def _form(lane: str, bits: int, out: int) -> Instr:
    """Return the form with the lane expression on registers `a` and `b` of `bits` bits; `n` is its immediate."""
    names = [name for name in "ab" if f"{name}[" in lane]
    return Instr(
        isa="", name=lane, doc="", operands=tuple(Operand(x, VecType("u", bits, 1)) for x in names),
        imm=("n", 0, bits - 1) if "n" in lane else None, try_imm=(), out=VecType("u", out, 1), lane=lane, text="",
        mnemonics=(), cost={}, tied=(), high=None, store=False,
        names={"T_bits": bits}, setting="",
    )  # fmt: skip


def compute_of_data(
    values: Contents, what: GeneralOperation, a: Content, b: Content, bits: int, carry: int | None
) -> Content:
    """Return the result of an operation on data of `bits` bits; NotShown if it is not understood."""
    _require_data(a, b)
    if what.does not in _LANES:
        raise NotShown(f"it cannot {what.does} data")
    if what.complement:
        b = values.apply(_form("~a[0]", bits, bits), [b])
    if what.does.startswith(("shift", "rotate")):
        n = shift_amount(b.as_int, bits)
        if n >= bits:
            raise NotShown("it shifts data by more bits than there are")
        if n == 0:
            return a
        return values.apply(_form(_LANES[what.does], bits, bits), [a], n)
    if (moved := _move_bytes(what, a, b)) is not None:
        return values.content(moved)
    if not what.carry:
        form = _form(_LANES[what.does], bits, bits)
        result = values.apply(form, [a, b][-len(form.operands) :])
        return _with_known_bytes(values, what.does, a, b, result)
    if carry is None:
        raise NotShown("it depends on flags that have no value")
    return values.apply(_form(_CARRIES[what.does], bits, bits), [a, b], carry)


def _move_bytes(what: GeneralOperation, a: Content, b: Content) -> list[Byte] | None:
    """Return the bytes of a sum or product that moves bytes alone, as no two of them come together; else None.

    Compilers add numbers that have no byte in common, and multiply by 0x01010101 to spread a byte.
    """
    if what.carry or what.complement or what.does not in {"add", "multiply"}:
        return None
    out: list[Byte] = [0] * len(a)
    if what.does == "add":
        moves = [(k, byte) for x in (a, b) for k, byte in enumerate(x.data)]
    else:
        known, of = (a, b) if a.is_known else (b, a)
        if not set(known.data) <= {0, 1}:
            return None
        places = [k for k, byte in enumerate(known.data) if byte == 1]
        moves = [(k + place, byte) for k, byte in enumerate(of.data) for place in places]
    for k, byte in moves:
        if byte == 0 or k >= len(out):
            continue
        if out[k] != 0:
            return None
        out[k] = byte
    return out


def _with_known_bytes(values: Contents, does: str, a: Content, b: Content, result: Content) -> Content:
    """Return the result of a gate, with numbers for the bytes that are gates of numbers.

    Code sets the lowest byte of a register to a flag, whatever the other bytes are, and computes with the register.
    """
    if does not in GATES:
        return result
    gate = GATES[does]
    pairs = zip(a.data, b.data, result.data, strict=True)
    return values.content([gate(x, y) if isinstance(x, int) and isinstance(y, int) else z for x, y, z in pairs])


def sign_extended(values: Contents, x: Content, size: int) -> Content:
    """Return data that is extended with its sign to `size` bytes."""
    _require_data(x)
    return values.apply(_form(f"sext(a[0], {8 * size})", 8 * len(x), 8 * size), [x])


def _require_data(*contents: Content) -> None:
    """Raise NotShown if bytes belong to an unknown number: parts of unknown numbers are not understood."""
    if any(isinstance(byte, tuple) and isinstance(byte[0], AffineNumber) for x in contents for byte in x.data):
        raise NotShown("a part of a number that depends on sizes is computed with")
