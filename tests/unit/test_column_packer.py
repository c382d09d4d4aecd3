"""Columns that C packs at run time have the bytes that constant weights have."""

import numpy as np
import pytest
from support.programs import change
from support.solved_kernels import REPRESENTATIVE, kernel

from bitsynth.emit.column_packer import column_inputs
from bitsynth.emit.packing import packing
from bitsynth.kernel.packing import tiles
from bitsynth.kernel.program import BIT_AXES
from bitsynth.store.matmul import MATMUL


def packed(kernel, codes):
    """The bytes of a tile of columns (columns, steps x k_step), as the template of C has them."""
    steps = codes.shape[1] // kernel.k_step
    out = np.zeros(steps * kernel.columns * kernel.column_bytes, np.uint8)
    sizes = {"steps": steps, "COLUMNS": kernel.columns, "SLOT_BYTES": kernel.slot_bytes}
    for given in column_inputs(kernel):
        for step in range(steps):
            of_step = codes[list(kernel.slots), step * kernel.k_step :][:, : kernel.k_step].astype(np.int64)
            if given.is_looked_up:
                values = np.array(given.values)[of_step[:, np.array(given.places)]]
                result = (values << given.bits * np.arange(values.shape[-1])).sum(-1)
            else:
                factor, summand = given.line
                result = of_step[:, given.first :][:, : given.count] * factor + summand
            raw = result.astype(f"<u{kernel.code_bytes}").view(np.uint8)
            for slot in range(kernel.columns):
                at = eval(given.to, {**sizes, "step": step, "slot": slot})
                out[at : at + kernel.slot_bytes] = raw[slot]
    return out


def require_equal(kernel):
    codes = (
        np.random.default_rng(0)
        .integers(0, 1 << kernel.column_bits, (kernel.columns, 3 * kernel.k_step))
        .astype(np.uint8)
    )
    steps = codes.reshape(kernel.columns, 3, kernel.k_step)[..., list(packing(kernel).order)]
    np.testing.assert_array_equal(packed(kernel, codes), tiles(kernel, steps)[0])


@pytest.mark.parametrize("axis", BIT_AXES)
@pytest.mark.parametrize("config", REPRESENTATIVE)
def test_columns_are_packed_as_weights_are(config, axis):
    found = kernel(*config)
    require_equal(change(found, bit_axis=axis if axis in found.bit_axes else "inner"))


def test_every_shipped_kernel_can_have_columns_of_an_edge():
    entries = [MATMUL.read(path) for path in MATMUL.every()]
    assert len(entries) > 100
    for entry in entries:
        require_equal(entry.kernel)
