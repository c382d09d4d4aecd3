"""What instructions on general registers compute of data: forms of one lane, which run on terms.

A general register that holds data has bytes of buffers, or what was computed of them. An operation on such a register
gives data too, and leaves flags without values: so a branch that depends on data is refused, as an address is.
"""

from __future__ import annotations

from functools import cache

from bitsynth.isa.instr import Instr, Operand
from bitsynth.isa.types import VecType
from bitsynth.objects.affine import AffineNumber
from bitsynth.objects.arithmetic import shift_amount
from bitsynth.objects.declared import GeneralOperation
from bitsynth.objects.memory import NotShown
from bitsynth.objects.values import Content, Contents

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
    if what.complement:
        b = values.apply(_form("~a[0]", bits, bits), [b])
    if what.does.startswith(("shift", "rotate")):
        n = shift_amount(b.as_int, bits)
        if n >= bits:
            raise NotShown("it shifts data by more bits than there are")
        if n == 0:
            return a
        return values.apply(_form(_LANES[what.does], bits, bits), [a], n)
    if not what.carry:
        form = _form(_LANES[what.does], bits, bits)
        return values.apply(form, [a, b][-len(form.operands) :])
    if carry is None:
        raise NotShown("it depends on flags that have no value")
    return values.apply(_form(_CARRIES[what.does], bits, bits), [a, b], carry)


def sign_extended(values: Contents, x: Content, size: int) -> Content:
    """Return data that is extended with its sign to `size` bytes."""
    _require_data(x)
    return values.apply(_form(f"sext(a[0], {8 * size})", 8 * len(x), 8 * size), [x])


def _require_data(*contents: Content) -> None:
    """Raise NotShown if bytes belong to an unknown number: parts of unknown numbers are not understood."""
    if any(isinstance(byte, tuple) and isinstance(byte[0], AffineNumber) for x in contents for byte in x.data):
        raise NotShown("a part of a number that depends on sizes is computed with")
