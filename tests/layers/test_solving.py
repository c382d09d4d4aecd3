"""A kernel that is missing: what the advice makes is what layers ask for; layers that solve it themselves."""

import shlex
import shutil
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bitsynth import paths
from bitsynth.cli.app import app
from bitsynth.errors import NoKernel
from bitsynth.layers import Dense, LayerPlan, LayerSpec, plan
from bitsynth.layers.geometry import geometry_of
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.matmul import get_kernel
from bitsynth.spec.matmul import Encoding, MatmulOperand, MatmulSpec
from bitsynth.spec.options import KernelOptions
from bitsynth.store.entry import ProvedEntry
from bitsynth.store.matmul import MATMUL
from bitsynth.synth import synthesize as line

GEOMETRY = geometry_of((6, 4, 3, 3), stride=1, padding=1, dilation=1, groups=1)
SPEC = LayerSpec(MatmulOperand(2, Encoding.UNSIGNED), MatmulOperand(1, Encoding.BIPOLAR), GEOMETRY)


@pytest.fixture
def solved(monkeypatch, tmp_path):
    """No kernel ships; solving gives the one of lookup that did; the list has what was solved."""
    path = MATMUL.find_for(on("avx2"), KernelOptions("lookup", channels=64))
    entry = MATMUL.load(path)
    monkeypatch.setattr(paths, "shipped_kernels", lambda: tmp_path / "none")
    monkeypatch.setattr(paths, "user_kernels", lambda: tmp_path / "mine")
    asked: list[Any] = []

    def synthesize(spec, options, *, progress, **budget):
        asked.append((spec.isa, options))
        progress("lookup: looking for kernels")
        return line.Synthesis(ProvedEntry(entry.proved, options, entry.claims, entry.bound), ())

    monkeypatch.setattr(line, "synthesize", synthesize)
    return asked


def on(isa):
    return MatmulSpec(isa, SPEC.act, SPEC.wgt)


def test_what_the_advice_makes_is_what_a_layer_takes(solved):
    with pytest.raises(NoKernel) as refused:
        plan(SPEC, isa="avx2")
    command = str(refused.value).split("`")[1]
    assert command == "bitsynth synth --isa avx2 --act-bits 2 --w-bits 1 --channels 64"
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    layer_plan = plan(SPEC, isa="avx2")
    assert (layer_plan.schedule.method, layer_plan.schedule.channels) == ("lookup", 64)
    assert solved == [("avx2", KernelOptions(channels=64))]


def test_a_layer_solves_what_is_missing_once(solved, capsys):
    text: list[str] = []
    first = plan(SPEC, isa="avx2", solve=lambda message, done=0, total=None: text.append(message))
    assert text == ["solving 2-bit unsigned x 1-bit bipolar for layers on avx2", "lookup: looking for kernels"]
    again = Dense(np.ones((3, 5)), 2, 1, isa="avx2", solve=True)
    assert isinstance(first, LayerPlan)
    assert again.kernel.entry == first.kernel.entry
    assert (len(solved), capsys.readouterr().err) == (1, "")


def test_the_kernel_of_a_schedule_is_solved(solved, capsys):
    schedule = LayerSchedule("avx2", "lookup", 64, "direct")
    assert plan(SPEC, schedule=schedule, solve=True).schedule == schedule
    assert solved == [("avx2", KernelOptions("lookup", channels=64))]
    assert capsys.readouterr().err.startswith("solving 2-bit unsigned x 1-bit bipolar for layers on avx2\n")


def test_the_cheapest_kernel_is_that_of_its_method_alone(solved):
    plan(SPEC, isa="avx2", solve=lambda *_, **__: None)
    assert MATMUL.find_for(on("avx2"), KernelOptions("lookup", channels=64)).parent.name == "c64"
    assert MATMUL.find_for(on("avx2"), KernelOptions("popcount", channels=64)) is None
    assert get_kernel("avx2", 2, 1, method="lookup", channels=64).entry.method == "lookup"


@pytest.mark.slow
def test_solving_in_earnest(monkeypatch, tmp_path):
    """Of widths that do not ship, in the user's own cache."""
    monkeypatch.setattr(paths, "user_kernels", lambda: tmp_path)
    layer = Dense(np.ones((3, 5)), 5, 1, isa="avx2", solve=lambda *_, **__: None)
    x = np.arange(10).reshape(2, 5)
    assert (layer.run(x.astype(np.uint8)) == x.sum(1, keepdims=True)).all()
    assert [p.parent.name for p in tmp_path.rglob("*.json")] == ["c64"]
    shutil.rmtree(tmp_path)
