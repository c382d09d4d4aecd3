"""Loads beside which AArch64 code asks for lines of caches, found in its listing."""

import importlib
from pathlib import Path

import pytest

from bitsynth.errors import ToolError


@pytest.fixture
def prefetched(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "benchmarks")
    return importlib.import_module("prefetches").prefetched


def listing(*lines):
    return {4 * k: line for k, line in enumerate(lines)}


@pytest.mark.parametrize(
    ("lines", "distances"),
    [
        (["ldr d0, [x2, #48]", "prfm pldl1keep, [x2, #320]"], {0: [272]}),
        (["prfm pldl1keep, [x2]", "ldr x3, [x2, #8]"], {4: [-8]}),
        (["ldr d0, [x2, #48]", "add x2, x2, #0x40", "prfm pldl1keep, [x2, #256]"], {0: [272]}),
        (["ldr d1, [x7, x5]", "add x9, x5, x7", "prfm pldl1keep, [x9, #64]"], {0: [64]}),
        (["add x9, x8, x2", "ld1r {v0.2d}, [x9]", "mov x4, x2", "prfm pldl1keep, [x4, x8]"], {4: [0]}),
        (["ldr q0, [x2], #16", "prfm pldl1keep, [x2, #64]"], {0: [80]}),
        (["ldr q0, [x2, #16]!", "prfm pldl1keep, [x2, #64]"], {0: [64]}),
        (["sub x3, x2, #0x8", "ldr d0, [x3]", "prfm pldl1keep, [x2]"], {4: [8]}),
        (["ldr d0, [x1]", "prfm pldl1keep, [x1, #64]", "prfm pldl1keep, [x1, #128]", "b 0"], {0: [64, 128]}),
        (["prfm pldl1keep, [x1, #64]", "cbz x9, 100 <f+0x100>", "ldr d0, [x1]", "b 0"], {8: [64]}),
        (["ldr d0, [x1]", "ldr d1, [x1]", "prfm pldl1keep, [x1, #64]", "cbnz x9, 4"], {4: [64]}),
        (["add v0.16b, v1.16b, v2.16b", "str q0, [x1]", "ret"], {}),
    ],
)
def test_a_prefetch_is_found_beside_a_load_of_the_same_pointers(prefetched, lines, distances):
    assert prefetched(listing(*lines)) == distances


@pytest.mark.parametrize(
    "lines",
    [
        ["ldr d0, [x2]", "prfm pldl1keep, [x3]", "b 0"],
        ["ldr d0, [x2]", "ldr x2, [x4]", "prfm pldl1keep, [x2]", "b 0"],
        ["ldr d0, [x2]", "mul x2, x2, x3", "prfm pldl1keep, [x2]", "b 0"],
        ["ldr d0, [x2]", "cbnz x9, 0", "prfm pldl1keep, [x2]", "b 0"],
        ["ldr d0, [x2]", "add x3, x3, #1", "prfm pldl1keep, [x2]", "cbnz x9, 4"],
        ["ldr d0, [x2]", "prfm pldl1keep, [x3]"],
    ],
)
def test_a_prefetch_beside_no_such_load_is_an_error(prefetched, lines):
    with pytest.raises(ToolError, match="no load"):
        prefetched(listing(*lines))
