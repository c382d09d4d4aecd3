"""Operations on bits of every domain, and numbers to try them on."""

from hypothesis import strategies as st

from bitsynth.isa import bits
from bitsynth.isa.bits import Bits

WIDTHS = (8, 16, 32, 64)
BINARY = {n: getattr(Bits, f"__{n}__") for n in ("add", "sub", "mul", "and", "or", "xor")} | {"udiv": bits.udiv}
UNARY = {
    "invert": Bits.__invert__,
    "popcount": bits.popcount,
    "doubled": lambda x: bits.trunc(bits.zext(x, 64) * 2 if x.w < 64 else x, x.w),
    "sext": lambda x: bits.sext(x, min(64, 2 * x.w)),
    "zext": lambda x: bits.zext(x, min(64, 2 * x.w)),
    "sclamp": lambda x: bits.sclamp(x, x.w // 2),
    "uclamp": lambda x: bits.uclamp(x, x.w // 2),
}
CONDITIONS = {"ult": bits.ult, "slt": bits.slt, "eq": bits.eq}


def words(w: int) -> st.SearchStrategy[int]:
    """Numbers of `w` bits, the ends of both ranges often."""
    edges = [0, 1, (1 << (w - 1)) - 1, 1 << (w - 1), (1 << w) - 1]
    return st.one_of(st.sampled_from(edges), st.integers(0, (1 << w) - 1))
