"""Sums whose equal values are one object, whatever the order in which their addends were added.

A sum maps addends, which are numbered, to coefficients modulo a power of two. It is a binary tree over the bits of the
numbers (a Patricia tree: Okasaki and Gill, Fast Mergeable Integer Maps, 1998), whose shape depends on the addends
alone; equal nodes are one object. Adding one addend to a sum of n takes about log2(n) new nodes:

    Given: 5 + 7, then 4.    Result: the node ((4 5) 7), which 4 + 5, then 7 is too.
"""

from __future__ import annotations

from collections.abc import Iterator


class SumNode:
    """A tree of addends: one addend `key` with its `times`, or two trees whose keys differ first at bit `bit`.

    Of two trees `key` has the bits above that; `left` holds those keys in which the bit is 0.
    """

    __slots__ = ("bit", "key", "left", "right", "size", "times")

    def __init__(self, key: int, times: int, bit: int = -1, *sides: SumNode) -> None:
        self.key, self.times, self.bit = key, times, bit
        self.left, self.right = sides or (self, self)
        self.size: int = sum(side.size for side in sides) or 1

    def addends(self) -> Iterator[tuple[int, int]]:
        """Yield addends and coefficients."""
        if self.bit < 0:
            yield self.key, self.times
        else:
            yield from self.left.addends()
            yield from self.right.addends()


class Sums:
    """The nodes of all sums."""

    def __init__(self) -> None:
        self._single: dict[tuple[int, int], SumNode] = {}
        self._pairs: dict[tuple[int, SumNode, SumNode], SumNode] = {}

    def single(self, key: int, times: int) -> SumNode:
        """Return the sum of one addend."""
        node = self._single.get((key, times))
        if node is None:
            node = self._single[key, times] = SumNode(key, times)
        return node

    def _pair(self, bit: int, left: SumNode, right: SumNode) -> SumNode:
        node = self._pairs.get((bit, left, right))
        if node is None:
            node = self._pairs[bit, left, right] = SumNode(left.key >> bit + 1 << bit + 1, 0, bit, left, right)
        return node

    def plus(self, a: SumNode | None, b: SumNode | None, sign: int, every: int) -> SumNode | None:
        """Return a + sign * b with coefficients modulo every + 1; None is the empty sum."""
        if a is not None and b is not None and sign == 1 and a.size < b.size:
            a, b = b, a
        for key, times in b.addends() if b is not None else ():
            a = self._with(a, key, times * sign & every, every)
        return a

    def _with(self, node: SumNode | None, key: int, times: int, every: int) -> SumNode | None:
        """Return a sum with one more addend."""
        if node is None:
            return self.single(key, times)
        if node.bit < 0 and node.key == key:
            total = node.times + times & every
            return self.single(key, total) if total else None
        if node.bit < 0 or (node.key ^ key) >> node.bit + 1:
            new, bit = self.single(key, times), (node.key ^ key).bit_length() - 1
            return self._pair(bit, node, new) if key >> bit & 1 else self._pair(bit, new, node)
        if key >> node.bit & 1:
            right = self._with(node.right, key, times, every)
            return self._pair(node.bit, node.left, right) if right is not None else node.left
        left = self._with(node.left, key, times, every)
        return self._pair(node.bit, left, node.right) if left is not None else node.right
