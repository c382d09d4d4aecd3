"""Certificates whose claims do not hold, each in a way that leaves one kind of look at sums, numbers or memory out."""

import copy

import numpy as np
import pytest
from support.certificate_networks import changed, sliced, zoo
from support.certificates import certified, encode_json_array, failure

from bitsynth import SpecError
from bitsynth.graph.builder import GraphBuilder
from bitsynth.graph.types import Integers
from bitsynth.network.certificate import checker
from bitsynth.network.certificate.arrays import EncodedArray, decode_array, encode_array
from bitsynth.network.certificate.recipe import rebuild
from bitsynth.network.certificate.records import record_of, to_dict


@pytest.fixture(scope="module")
def found():
    return certified(zoo(np.random.default_rng(15)))


def one_code(given, step):
    """Every entry of a step's table is the first."""
    return changed(given, step=step, path=("claims", 0, "table"), value=lambda x: np.repeat(x[:, :1], x.shape[1], 1))


def unclaimed(result, step):
    """Nothing is claimed of a step, so that its results may be anything in their range."""
    result["steps"][step].update(claims=[], unclaimed="it is tested")


def read_by(result, step, k=0):
    """The buffer that a step reads."""
    return result["buffers"][result["steps"][step]["inputs"][k]]


@pytest.mark.parametrize("operand", [[-1, 0], [-1, 7], [1 << 9, 0], [1, 1 << 40]])
def test_codes_rise_with_what_they_stand_for(found, operand):
    """Or a range that runs upward has no element at all."""
    result = one_code(found, 3)
    assert failure(result)
    unclaimed(result, 2)
    read_by(result, 3)["operand"] = operand
    assert failure(result)


def squared():
    """Real numbers of integers that turn back."""
    builder = GraphBuilder("squared", "exact")
    x = builder.input("x", (1, 4), "float32", Integers.between(-3, 3, 0.5))
    edge = builder.add("matmul", x, builder.constant(np.eye(4, dtype=np.float32), "w"))
    return builder.build((builder.add("power", edge, exponent=2.0, name="y"),))


def test_real_numbers_are_looked_at_between_ends_too():
    given = certified(squared())
    assert "numbers" in [s["claims"][0]["by"] for s in given["steps"]]
    assert failure(given) == ""
    narrow = copy.deepcopy(given)
    narrow["edges"]["y"].update(
        low=encode_json_array(np.full((1, 1), 2.25)), high=encode_json_array(np.full((1, 1), 2.25))
    )
    assert "leave their range" in failure(narrow)


def test_sums_do_not_wrap_around(found):
    """Four weights of 2**62 more are, in int64, none."""
    forged = changed(
        found, step=1, path=("sums", "weights"), value=lambda w: w + (1 << 62) * (np.arange(w.shape[3]) < 4)
    )
    for end in ("low", "high"):
        del forged["steps"][1]["sums"][end]
    assert "sums leave int64" in failure(forged)


def test_places_in_the_arena_do_not_wrap_around(found):
    forged = copy.deepcopy(found)
    name = next(name for name, b in forged["buffers"].items() if "offset" in b)
    forged["buffers"][name].update(offset=(1 << 63) - 64, bytes=128)
    assert "outside of the arena" in failure(forged)


def test_places_in_tables_do_not_wrap_around(found):
    assert failure(changed(found, step=3, path=("claims", 0, "first"), value=lambda n: n - (1 << 32)))


def test_numbers_of_a_chain_do_not_differ_along_sums(found):
    """A column of a constant for each sum that is looked at would be a chain for each."""
    points = 2 + 2 * checker.array(found["steps"][1]["claims"][0]["values"]).shape[1]
    name = found["steps"][1]["chain"][-1]["of"][1]
    forged = changed(found, step=1, path=("constants", name), value=lambda x: np.repeat(x, points, 1))
    assert failure(forged)


@pytest.mark.parametrize("shape", [(1, 7), (7, 1), (2, 1, 1, 1, 1), (0,)])
@pytest.mark.parametrize("key", ["low", "high", "scale", "zero"])
def test_numbers_of_an_edge_broadcast_to_its_shape(found, key, shape):
    forged = copy.deepcopy(found)
    edge = forged["edges"]["zoo.quantize_1"]
    edge[key] = encode_json_array(np.broadcast_to(checker.array(edge[key]), shape))
    assert failure(forged)


@pytest.mark.parametrize("kind", ["<c8", "<M8[s]", "<u8", "S8", "V8"])
def test_arrays_are_integers_with_a_sign_or_floats(kind):
    """Others would become numbers with a warning of numpy's, or lose their first bit."""
    with pytest.raises(ValueError, match="none of integers with a sign or floats"):
        checker.array({"type": kind, "shape": [1], "data": "AAAAAAAA+H8="})


@pytest.mark.parametrize("kind", [np.float32, np.int64], ids=["plain", "packed"])
def test_arrays_have_no_further_fields(kind):
    """The checker, the records and recipes read the same fields, and none of them takes others."""
    fields = to_dict(encode_array(np.arange(3).astype(kind)))
    assert checker.array(fields).tolist() == [0, 1, 2] == decode_array(record_of(fields, EncodedArray)).tolist()
    recipe = {"array": fields, "dtype": "int64"}
    assert rebuild(recipe).tolist() == [0, 1, 2]
    more = {**fields, "more": 1}
    with pytest.raises(ValueError, match="no array has the fields"):
        checker.array(more)
    with pytest.raises(SpecError, match="unknown field `more`"):
        record_of(more, EncodedArray)
    for changed_recipe in ({"array": more, "dtype": "int64"}, {**recipe, "more": 1}):
        with pytest.raises((SpecError, ValueError), match=r"array .*has the fields"):
            rebuild(changed_recipe)


def test_ranges_do_not_differ_along_sums(found):
    """The range of the weights' inputs is one for all columns: narrowed in one column it differs from the maker's
    range."""
    forged = copy.deepcopy(found)
    high = np.full((1, 8), 3)
    high[0, 0] = 2
    forged["edges"]["zoo.quantize_1"].update(low=encode_json_array(np.zeros((1, 8), int)), high=encode_json_array(high))
    assert failure(forged)


def test_something_is_looked_at():
    assert failure(
        changed(certified(sliced(np.random.default_rng(15))), step=1, path=("sums", "rows"), value=lambda _: [])
    )


def test_a_step_reads_nothing_that_is_in_no_formula(found):
    forged = copy.deepcopy(found)
    forged["steps"][3]["inputs"] += forged["steps"][1]["inputs"][:1] * (3 - len(forged["steps"][3]["inputs"]))
    assert failure(forged)


def test_memory_by_another_name_has_the_same_range(found):
    forged = copy.deepcopy(found)
    (name,) = forged["steps"][2]["inputs"]
    forged["buffers"]["again"] = {**forged["buffers"][name], "alias": name, "edge": "narrow"}
    forged["edges"]["narrow"] = dict(forged["edges"][name])
    forged["steps"][2]["inputs"] = ["again"]
    assert failure(forged) == ""
    forged["edges"]["narrow"]["high"] = 1
    for end in ("low", "high"):
        del forged["steps"][2]["sums"][end]
    assert "again is of other integers" in failure(forged)
