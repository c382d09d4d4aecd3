"""A layer is independent: its arguments may change or be freed, and copies of it are equal layers."""

import copy
import pickle
import subprocess
import sys
from typing import Any

import msgspec
import numpy as np
import pytest
from support.layer_cases import machine, usable

from bitsynth.errors import SpecError
from bitsynth.layers import Conv2d, Dense, Pool, Requantize, Scale, Thresholds
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.proof import checker

M = machine("avx2", "lookup", 2, 2, "ternary", "signed")
SCHEDULE = LayerSchedule("avx2", "lookup", 64, gather="direct", band_rows=2)
OPTIONS: dict[str, Any] = {"isa": "avx2", "act_encoding": "ternary", "weight_encoding": "signed", "schedule": SCHEDULE}
RNG = np.random.default_rng(5)
X = RNG.integers(-1, 2, (2, 6, 7, 4))
COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda layer: pickle.loads(pickle.dumps(layer)),
}


@pytest.fixture(autouse=True, scope="module")
def compiled(skip_isa):
    usable(M, skip_isa)


def weights(*shape):
    return RNG.integers(-2, 2, shape)


def conv(weight=None, **options):
    return Conv2d(weights(6, 2, 3, 3) if weight is None else weight, 2, 2, **{**OPTIONS, "groups": 2, **options})


def test_weights_edited_later_are_not_those_of_the_layer(tmp_path):
    weight = weights(6, 2, 3, 3)
    layer = conv(weight)
    before, files = layer(X), layer.files("layer")
    kept = weight.copy()
    weight[:] = -weight - 1
    assert np.array_equal(layer(X), before)
    assert layer.files("layer") == files
    assert np.array_equal(layer.weight, kept)
    with pytest.raises(ValueError, match="read-only"):
        layer.weight[:] = 0


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Scale, np.arange(1.0, 7.0)),
        (lambda x: Requantize(x, 3, 4), np.arange(1, 7)),
        (Thresholds, np.arange(12).reshape(6, 2)),
    ],
    ids=["scale", "requantize", "thresholds"],
)
def test_an_epilogue_edited_later_is_the_same_in_copies(kind, values):
    layer = conv(epilogue=kind(values))
    before = layer(X)
    values[:] = 5
    assert np.array_equal(copy.deepcopy(layer)(X), before)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("threads", [1, 2])
def test_copies_are_layers_of_the_same(how, threads):
    layer = conv(
        stride=(2, 1),
        padding=(1, 0, 2, 1),
        dilation=(1, 2),
        layout="NCHW",
        out_layout="packed",
        threads=threads,
        image=(6, 7),
        epilogue=Thresholds(np.arange(18).reshape(6, 3) - 9),
    )
    x = X.transpose(0, 3, 1, 2)
    want = layer(x)
    other = COPIES[how](layer)
    assert type(other) is Conv2d
    assert np.array_equal(other(x), want)
    assert other.explain() == layer.explain()
    assert other.files("layer") == layer.files("layer")
    assert other.pool is layer.pool
    assert other.compiled.scratch is not layer.compiled.scratch


@pytest.mark.parametrize("how", COPIES)
def test_a_dense_layer_stays_one(how):
    layer = Dense(weights(5, 9), 2, 2, **OPTIONS)
    other = COPIES[how](layer)
    x = RNG.integers(-1, 2, (3, 9))
    assert type(other) is Dense
    assert np.array_equal(other(x), layer(x))


def test_another_process_makes_it_anew(tmp_path):
    layer = conv(threads=2)
    (tmp_path / "layer").write_bytes(pickle.dumps(layer))
    np.save(tmp_path / "x.npy", X)
    code = "import pickle, numpy as np; y = pickle.load(open('layer', 'rb'))(np.load('x.npy')); np.save('y.npy', y)"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert np.array_equal(np.load(tmp_path / "y.npy"), layer(X))


def test_a_derived_kernel_is_checked_for_the_first_layer_alone(monkeypatch):
    """Whose rows, flushes and unrolling are another's than the cached one's."""
    schedule = msgspec.structs.replace(SCHEDULE, rows=2, flush_steps=3, unroll=2)
    layer = conv(schedule=schedule)
    monkeypatch.setattr(checker, "check", lambda *_: pytest.fail("checked again"))
    assert conv(schedule=schedule).kernel.proved_entry is layer.kernel.proved_entry
    assert copy.deepcopy(layer).kernel.proved_entry is layer.kernel.proved_entry


def test_a_layer_of_a_pool_is_copied_with_it_and_not_pickled():
    with Pool(2) as pool:
        layer = conv(threads=pool)
        assert copy.deepcopy(layer).pool is copy.copy(layer).pool is pool
        assert np.array_equal(copy.deepcopy(layer)(X), layer(X))
        with pytest.raises(TypeError, match="a layer that is to be pickled takes threads as a number"):
            pickle.dumps(layer)
        with pytest.raises(TypeError, match="share it, or make another"):
            copy.deepcopy(pool)


FOREIGN = [("avx2", "neon"), ("avx2", "avx512"), ("neon", "avx2"), ("neon", "neon_dotprod"), ("avx2", "avxvnni")]


@pytest.mark.parametrize(("isa", "other"), FOREIGN)
def test_a_schedule_of_another_instruction_set_is_refused(isa, other):
    schedule = LayerSchedule(other, "lookup", 64, gather="direct")
    with pytest.raises(SpecError, match=f"isa is {isa}, the schedule's {other}; want a schedule of {isa}"):
        conv(isa=isa, schedule=schedule)


@pytest.mark.parametrize(("isa", "other"), [("avx512", "avx2"), ("avxvnni", "avx2"), ("auto", "avx2")])
def test_a_schedule_that_the_processors_run_is_taken(isa, other):
    assert conv(isa=isa, schedule=SCHEDULE).schedule == SCHEDULE
