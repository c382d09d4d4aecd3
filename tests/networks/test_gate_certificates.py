"""Hard swish behind sums: the checker looks at every sum, and refuses whatever is changed by one."""

import copy

import numpy as np
import pytest
from support.certificate_networks import changed, layer
from support.certificates import certified, failure

from bitsynth.network.certificate import checker


def swished(rng):
    """A layer with hard swish between its batch norm and its quantizer, whose limits are reached."""
    return layer(rng, between=lambda x, edge: x.add("hard_swish", edge, alpha=1 / 6), low=0, high=12)


@pytest.fixture(scope="module")
def found():
    return certified(swished(np.random.default_rng(15)))


def test_a_gate_is_claimed_and_holds(found):
    (step,) = found["steps"]
    assert (step["unclaimed"], step["claims"][0]["by"]) == ("", "gate")
    assert failure(found) == ""


def more(array):
    array = array.copy()
    array.flat[0] += 0.25 if array.dtype.kind == "f" else 1
    return array


@pytest.mark.parametrize("k", range(2))
@pytest.mark.parametrize("name", ["scale", "bias", "gate"])
def test_a_factor_or_summand_of_c_that_is_another_is_refused(found, name, k):
    forged = changed(
        found, step=0, path=("claims", 0, name), value=lambda x: more(x) if k == 0 else more(x[::-1])[::-1]
    )
    assert "chain and C's formula differ" in failure(forged)


@pytest.mark.parametrize("name", ["low", "high", "zero"])
@pytest.mark.parametrize("by", [1, -1])
def test_a_limit_or_a_zero_that_is_another_is_refused(found, name, by):
    forged = changed(found, step=0, path=("claims", 0, name), value=lambda x: x + by)
    assert failure(forged)


def test_every_constant_and_operation_of_the_chain_counts(found):
    for name in found["steps"][0]["constants"]:
        assert failure(changed(found, step=0, path=("constants", name), value=more)), name
    others = {"min": "max", "max": "min", "add": "sub", "sub": "add", "mul": "add", "div": "mul"}
    small = {name for name, x in found["steps"][0]["constants"].items() if (abs(checker.array(x)) < 1e-4).all()}
    kept = [k for k, op in enumerate(found["steps"][0]["chain"]) if op["op"] in ("add", "sub") and op["of"][1] in small]
    assert len(kept) < 3  # epsilon, and zeros
    for k in set(range(len(found["steps"][0]["chain"]))) - set(kept):
        forged = copy.deepcopy(found)
        op = forged["steps"][0]["chain"][k]
        op["op"] = others.get(op["op"], "ceil")
        assert failure(forged), op


def test_the_range_and_the_edge_count(found):
    for path in (("sums", "low"), ("sums", "high"), ("sums", "bias")):
        assert failure(changed(found, step=0, path=path, value=more)), path


def test_no_gate_is_a_line(found):
    """The lemma of lines, which looks at the ends of intervals alone, does not hold of a chain that turns back."""
    forged = copy.deepcopy(found)
    forged["steps"][0]["claims"][0]["by"] = "rescale"
    assert failure(forged)


def test_a_sum_in_the_middle_is_looked_at(found):
    """Of a chain that is bent where no end of an interval is."""
    step = found["steps"][0]
    forged = copy.deepcopy(found)
    name, last = step["claims"][0]["is"], forged["steps"][0]["chain"]
    last.append({"op": "sub", "of": ["sum", "middle"], "is": "apart"})
    last.append({"op": "mul", "of": ["apart", "apart"], "is": "far"})
    last.append({"op": "min", "of": ["far", "one"], "is": "elsewhere"})
    last.append({"op": "mul", "of": [name, "elsewhere"], "is": "bent"})
    middle = int(checker.array(step["sums"]["high"])[0]) - 20
    forged["steps"][0]["constants"] |= {"middle": middle, "one": 1}
    forged["steps"][0]["claims"][0]["is"] = "bent"
    assert "chain and C's formula differ" in failure(forged)
