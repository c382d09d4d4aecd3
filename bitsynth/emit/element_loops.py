"""Loops in plain C that compute a lane expression for every element of a tensor: parts of a larger function.

The C has to be compiled with contraction off (`#pragma STDC FP_CONTRACT OFF`), as a network's C is.

Given:   a row of 64 elements, `code` trunc(smin(smax(row, 0), 255), 8), `row` dnearest(dmul(double_of(s), f))
Result:  for each row a loop that writes `row` of 64 elements to scratch memory, and a loop that computes their codes
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bitsynth.emit.plain import Body, InputValues, evaluate
from bitsynth.emit.plain_terms import CDomain, Term, bits_of_float
from bitsynth.emit.render import block
from bitsynth.errors import SpecError
from bitsynth.isa.bits import Bits, trunc

_DOUBLE = 64
_MAX_BLOCK_ROWS, _MIN_BLOCK_ROWS, _BLOCK_BYTES = 128, 16, 8192
"""Rows whose codes are interleaved at a time, if inputs lie in planes; a block has about `_BLOCK_BYTES` bytes."""


@dataclass(frozen=True)
class CInput:
    """An input of lane expressions as C has it.

    Args:
        text: C of an element; for a table C of the array.
        bits: Bits of an element, or of an entry.
        entries: The number of entries of a table; 0 for an element.
        kind: "double" or "float" if an element in C has that type, "double" if entries have it; else "".
    """

    text: str
    bits: int
    entries: int = 0
    kind: str = ""

    def value(self, domain: CDomain) -> Bits | InputValues:
        """Return the value of the input in lane expressions."""
        if self.entries:
            return InputValues(domain, self.bits, self.entries, self.text, 0, self.kind)
        if self.kind == "float":
            return Bits(domain, self.bits, bits_of_float(self.text))
        return Bits(domain, self.bits, Term(self.text, self.bits, kind=self.kind))


def double(text: str, entries: int = 0) -> CInput:
    """Return an input of doubles, a table if it has `entries`."""
    return CInput(text, _DOUBLE, entries, kind="double")


@dataclass(frozen=True)
class ElementLoops:
    """Loops over `rows` rows of `columns` elements, whose codes go to out0.

    Args:
        rows: The number of rows.
        columns: The number of elements of a row.
        inputs: The inputs of expressions by name. C of an element has its place in all rows, `at`, and its column `c`.
        code: A code, whose low 8 bits are stored; or a code for each column, if elements lie in planes.
        row: A part of `code` that a loop of its own computes for a whole row, in scratch memory; "" if there is none.
            Compilers vectorize the two loops where they do not vectorize one loop that also narrows lanes or looks up.
        flag: A bit of an element; "" if there is none. The C variable `flag` is 1 after the loops if the bit is 1 for
            any element. The loop of `row` computes it, if there is one.
        plane: The rows of a plane, if elements lie in planes: `at` is then the place of an element in planes of
            columns, one after another, and codes are interleaved. There is no `row` and no `flag` then. 0 if rows lie
            in order.
    """

    rows: int
    columns: int
    inputs: Mapping[str, CInput]
    code: str | tuple[str, ...]
    row: str = ""
    flag: str = ""
    plane: int = 0

    @property
    def _block(self) -> int:
        """The rows that are interleaved at a time."""
        return max(_MIN_BLOCK_ROWS, min(_MAX_BLOCK_ROWS, _BLOCK_BYTES // self.columns))

    def text(self) -> str:
        """Return the statements."""
        if self.plane and (self.row or self.flag):
            raise SpecError("loops over planes have neither parts of rows nor a flag")
        if not self.plane and not isinstance(self.code, str):
            raise SpecError("only loops over planes have a code for each column")
        domain, lines = CDomain(fuses=False), list[str]()
        given = {name: one.value(domain) for name, one in self.inputs.items()}
        first, arrays = Body({}), dict[Term, str]()
        if self.row:
            term = evaluate(domain, self.row, given).v
            first.store("row[c]", term)
            arrays[term] = "row[c]"
            lines.append(f"{term.ctype} *restrict const row = scratch;")
        place = f"block[c * {self._block} + i]" if self.plane else "out0[at]"
        bodies = []
        for code in (self.code,) if isinstance(self.code, str) else self.code:
            bodies.append(Body(arrays))
            bodies[-1].store(place, trunc(evaluate(domain, code, given), 8).v)
        body = bodies[0]
        if self.flag:
            flag = evaluate(domain, self.flag, given).v
            (first if self.row else body).store("flag", flag, "|=")
            lines.append(f"{flag.ctype} flag = 0;")
        if domain.kept:
            raise SpecError("no arrays are kept here for sums of many terms")
        if self.plane:
            return "\n".join([*self._interleave(bodies), ""])
        loops = [*(self._loop(first) if self.row else []), *self._loop(body)]
        return "\n".join([*lines, *block(f"for (size_t i = 0; i < {self.rows}; ++i)", loops), ""])

    def _loop(self, body: Body) -> list[str]:
        place = f"const size_t at = i * {self.columns} + c;"
        return block(f"for (size_t c = 0; c < {self.columns}; ++c)", [place, *body.lines])

    def _interleave(self, bodies: Sequence[Body]) -> list[str]:
        """Return loops over blocks of each plane: codes of the block in planes, then its rows interleaved.

        A single body serves all columns; else each column has its own.
        """
        columns, plane, size = f"for (size_t c = 0; c < {self.columns}; ++c)", self.plane, self._block
        rows = "for (size_t i = 0; i < count; ++i)"
        place = f"const size_t at = (n * {self.columns} + c) * {plane} + start + i;"
        copy = f"out0[(n * {plane} + start + i) * {self.columns} + c] = block[c * {size} + i];"
        codes = list[str]()
        for k, body in enumerate(bodies):
            own = columns if len(bodies) == 1 else f"for (size_t c = {k}; c < {k + 1}; ++c)"
            codes += block(own, block(rows, [place, *body.lines]))
        one = [
            f"const size_t count = {plane} - start < {size} ? {plane} - start : {size};",
            *codes,
            *block(rows, block(columns, [copy])),
        ]
        blocks = block(f"for (size_t start = 0; start < {plane}; start += {size})", one)
        return [
            f"uint8_t block[{size * self.columns}];",
            *block(f"for (size_t n = 0; n < {self.rows // plane}; ++n)", blocks),
        ]
