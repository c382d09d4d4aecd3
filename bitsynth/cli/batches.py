"""A warning about a `--batch` that changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitsynth.cli import output
from bitsynth.printable import shown

if TYPE_CHECKING:
    from bitsynth.graph.ir import Graph


def warn_of_fixed_batch(graph: Graph, batch: int | None) -> None:
    """Warn if the file has a batch of its own, so that `batch` changes nothing."""
    sizes = {name: graph.edges[name].shape[:1] for name in graph.inputs}
    if batch is None or (batch,) in sizes.values() or not sizes:
        return
    from bitsynth.graph.read.importer import open_batch_export

    name, size = next(iter(sizes.items()))
    fixed = f"a batch of {size[0]}" if size else "no batch"
    output.warning(
        f"--batch {batch} changes nothing: input {shown(name)} has {fixed} in the file; "
        f"export it with an open one, {open_batch_export(name)}"
    )
