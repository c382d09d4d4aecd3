"""The C of specs of packed words: a loop over the words of rows, of the text that is proved."""

from __future__ import annotations

from bitsynth.emit.lines import block
from bitsynth.emit.plain import Body
from bitsynth.emit.plain_terms import CDomain, Term
from bitsynth.isa.bits import Bits
from bitsynth.spec.elementwise import WORD_BITS
from bitsynth.spec.words import WordsSpec

PARAMETERS = "size_t rows, size_t count, const uint8_t *from, size_t from_apart, uint8_t *to, size_t to_apart"


def function(spec: WordsSpec) -> str:
    """The static function of `spec` on `rows` of `count` words: operands are those at `from` and `to`."""
    domain, body = CDomain(), Body({})
    a, b = ([Bits(domain, WORD_BITS, Term(f"{x}[j + {k}]", WORD_BITS)) for k in range(spec.planes)] for x in "ab")
    for k, made in enumerate(spec.values(a, b)):
        body.store(f"b[j + {k}]", made.v)
    row = ["const bs_u64 *restrict a = (const void *)from;", "bs_u64 *restrict b = (void *)to;"]
    row += block(f"for (size_t j = 0; j < count; j += {spec.planes})", body.lines)
    rows = block("for (; rows > 0; --rows, from += from_apart, to += to_apart)", row)
    return "\n".join(block(f"static void {spec.name}({PARAMETERS})", rows)).replace(") {", ")\n{", 1)
