"""Compilation of the layers of a network, several at a time."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import as_completed
from typing import Any

from bitsynth.errors import SpecError
from bitsynth.host import features
from bitsynth.layers.conv import Conv2d
from bitsynth.layers.epilogues.checks import require_whole
from bitsynth.layers.library import library_key
from bitsynth.processes.tool import several_at_once
from bitsynth.progress import Progress, silent
from bitsynth.spec.options import MAX_THREADS


def compile_all(layers: Iterable[Conv2d], *, workers: int | None = None, progress: Progress = silent) -> None:
    """Compile `layers` before their first calls, once for all layers of a kernel.

    Args:
        layers: Layers; a layer that is compiled already takes no time.
        workers: Compilers at a time; as many as this process may use cores if None.
        progress: Hears how many libraries of all are compiled.

    Raises:
        SpecError: One of them is no such layer; `workers` is no whole number of at least 1.
        ToolError: A layer cannot be compiled or run; the others are compiled.
    """
    every = _layers(layers)
    if workers is not None:
        require_whole("workers", workers, 1, MAX_THREADS)
    first = list({library_key(layer.kernel, layer.packed.programs): layer for layer in every}.values())
    with several_at_once(min(workers or features.cores(), len(first))) as submit:
        started = [submit(layer.compile) for layer in first]
        for done, _ in enumerate(as_completed(started), 1):
            progress(f"compiled {done} of {len(first)} libraries", done, len(first))
    for compilation in started:
        compilation.result()
    for layer in every:
        layer.compile()


def _layers(given: Any) -> list[Conv2d]:
    """Return the layers as a list; raise SpecError for other objects."""
    every = list(given) if isinstance(given, Iterable) else [given]
    if unfit := [layer for layer in every if not isinstance(layer, Conv2d)]:
        raise SpecError(f"compile_all wants a list of Conv2d and Dense layers, not {unfit[0]!r}")
    return every
