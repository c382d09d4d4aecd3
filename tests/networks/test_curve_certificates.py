"""Sigmoid, tanh and erf behind sums: the checker bounds how far its numbers are off, and refuses what is changed."""

import copy
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.certificate_networks import changed, layer
from support.certificates import certified, failure

from bitsynth.network.certificate import checker
from bitsynth.network.certificate.records import CertificateRecord, record_of
from bitsynth.network.certificate.write import drop_undecided_claims


def swish(x, edge):
    return x.add("mul", edge, x.add("sigmoid", edge))


def gelu(x, edge):
    half, root = (x.constant(np.full((1, 1, 1, 1), n, np.float32)) for n in (0.5, math.sqrt(0.5)))
    inner = x.add("add", x.add("erf", x.add("mul", edge, root)), x.constant(np.ones((1, 1, 1, 1), np.float32)))
    return x.add("mul", x.add("mul", edge, half), inner)


def shrink(x, edge):
    """x - tanh(x), flat around 0."""
    return x.add("sub", edge, x.add("tanh", edge))


def bent(between, rng=None):
    return certified(layer(rng or np.random.default_rng(15), between=between, low=-3, high=12))


@pytest.fixture(scope="module")
def found():
    return bent(swish)


def find_curve(found):
    """The place of the step with a curve."""
    return next(k for k, step in enumerate(found["steps"]) if step["claims"][0]["by"] == "curve")


@pytest.mark.parametrize("between", [swish, gelu, shrink])
@pytest.mark.parametrize("seed", range(3))
def test_curves_are_claimed_and_hold(between, seed):
    found = bent(between, np.random.default_rng(seed))
    assert [step["unclaimed"] for step in found["steps"]] == [""] * len(found["steps"])
    assert {op["op"] for op in found["steps"][find_curve(found)]["chain"]} & {*checker.CURVES}
    assert failure(found) == ""


@pytest.mark.parametrize("between", [swish, shrink])
def test_a_curve_of_the_sums_alone_is_claimed_and_holds(between):
    found = certified(layer(np.random.default_rng(3), between=between, low=-3, high=12, is_normed=False))
    assert [step["unclaimed"] for step in found["steps"]] == [""] * len(found["steps"])
    k = find_curve(found)
    assert failure(found) == ""
    assert failure(changed(found, step=k, path=("claims", 0, "scale"), value=moved(0, 2.5)))


def test_every_array_of_c_counts(found):
    k = find_curve(found)
    claim = found["steps"][k]["claims"][0]
    places = [("scale", 0), ("bias", 0)]
    places += [("turns", int(cell)) for cell in np.flatnonzero(np.isfinite(checker.array(claim["turns"])))[[0, -1]]]
    for name, at in places:
        assert failure(changed(found, step=k, path=("claims", 0, name), value=moved(at, 2.5))), name


def moved(at, by):
    """What makes an array one with another number at a place."""

    def change(array):
        array.flat[at] += by
        return array

    return change


def test_every_code_that_is_reached_counts(found):
    k = find_curve(found)
    refused = [
        failure(changed(found, step=k, path=("claims", 0, "table"), value=moved(at, 1))) != ""
        for at in range(0, checker.array(found["steps"][k]["claims"][0]["table"]).size, 40)
    ]
    assert sum(refused) > len(refused) / 2  # no sum of these channels reaches the others


def test_every_operation_of_the_chain_counts(found):
    k = find_curve(found)
    others = {"min": "max", "max": "min", "add": "sub", "sub": "add", "mul": "add", "div": "mul", "sigmoid": "tanh"}
    kept = []
    for place, op in enumerate(found["steps"][k]["chain"]):
        forged = copy.deepcopy(found)
        forged["steps"][k]["chain"][place]["op"] = others.get(op["op"], "ceil")
        if not failure(forged):
            kept.append(op["op"])
    assert set(kept) <= {"add", "sub"}
    assert len(kept) <= 3  # zero points that are 0, and epsilon


def test_the_function_of_another_reference_is_not_known(found):
    forged = copy.deepcopy(found)
    assert "KeyError" in failure({**forged, "reference": "onnx"})


def test_functions_that_stay_near_a_tie_have_no_curve():
    """Half of tanh of large sums is 1/2 but for less than floats tell; open parts are not divided for ever."""

    def half(x, edge):
        return x.add("tanh", x.add("mul", edge, x.constant(np.full((1, 1, 1, 1), 64, np.float32))))

    found = certified(layer(np.random.default_rng(15), between=half, low=-3, high=3, scale=2.0))
    assert not [claim for step in found["steps"] for claim in step["claims"] if claim["by"] == "curve"]
    assert failure(found) == ""


def test_what_the_checker_cannot_tell_is_not_claimed(found):
    k = find_curve(found)
    kept, result = (
        record_of(x, CertificateRecord)
        for x in (found, changed(found, step=k, path=("claims", 0, "bias"), value=lambda x: x + 0.5))
    )
    assert drop_undecided_claims(kept.steps[k], kept.buffers, kept.edges).claims
    left = drop_undecided_claims(result.steps[k], kept.buffers, kept.edges)
    assert left.claims == []
    assert "undecided" in left.unclaimed


exact = {"sigmoid": lambda x: 1 / (1 + math.exp(-x)), "tanh": math.tanh, "erf": math.erf}


@given(st.sampled_from(sorted(exact)), st.floats(-40, 40), st.floats(0, 1))
def test_bounds_hold_wherever_the_number_may_be(name, x, off):
    """Of numbers off by so much, at both ends; of fractions likewise."""
    chain = [{"op": name, "of": ["sum"], "is": "y"}]
    for each in (np.float64(x), Fraction(x)):
        kind = object if isinstance(each, Fraction) else float
        given = {"sum": (np.array([[each]], kind), 1.0, np.array([[off if kind is float else Fraction(off)]], kind))}
        y, up, far = checker.evaluate(chain, given, True)["y"]
        assert up == 1.0
        for end in (x - off, x, x + off):
            assert abs(float(y[0, 0]) - exact[name](end)) <= float(far[0, 0])


def test_functions_are_exact_at_0():
    for name, value in (("sigmoid", 0.5), ("tanh", 0), ("erf", 0)):
        for zero in (np.zeros((1, 1)), np.array([[Fraction(0)]])):
            y, _, off = checker.evaluate(
                [{"op": name, "of": ["sum"], "is": "y"}], {"sum": (zero, 1.0, 0 * zero)}, True
            )["y"]
            assert (y == value).all()
            assert (off == 0).all()
