"""The model behind default schedules: what a tile of few rows and a short K cost more."""

from dataclasses import replace

import pytest

from bitsynth.layers.candidates import candidates
from bitsynth.layers.cost import COUNTED_CALL_SHARE, Estimate
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.planning import default_schedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.spec.matmul import Encoding, MatmulOperand

ACT, WGT = MatmulOperand(2, Encoding.UNSIGNED), MatmulOperand(2, Encoding.BIPOLAR)


def estimate(method, rows, channels=64, isa="avx2"):
    """A layer of one tap, so K is `channels`; an image that tiles of 1, 2, 3 and 4 rows fill."""
    geometry = Geometry(channels, 128, 1, (1, 1), (1, 1), (0,) * 4, (1, 1))
    (found,) = (x for x in candidates(ACT, WGT, isa) if x.method == method)
    return Estimate(found, LayerSpec(ACT, WGT, geometry, image=(24, 24)), "direct", rows)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_tile_of_fewer_rows_loads_columns_more_often(rows):
    assert estimate("lookup", rows)._accumulation_cycles / rows > estimate("lookup", rows + 1)._accumulation_cycles / (
        rows + 1
    )


@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_a_short_sum_pays_its_flush(isa):
    short, long = (estimate("lookup", 1, channels, isa)._accumulation_cycles for channels in (64, 64 * 16))
    assert long < 0.9 * 16 * short


@pytest.mark.parametrize(("method", "share"), [("lookup", 0.5), ("popcount", 0.2)])
def test_words_are_packed_in_less_than_codes(method, share):
    """Of popcount if instructions of layers were counted: bits lie as they are."""
    of = replace(estimate(method, 1, isa="neon"), counted=True)
    words = replace(of, layer=replace(of.layer, layout="packed"))
    assert words._packing_cycles < share * of._packing_cycles


def test_pointers_of_rows_serve_all_tiles_of_columns():
    """What was measured on Zen 5 is of each tile; here two of 64 columns."""
    each = estimate("lookup", 4, isa="neon")
    once = replace(each, counted=True)
    assert once.column_tiles == 2
    assert once._tile_overhead < each._tile_overhead - COUNTED_CALL_SHARE * once._cpu.call_cycles


@pytest.mark.parametrize(("image", "rows"), [((1, 1), 1), ((1, 2), 2)])
def test_few_pixels_fill_a_tile(image, rows):
    """A dense layer has one row, and more rows of a tile would be computed in vain."""
    act, wgt = MatmulOperand(8, Encoding.SIGNED), MatmulOperand(8, Encoding.SIGNED)
    geometry = Geometry(128, 128, 1, (1, 1), (1, 1), (0,) * 4, (1, 1))
    chosen = default_schedule(LayerSpec(act, wgt, geometry, image=image), "avx2")
    assert chosen.rows == rows


@pytest.mark.parametrize(("isa", "rows"), [("avx2", 0), ("avx512", 4)])
def test_what_rows_share_counts_where_issue_is_near_its_limit(isa, rows):
    """Loads of columns and loop control: on Zen 4 they cost AVX2 more than the 2 of 198 rows that are not used."""
    act, wgt = MatmulOperand(8, Encoding.UNSIGNED), MatmulOperand(8, Encoding.SIGNED)
    geometry = Geometry(256, 256, 1, (3, 3), (1, 1), (1,) * 4, (1, 1))
    assert default_schedule(LayerSpec(act, wgt, geometry, image=(14, 14)), isa, cpu="zen4").rows == rows
