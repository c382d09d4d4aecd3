"""New names of edges and buffers; they are made here alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container


class Names:
    """A source of names that nothing else has.

    A file may call an edge anything: `input.1` (torch.onnx.export does), `x.codes`, `constant`. A name that the product
    makes for an edge or a buffer must be none of the file's, not even that of an edge which a pass has removed: results
    are compared with other runtimes by name.

    Example: `Names({"x", "x.rows"}).make("x.rows")` is "x.rows_1", and "x.rows_2" when it is asked for again.

    Args:
        taken: Collections of names that are in use. They are looked up, not copied, so they may grow later.
    """

    def __init__(self, *taken: Container[str]) -> None:
        self._taken = taken
        self._made: set[str] = set()
        self._suffixes: Counter[str] = Counter()

    def make(self, stem: str) -> str:
        """Return a new name: the stem, followed by a number if the stem is in use."""
        name = stem
        while name in self._made or any(name in names for names in self._taken):
            self._suffixes[stem] += 1
            name = f"{stem}_{self._suffixes[stem]}"
        self._made.add(name)
        return name
