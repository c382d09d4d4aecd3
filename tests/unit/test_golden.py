"""Emitted C, letter for letter: six kernels of different sets, methods and widths, and a layer.

`python tests/unit/test_golden.py` writes the files anew: look at what git shows then.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bitsynth import paths
from bitsynth.emit.render import WIDTH
from bitsynth.kernel.names import KernelName
from bitsynth.layers import Conv2d, Thresholds
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.matmul import MatmulKernel
from bitsynth.store.matmul import MATMUL

FOLDER = Path(__file__).parents[1] / "golden"
KERNELS = [
    "armv7_neon/bs_mm_a4u_w4b_s32_armv7_neon_2x32x2",
    "avx2/popcount/bs_mm_a2u_w2b_s32_avx2_1x8x32",
    "avx512/lookup/bs_mm_a1u_w1b_s32_avx512_3x192x6",
    "avxvnni/bs_mm_a2u_w4b_s32_avxvnni_8x8x8",
    "neon/bs_mm_a2u_w1b_s32_neon_6x64x4",
    "neon_dotprod/popcount-c64/bs_mm_a3u_w3b_s32_neon_dotprod_1x8x64",
]


def of_kernel(place):
    """The files of a shipped kernel."""
    path = paths.shipped_kernels() / f"{place}.json"
    return MatmulKernel(MATMUL.load(path), KernelName.parse(path.stem).spec).files


def of_layer():
    """What a small layer has of its own, beside its kernel and the runtime."""
    weight = np.resize([1, -1, -1, 1, 1, 1, -1], (4, 8, 3, 3))
    levels = np.array([[-20, 0, 20]] * 4)
    schedule = LayerSchedule(isa="avx2", method="popcount", channels=64, gather="direct")
    layer = Conv2d(weight, 2, 1, padding=1, epilogue=Thresholds(levels), isa="avx2", schedule=schedule, cpu="zen5")
    return {name: text for name, text in layer.files("layer").items() if not name.startswith("bs_")}


CASES: dict[str, Callable[[], Mapping[str, str]]] = {
    **{place.rpartition("/")[2]: partial(of_kernel, place) for place in KERNELS},
    "layer": of_layer,
}


@pytest.mark.smoke
@pytest.mark.parametrize("case", CASES)
def test_emitted_c_is_as_it_was(case):
    files = CASES[case]()
    assert {p.name for p in (FOLDER / case).iterdir()} == set(files)
    for name, text in files.items():
        assert (FOLDER / case / name).read_text(encoding="utf-8") == text, f"{name}: see this file's first lines"


def test_no_line_is_too_long():
    """Except the layer's renaming macros, which take one line each."""
    files = [p for p in FOLDER.glob("*/*.[ch]") if p.name != "layer_names.h"]
    assert max(len(line) for p in files for line in p.read_text(encoding="utf-8").splitlines()) <= WIDTH


if __name__ == "__main__":
    for case, make in CASES.items():
        (FOLDER / case).mkdir(parents=True, exist_ok=True)
        for name, text in make().items():
            (FOLDER / case / name).write_text(text, encoding="utf-8")
