"""The affine equalities between numbers that hold at one place of a program.

All values that were seen are a point plus sums of directions (M. Karr, Affine relationships among variables of a
program, 1976). Joining more of them gives the smallest such set that has both.

    Given: (steps done, pointer) = (0, w), then (1, w + 64).    Result: the pointer is w + 64 * steps done.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from math import lcm

from bitsynth.objects.affine import AffineNumber
from bitsynth.objects.memory import NotShown

DirectionVector = dict[Hashable, int | Fraction]
"""Numbers by name; whole numbers are integers, with which Python computes faster."""
_LIMIT = 1 << 62
"""Numbers below this are the same in registers and in the relations between them."""


class AffineHull:
    """A point and directions over named numbers, in reduced echelon form.

    One number of each direction is free: the others are sums of the free ones. It is the first number by `rank`. Among
    numbers of one rank it is the one that changes least, so that the others change by whole multiples of its change.

        rank 0: step;  rank 1: pointer and count    With pointer + 8 count = w + 32 step it is count that is free.
    """

    def __init__(self, names: Sequence[Hashable], rank: Callable[[Hashable], int]) -> None:
        self.names, self._rank = list(names), rank
        self.point: DirectionVector | None = None
        self.directions: dict[Hashable, DirectionVector] = {}

    def join(self, values: Mapping[Hashable, AffineNumber]) -> bool:
        """Add all values of these sums, whatever their unknowns are; return whether there were new ones."""
        point: DirectionVector = {name: values[name].number for name in self.names}
        directions: dict[Hashable, DirectionVector] = {}
        for name in self.names:
            for key, times in values[name].terms:
                directions.setdefault(key, {})[name] = times
        new = list(directions.values())
        grown = self.point is None
        if self.point is None:
            self.point = point
        else:
            new.append({name: x - self.point[name] for name, x in point.items() if x != self.point[name]})
        for vector in new:
            grown |= self._insert(vector)
        return grown

    def forget(self, name: Hashable) -> None:
        """Leave out a number."""
        self.names.remove(name)
        old, self.directions = self.directions, {}
        if self.point:
            del self.point[name]
        for vector in old.values():
            self._insert({key: x for key, x in vector.items() if key != name})

    def _insert(self, vector: DirectionVector) -> bool:
        """Add a direction; return whether it was new."""
        rest = dict(vector)
        for free, direction in self.directions.items():
            if times := rest.get(free, 0):
                _subtract(rest, direction, times)
        if not rest:
            return False
        first = min(rest, key=lambda name: (self._rank(name), abs(rest[name])))
        unit = {key: _whole(Fraction(x) / rest[first]) for key, x in rest.items()}
        for direction in self.directions.values():
            if times := direction.get(first, 0):
                _subtract(direction, unit, times)
        self.directions[first] = unit
        return True

    def sums(self) -> tuple[dict[Hashable, AffineNumber], list[AffineNumber]]:
        """Return each number as a sum of free ones, which have their names for unknowns, and sums that are 0.

        A number that is a fraction of a sum is an unknown too, and the sum minus its multiple is 0.
        """
        point, out, zeros = self.point or {}, dict[Hashable, AffineNumber](), list[AffineNumber]()
        for name in self.names:
            terms = {free: v[name] for free, v in self.directions.items() if name in v}
            constant = point[name] - sum(times * point[free] for free, times in terms.items())
            scale = 1
            for x in (*terms.values(), constant):
                scale = lcm(scale, x.denominator)
            whole = {free: int(x * scale) for free, x in terms.items()}
            if max(map(abs, (scale, int(constant * scale), *whole.values()))) >= _LIMIT:
                raise NotShown("numbers are compared that are too large")
            total = AffineNumber(int(constant * scale), whole)
            if scale == 1:
                out[name] = total
            else:
                out[name] = AffineNumber.of_unknown(name)
                zeros.append(total - out[name] * scale)
        return out, zeros


def _whole(x: int | Fraction) -> int | Fraction:
    """Return a number as an integer, if it is one."""
    return x.numerator if isinstance(x, Fraction) and x.denominator == 1 else x


def _subtract(vector: DirectionVector, other: DirectionVector, times: int | Fraction) -> None:
    for key, x in other.items():
        value = vector.get(key, 0) - x * times
        if value:
            vector[key] = _whole(value)
        else:
            vector.pop(key, None)
