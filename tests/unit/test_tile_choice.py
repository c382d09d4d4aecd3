"""Tiles that ship for out-of-order processors: the scoreboard chose them."""

from __future__ import annotations

import pytest

from bitsynth.isa.load import load
from bitsynth.matmul import cached_kernel, get_kernel
from bitsynth.schedule import quickest
from bitsynth.schedule.predicted import tile_cycles_per_128_mac
from bitsynth.schedule.quickest import ROWS
from bitsynth.spec.options import KernelOptions


@pytest.mark.parametrize("widths", [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_no_tile_of_fewer_rows_or_columns_is_quicker(widths: tuple[int, int]) -> None:
    """Neither fewer rows, of those tried, nor the tile for any processor, take fewer predicted cycles on the A72."""
    isa = load("neon")
    chosen = get_kernel("neon", *widths, cpu="a72")
    kernel = chosen.entry.kernel
    others = [chosen.with_rows(rows) for rows in ROWS if rows < kernel.rows and rows % kernel.together == 0]
    others.append(get_kernel("neon", *widths, method="popcount", channels=64))
    least = tile_cycles_per_128_mac(isa, kernel, "a72")
    assert all(least <= tile_cycles_per_128_mac(isa, other.entry.kernel, "a72") for other in others)


@pytest.mark.parametrize("widths", [(3, 3), (4, 4)])
def test_weights_that_dot_products_take_by_lane_are_a_byte_each(widths: tuple[int, int]) -> None:
    """Unpacking would take the slots that the products want: columns have one code a byte, and no step but products."""
    kernel = get_kernel("neon_dotprod", *widths, cpu="a76").entry.kernel
    (only,) = kernel.passes
    assert {x.per_byte for x in only.columns} == {1}
    assert {step.op.partition(".")[0] for step in only.step.steps} == {"udot_lane"}


def test_the_a53_has_the_most_rows_that_are_nearly_the_quickest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a form of some more rows gains nothing by itself."""
    result = cached_kernel(get_kernel("neon", 1, 1).spec, KernelOptions(model="a53"))
    assert result.on("a53").entry.kernel.rows == 10
    facts = {12: 5.0, 10: 5.0, 8: 4.05, 6: 4.0, 5: 4.5, 4: 4.0}
    monkeypatch.setattr(quickest, "tile_cycles_per_128_mac", lambda _isa, kernel, _cpu: facts[kernel.rows])
    monkeypatch.setattr(quickest, "_with_room", lambda kernel: kernel)
    assert result.on("a53").entry.kernel.rows == 8


def test_pairs_for_the_a53_have_ten_rows_by_32_columns() -> None:
    found = get_kernel("neon", 2, 1, method="pairs", channels=32, cpu="").on("a53").entry.kernel
    assert (found.rows, found.columns) == (10, 32)
