"""Layers for the processor that they will run on: asked for, found here, or the first of the set."""

import pickle

import numpy as np
import pytest

import bitsynth
from bitsynth.device import Device
from bitsynth.errors import SpecError
from bitsynth.host import features, placement
from bitsynth.host.facts import Facts
from bitsynth.isa.load import load
from bitsynth.layers import planning
from bitsynth.layers.candidates import candidates, cpu_for
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.planning import plan, rank
from bitsynth.layers.scheduled_kernel import with_quickest_rows
from bitsynth.layers.spec import LayerSpec
from bitsynth.spec.matmul import Encoding, MatmulOperand

W = np.random.default_rng(0).choice([-1, 1], (64, 64, 3, 3))
PI_4 = Facts(machine="aarch64", midrs=frozenset({"0x41 0xd08"}))
ZEN_4 = Facts(machine="x86_64", vendor="AuthenticAMD", family="25", model="116")


def layer(**options):
    return bitsynth.Conv2d(W, 2, 1, padding=1, isa="neon", **options)


@pytest.fixture
def on_an_unknown(monkeypatch):
    monkeypatch.setattr(placement, "here", Facts)


def pretend(monkeypatch, facts, found):
    """Be on a machine of these facts whose processor has the features `found`."""
    monkeypatch.setattr(placement, "here", lambda: facts)
    monkeypatch.setattr(features, "arch", lambda: facts.machine)
    monkeypatch.setattr(features, "features", lambda: frozenset(found))
    monkeypatch.delenv("BITSYNTH_RUNNER", raising=False)


@pytest.fixture
def on_a_pi_4(monkeypatch):
    pretend(monkeypatch, PI_4, {"asimd"})


@pytest.fixture
def on_another(monkeypatch):
    """The processor of a machine of another architecture than this one's."""
    if features.arch() == "aarch64":
        pretend(monkeypatch, ZEN_4, load("avx2").table.host_features)
        return "zen4"
    pretend(monkeypatch, PI_4, {"asimd"})
    return "a72"


def test_candidates_of_a_set_that_runs_here_do_not_need_more(monkeypatch):
    """Kernels of AVX-VNNI may serve layers on AVX-512, but not on a processor without it."""
    plain = load("avx512").requirements(load("avx512").instrs).host
    byte = MatmulOperand(8, Encoding.UNSIGNED), MatmulOperand(8, Encoding.SIGNED)
    for found, expected in ((plain, False), ({*plain, "avx_vnni"}, True)):
        pretend(monkeypatch, ZEN_4, {*load("avx2").table.host_features, *found})
        sets = {each.entry.kernel.isa for each in candidates(*byte, "avx512")}
        assert ("avxvnni" in sets) == expected
        assert "avx512" in sets


def test_a_layer_has_the_kernel_of_fewest_cycles_on_its_processor():
    wide = bitsynth.Conv2d(W[:, :, :1, :1], 1, 1, isa="neon", cpu="a72")
    assert (layer(cpu="a53").schedule.method, wide.schedule.method) == ("pairs", "popcount")
    spec = layer().plan.spec
    for cpu in ("a53", "a72", "a76"):
        least = planning.choose_by_prediction(rank(spec, "neon", cpu=cpu))
        assert layer(cpu=cpu).schedule == with_quickest_rows(spec, least.schedule, cpu)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("isa", "cpu", "act_bits", "w_bits"),
    [("neon", "a53", 1, 1), ("neon", "a72", 3, 2), ("neon", "a72", 3, 3), ("neon_dotprod", "a76", 2, 2)],
)
def test_no_method_is_predicted_to_take_fewer_cycles(isa, cpu, act_bits, w_bits):
    """The best schedule of each method, including unpredicted ones; for A3W2 on the A72 it is not the first
    estimate."""
    geometry = Geometry(64, 64, 1, (3, 3), (1, 1), (1,) * 4, (1, 1))
    act, wgt = MatmulOperand(act_bits, Encoding.UNSIGNED), MatmulOperand(w_bits, Encoding.BIPOLAR)
    spec = LayerSpec(act, wgt, geometry, image=(56, 56))
    every = rank(spec, isa, cpu=cpu)
    each = {e.candidate.method: planning.predict(e) for e in reversed(every)}
    best = min(each.values(), key=lambda e: e.cycles)
    taken = plan(spec, isa=isa, cpu=cpu).schedule
    assert taken == with_quickest_rows(spec, best.schedule, cpu)
    if (cpu, act_bits, w_bits) == ("a72", 3, 2):
        assert (every[0].candidate.method, taken.method) == ("popcount", "lookup")


def test_processors_without_issue_rules_have_the_first_estimate():
    spec = layer().plan.spec
    every = rank(spec, "avx2")
    assert not any(map(planning.has_rules, every))
    assert planning.choose_by_prediction(every) is every[0]


@pytest.mark.parametrize(("cpu", "message"), [("nope", "unknown cpu 'nope'; neon knows a53, a72, a76"), (53, "not 53")])
def test_no_kernel_is_quickest_on_a_processor_that_its_set_does_not_name(cpu, message):
    kernel = bitsynth.get_kernel("neon", 2, 1)
    with pytest.raises(SpecError, match=message):
        kernel.on(cpu)
    assert kernel.on("").name == kernel.on("a72").name == kernel.name


def test_by_default_that_is_the_first_of_a_set_that_others_run(on_an_unknown):
    """Its order of steps too."""
    assert layer().plan.cpu == "a53"
    assert layer().schedule == layer(cpu="a53").schedule
    assert layer().kernel.entry.kernel.order == "a53"
    assert bitsynth.Conv2d(W, 2, 1, padding=1, isa="avx2").plan.cpu == "zen5"


def test_or_the_one_here(on_a_pi_4):
    assert layer().plan.cpu == "a72"
    assert layer().schedule == layer(cpu="a72").schedule
    assert bitsynth.Conv2d(W, 2, 1, padding=1).schedule == layer().schedule
    assert layer(cpu="a53").plan.cpu == "a53"


def test_one_that_is_not_known_here_is_that_of_the_set(on_a_pi_4, monkeypatch):
    monkeypatch.setattr(placement, "here", lambda: Facts(machine="aarch64"))
    assert layer().plan.cpu == "a53"


def test_a_pickled_layer_keeps_its_processor():
    fields = pickle.loads(pickle.dumps(layer(cpu="a72")))
    assert (fields.plan.cpu, fields.schedule) == ("a72", layer(cpu="a72").schedule)


def test_a_layer_of_another_machine_is_for_this_ones_processor(on_another, monkeypatch):
    """If its kernel is not to be had there."""
    layer_plan = plan(layer().plan.spec)
    assert layer_plan.cpu == on_another
    kept = pickle.dumps(layer_plan)
    monkeypatch.undo()
    assert pickle.loads(kept).cpu == cpu_for("auto") != on_another


@pytest.mark.parametrize(
    ("isa", "cpu", "message"),
    [
        ("neon", "z80", "unknown cpu 'z80'; neon knows a53, a72, a76"),
        ("neon_dotprod", "a53", "unknown cpu 'a53'; neon_dotprod knows a76"),
        ("auto", "z80", "unknown cpu 'z80'"),
        ("neon", 72, "cpu must be the name of a processor, not 72"),
    ],
)
def test_processors_that_a_set_does_not_name(isa, cpu, message):
    with pytest.raises(SpecError, match=message):
        bitsynth.Conv2d(W, 2, 1, isa=isa, cpu=cpu)


@pytest.mark.parametrize(("family", "model", "cpu"), [("25", "116", "zen4"), ("26", "2", "zen5")])
def test_the_one_here_by_its_family_and_model(family, model, cpu, monkeypatch):
    monkeypatch.setattr(placement, "here", lambda: Facts(vendor="AuthenticAMD", family=family, model=model))
    monkeypatch.setattr(placement, "runs_natively", lambda isa: True)
    assert bitsynth.Conv2d(W, 2, 1, padding=1, isa="avx2").plan.cpu == cpu


def test_files_name_the_processor(on_an_unknown):
    assert "chosen    for neon on a72" in layer(cpu="a72").files("conv")["conv.h"]
    assert "chosen    for neon on a53" in layer().files("conv")["conv.h"]
    assert "chosen    for avx2 on zen5" in bitsynth.Conv2d(W, 2, 1, padding=1, isa="avx2").files("conv")["conv.h"]
    assert layer(cpu="a72").explain().splitlines()[1].endswith("(default, for a72)")


def test_nothing_is_timed_where_an_emulator_runs_the_system(monkeypatch):
    monkeypatch.setattr(placement, "here", lambda: Facts(emulator="an emulator of programs"))
    table = bitsynth.isa.load.load("avx2").table
    monkeypatch.setattr(placement, "runs_natively", lambda isa: True)
    assert not placement.has_times(table)
    with pytest.raises(SpecError, match="run by an emulator of programs, and an emulator tells no time"):
        placement.require_native(table)


def test_a_pi_5_has_dot_products(on_a_pi_4, monkeypatch):
    monkeypatch.setattr(features, "features", lambda: frozenset({"asimd", "asimddp"}))
    monkeypatch.setattr(placement, "here", lambda: Facts(midrs=frozenset({"0x41 0xd0b"})))
    kernel = bitsynth.get_kernel("auto", 3, 3)
    assert (kernel.spec.isa, kernel.entry.model) == ("neon_dotprod", "a76")


@pytest.mark.parametrize(
    ("bits", "features", "isa"),
    [(64, "asimd", "neon"), (64, "asimd asimddp", "neon_dotprod"), (32, "neon", "armv7_neon")],
)
def test_the_best_set_of_a_board(bits, features, isa, monkeypatch):
    """Not the first by name, which on a 64-bit system is one of 32 bits."""
    board = Device("pi")
    monkeypatch.setitem(
        vars(board), "_facts", Facts(machine="aarch64", bits=bits, features=frozenset(features.split()))
    )
    assert board.best_isa() == isa


def test_a_kernel_of_the_machine_it_is_asked_for_on(on_a_pi_4):
    auto, named = bitsynth.get_kernel("auto", 2, 1), bitsynth.get_kernel("neon", 2, 1, cpu="a72")
    assert (auto.name, auto.entry.method) == (named.name, "pairs")
    assert bitsynth.get_kernel("auto", 8, 1).name == bitsynth.get_kernel("neon", 8, 1).name
    assert bitsynth.get_kernel("auto", 2, 1, sketch="paper").spec.isa == "neon"


def test_a_processor_that_is_named_counts_more_than_the_one_here(on_a_pi_4):
    assert bitsynth.get_kernel("auto", 2, 1, cpu="a53").entry.kernel.order == "a53"
    for cpu, word in (("zen4", "unknown cpu 'zen4'"), (["a53"], "must be the name of a processor")):
        with pytest.raises(SpecError, match=word):
            bitsynth.get_kernel("auto", 2, 1, cpu=cpu)  # type: ignore[arg-type]
