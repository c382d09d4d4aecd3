"""Messages about a `--batch` that a file does not take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bitsynth.cli import output
from bitsynth.errors import BitsynthError, SpecError
from bitsynth.printable import shown

if TYPE_CHECKING:
    from bitsynth.graph.ir import Graph

_EXPORT = "torch.onnx.export(..., dynamic_axes={{{name!r}: {{0: 'N'}}}})"


@contextmanager
def batch_explained(model: Path, batch: int | None) -> Iterator[None]:
    """Say how to export the file if it can be read with a batch of 1, but not with this `batch`."""
    try:
        yield
    except SpecError as error:
        is_of_batch = batch not in (None, 1) and str(error) == _reading_error(model, batch)
        if not is_of_batch or _reading_error(model, 1) or not (inputs := _read(model, 1).inputs):
            raise
        raise SpecError(
            f"{error}; with --batch 1 the file can be read: a shape in it holds the batch that it was exported with. "
            f"Export it with an open batch, {_EXPORT.format(name=inputs[0])}, and without its size in reshapes"
        ) from None


def _reading_error(model: Path, batch: int | None) -> str:
    """Return what is wrong with the file, read with `batch`; "" if nothing is."""
    try:
        _read(model, batch)
    except (BitsynthError, OSError) as error:
        return str(error)
    return ""


def _read(model: Path, batch: int | None) -> Graph:
    from bitsynth.graph import read

    return read(model, batch=batch)


def warn_of_fixed_batch(graph: Graph, batch: int | None) -> None:
    """Warn if the file has a batch of its own, so that `batch` changes nothing."""
    sizes = {name: graph.edges[name].shape[:1] for name in graph.inputs}
    if batch is None or (batch,) in sizes.values() or not sizes:
        return
    name, size = next(iter(sizes.items()))
    fixed = f"a batch of {size[0]}" if size else "no batch"
    output.warning(
        f"--batch {batch} changes nothing: input {shown(name)} has {fixed} in the file; "
        f"export it with an open one, {_EXPORT.format(name=name)}"
    )
