"""Cut points: replaces arithmetic that a spec and a program share by unknowns, so that Z3 need not reason about it.

While the spec is evaluated, the domain replaces each product, float32 operation and rounding by an unknown. Where the
program does the same operation on the same operands, it meets the same unknown:

    spec       clamp(nearest(s * m))        cut0 = s * m; cut1 = nearest(cut0); clamp(cut1)
    program    narrow(nearest(s * m))       narrow(cut1)
    question   clamp(cut1) != narrow(cut1)?

What holds for all values of the unknowns holds for the operations. For n, the integer nearest to x, one fact is kept:
n <= k where x < k, and n >= k elsewhere, for an integer k, as rounding to nearest is monotone and keeps integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bitsynth.isa.domains.symbolic import SymbolicDomain
from bitsynth.solver.z3 import z3

_FLOAT = 32


class CuttingDomain(SymbolicDomain):
    """Z3's terms, with an unknown, one of `names`, for each operation met while `learning`."""

    def __init__(self) -> None:
        self.learning = True
        self.names: set[str] = set()
        self._cuts: dict[tuple[str, Any, Any], Any] = {}
        self._facts: list[Any] = []

    def mul(self, a: Any, b: Any, w: int) -> Any:
        return self._shared("mul", a, b, w, super().mul(a, b, w))

    def fmul(self, a: Any, b: Any, toward_zero: bool = False) -> Any:
        product = super().fmul(a, b, toward_zero)
        return product if toward_zero else self._shared("fmul", a, b, _FLOAT, product)

    def fadd(self, a: Any, b: Any) -> Any:
        return self._shared("fadd", a, b, _FLOAT, super().fadd(a, b))

    def fdiv(self, a: Any, b: Any) -> Any:
        return self._shared("fdiv", a, b, _FLOAT, super().fdiv(a, b), commutes=False)

    def nearest(self, a: Any) -> Any:
        if _is_choice(a):
            return z3.If(a.arg(0), self.nearest(a.arg(1)), self.nearest(a.arg(2)))
        return self._shared("nearest", a, a, _FLOAT, super().nearest(a))

    def flt(self, a: Any, b: Any) -> Any:
        if _is_choice(a):
            return z3.If(a.arg(0), self.flt(a.arg(1), b), self.flt(a.arg(2), b))
        less = super().flt(a, b)
        limit = z3.simplify(super().nearest(b))
        nearest = self._cuts.get(self._key("nearest", a, a, _FLOAT))
        if nearest is not None and z3.is_true(z3.simplify(self.float_of(limit) == b)):
            monotone = z3.If(less, nearest <= limit, nearest >= limit)
            self._facts.append(z3.Or(z3.fpIsNaN(z3.fpBVToFP(a, z3.Float32())), monotone))
        return less

    def facts(self, *terms: Any) -> list[Any]:
        """Return the facts about unknowns that occur in the terms."""
        read = {x.get_id() for term in terms for x in _unknowns(term)}
        return [fact for fact in self._facts if {x.get_id() for x in _unknowns(fact)} <= read]

    def _shared(self, operation: str, a: Any, b: Any, w: int, result: Any, *, commutes: bool = True) -> Any:
        """Return the unknown of an operation on two terms, in either order if it `commutes`; else `result`."""
        key = self._key(operation, a, b, w) if commutes else (f"{operation}{w}", z3.simplify(a), z3.simplify(b))
        if self.learning and key not in self._cuts:
            self._cuts[key] = z3.BitVec(f"cut{len(self._cuts)}", w)
            self.names.add(str(self._cuts[key]))
        return self._cuts.get(key, result)

    def _key(self, operation: str, a: Any, b: Any, w: int) -> tuple[str, Any, Any]:
        one, other = sorted((z3.simplify(a), z3.simplify(b)), key=lambda x: int(x.get_id()))
        return f"{operation}{w}", one, other


def bits_alone(claims: list[Any]) -> list[Any]:
    """Return the claims with float32 arithmetic, if there is any, expanded to bit-vectors."""
    if not any(z3.is_fp(x) for claim in claims for x in _terms(claim)):
        return claims
    z3.set_param("rewriter.hi_fp_unspecified", True)
    goal = z3.Goal()
    goal.add(*claims)
    (expanded,) = z3.Then("simplify", "fpa2bv", "simplify")(goal)
    return list(expanded)


def _is_choice(x: Any) -> bool:
    return bool(z3.is_app(x) and x.decl().kind() == z3.Z3_OP_ITE)


def _unknowns(x: Any) -> list[Any]:
    """Return the unknowns in a term."""
    return [t for t in _terms(x) if z3.is_const(t) and t.decl().kind() == z3.Z3_OP_UNINTERPRETED]


def _terms(x: Any) -> Iterator[Any]:
    """Yield every term in `x`, once."""
    seen: set[int] = set()
    waiting = [x]
    while waiting:
        term = waiting.pop()
        if term.get_id() not in seen:
            seen.add(term.get_id())
            waiting += term.children()
            yield term
