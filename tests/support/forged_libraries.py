"""Forged libraries of one network: its certificate, or its C, says something else, and all digests are made anew.

The network is `certificate_networks.zoo`, lowered: step 0 makes codes of the caller's floats, steps 1 and 2 are layers
with thresholds, 3 a table of two tensors, 4 a table of sums, 5 a last layer, 6 gives its sums as floats.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bitsynth.network.certificate import checker, digest
from support.certificates import encode_json_array

Certificate = dict[str, Any]
START, FIRST, SECOND, JOINED, TABLED, LAST = range(6)
_EMPTY = {"bits": 1, "low": 0, "step": 1, "shape": [0], "data": ""}


class Library:
    """A folder with a library called net, to be forged.

    Attributes:
        folder: Where it is.
        given: Its certificate as it is forged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "net.certificate.json"
        self.given: Certificate = json.loads(self.path.read_text())
        self._texts: dict[str, bytes] = {}
        self._genuine = copy.deepcopy(self.given)

    def step(self, k: int) -> Any:
        """Return a step of the certificate."""
        return self.given["steps"][k]

    def made(self, k: int) -> str:
        """Return the buffer that a step fills; its edge has the same name."""
        name: str = self._genuine["steps"][k]["outputs"][0]
        assert self._genuine["buffers"][name]["edge"] == name
        return name

    def numbers(self, holder: dict[str, Any], key: str, change: Callable[[Any], Any]) -> None:
        """Replace an array or number by what `change` makes of a copy of it."""
        holder[key] = encode_json_array(change(checker.array(holder[key]).copy()))

    def edit(self, name: str, old: str, new: str) -> None:
        """Change a file, one that is there, and list its digest."""
        text = (self.folder / name).read_text()
        assert old in text, f"{name} has no {old}"
        self.write(name, text.replace(old, new, 1))
        self.given["files"][name] = hashlib.sha256((self.folder / name).read_bytes()).hexdigest()

    def write(self, name: str, text: str) -> None:
        """Write a file, which no digest is listed of."""
        path = self.folder / name
        self._texts.setdefault(name, path.read_bytes() if path.exists() else b"")
        path.write_text(text)

    def seal(self) -> None:
        """Write the certificate with a digest made anew."""
        self.path.write_text(json.dumps({**self.given, "digest": digest(self.given)}))

    def restore(self) -> None:
        """Restore the folder."""
        for name, raw in self._texts.items():
            (self.folder / name).write_bytes(raw) if raw else (self.folder / name).unlink()
        self._texts.clear()
        self.given = copy.deepcopy(self._genuine)
        self.seal()


Forgery = Callable[[Library], None]
FORGERIES: dict[str, Forgery] = {}


def forgery(make: Forgery) -> Forgery:
    """Add a function to `FORGERIES` by its name."""
    FORGERIES[make.__name__.replace("_", " ")] = make
    return make


# The C.


@forgery
def a_file_is_edited_and_no_digest_made_anew(x: Library) -> None:
    x.write("net_weights.c", (x.folder / "net_weights.c").read_text().replace("0x0", "0x1", 1))


@forgery
def another_place_in_the_arena_in_c(x: Library) -> None:
    x.edit("net.c", "(void *)(c->arena + 128)", "(void *)(c->arena + 64)")


@forgery
def another_weight_in_c(x: Library) -> None:
    text = (x.folder / "net_weights.c").read_text()
    at = text.index("0x", len(text) // 2)
    x.edit("net_weights.c", text[at : at + 18], f"0x{int(text[at : at + 18], 16) ^ 1:016x}")


@forgery
def another_instruction_in_a_kernel(x: Library) -> None:
    name = next(
        n for n in x.given["files"] if n.startswith("bs_mm") and "_mm256_add_epi32" in (x.folder / n).read_text()
    )
    x.edit(name, "_mm256_add_epi32", "_mm256_sub_epi32")


@forgery
def another_instruction_in_an_epilogue(x: Library) -> None:
    x.edit("bs_thresholds3_s32_flip_bytes_avx2_epilogue.c", "_mm256_cmpgt_epi32", "_mm256_cmpeq_epi32")


@forgery
def another_runtime(x: Library) -> None:
    x.edit("bs_layer.c", "{", "{ ")


@forgery
def another_flag_of_the_build(x: Library) -> None:
    x.edit("CMakeLists.txt", "Release", "Debug")


@forgery
def a_step_is_left_out_of_c(x: Library) -> None:
    x.edit("net.c", "    step_2,\n", "    step_1,\n")


@forgery
def weights_that_are_not_listed_and_edited(x: Library) -> None:
    another_weight_in_c(x)
    del x.given["files"]["net_weights.c"]


@forgery
def a_header_that_is_not_listed(x: Library) -> None:
    x.write("string.h", "#define memcpy(a, b, c) (a)\n")


@forgery
def a_header_more(x: Library) -> None:
    x.write("string.h", "#define memcpy(a, b, c) (a)\n")
    x.given["files"]["string.h"] = hashlib.sha256((x.folder / "string.h").read_bytes()).hexdigest()


@forgery
def a_checker_that_always_agrees(x: Library) -> None:
    x.edit("net_check.py", "import base64", "print('all that is claimed holds'); raise SystemExit\nimport base64")


@forgery
def a_file_of_another_folder(x: Library) -> None:
    x.given["files"]["../x"] = "0"


@forgery
def no_files(x: Library) -> None:
    x.given["files"] = {}


@forgery
def no_self_test(x: Library) -> None:
    del x.given["files"]["net_selftest.c"]


# What C computes.


@forgery
def another_threshold(x: Library) -> None:
    x.numbers(x.step(SECOND)["claims"][0], "values", lambda v: v + (np.arange(v.size).reshape(v.shape) == 0))


@forgery
def thresholds_of_a_channel_far_off(x: Library) -> None:
    x.numbers(x.step(SECOND)["claims"][0], "values", lambda v: v + 40 * (np.arange(len(v)) == 0)[:, None])


@forgery
def thresholds_of_one_channel_for_all(x: Library) -> None:
    x.numbers(x.step(FIRST)["claims"][0], "values", lambda v: np.repeat(v[:1], len(v), 0))


@forgery
def two_claims_of_one_result(x: Library) -> None:
    x.step(SECOND)["claims"] *= 2


@forgery
def nothing_is_claimed(x: Library) -> None:
    for step in x.given["steps"]:
        step.update(claims=[], unclaimed="it is late")


@forgery
def another_value_of_the_chain(x: Library) -> None:
    x.step(FIRST)["claims"][0]["is"] = x.step(FIRST)["chain"][-2]["is"]


@forgery
def a_table_of_another_result(x: Library) -> None:
    x.numbers(x.step(JOINED)["claims"][0], "table", lambda t: t[:, ::-1])


# Ranges.


def _range(x: Library, edge: str, low: int, high: int) -> None:
    x.given["edges"][edge].update(low=low, high=high)


@forgery
def a_result_whose_range_is_reversed(x: Library) -> None:
    _range(x, x.made(FIRST), 3, 0)


@forgery
def an_input_without_numbers(x: Library) -> None:
    _range(x, "x", 5, 4)
    x.step(START)["sums"].update(low=5, high=4)
    x.numbers(x.step(START)["claims"][0], "values", lambda v: np.repeat(v[:, :1], v.shape[1], 1))


@forgery
def an_input_that_is_0_alone(x: Library) -> None:
    _range(x, "x", 0, 0)
    x.step(START)["sums"].update(low=0, high=0)
    x.numbers(x.step(START)["claims"][0], "values", lambda v: np.where(np.arange(v.shape[1]) > 0, v // 2, v))


@forgery
def an_input_from_the_greatest_to_the_least_float(x: Library) -> None:
    _range(x, "x", *checker.PLACES[::-1])
    x.step(START)["sums"].update(low=checker.PLACES[1], high=checker.PLACES[0])


@forgery
def a_second_tensor_without_integers(x: Library) -> None:
    _range(x, x.made(START), 3, 0)
    x.numbers(x.step(JOINED)["claims"][0], "table", np.zeros_like)


@forgery
def a_range_of_no_elements(x: Library) -> None:
    x.given["edges"][x.made(FIRST)].update(low=_EMPTY, high=_EMPTY)


# Weights and shapes.


def _weights(x: Library, k: int, weights: Any) -> None:
    """Other weights, the range of whose sums is computed from them."""
    sums = x.step(k)["sums"]
    sums["weights"] = encode_json_array(weights)
    del sums["low"], sums["high"]


@forgery
def weights_of_no_inputs(x: Library) -> None:
    _weights(x, FIRST, np.zeros((1, 2, 0, 9), int))


@forgery
def weights_of_no_channels(x: Library) -> None:
    _weights(x, FIRST, np.zeros((1, 0, 2, 9), int))


@forgery
def weights_that_are_all_0(x: Library) -> None:
    _weights(x, FIRST, np.zeros((1, 2, 2, 9), int))


@forgery
def weights_that_are_all_0_with_thresholds_to_match(x: Library) -> None:
    """Sums are the bias alone then: thresholds beyond it may be any."""
    _weights(x, FIRST, np.zeros((1, 2, 2, 9), int))
    x.numbers(x.step(FIRST)["claims"][0], "values", lambda v: np.where(v > 0, v + 5, v))


@forgery
def one_row_of_all_channels(x: Library) -> None:
    step = x.step(FIRST)
    _weights(x, FIRST, checker.array(step["sums"]["weights"])[:, :1])
    for holder in (step["sums"], step["constants"], step["claims"][0]):
        for key, value in holder.items():
            if isinstance(value, dict) and value.get("shape", [0])[:1] == [2]:
                x.numbers(holder, key, lambda v: v[:1])


@forgery
def a_shape_of_more_than_memory(x: Library) -> None:
    x.step(FIRST)["constants"]["k0"] = {**_EMPTY, "shape": [2**62]}


@forgery
def a_shape_below_0(x: Library) -> None:
    x.step(FIRST)["constants"]["k0"]["shape"] = [-1, 1]


# Chains.


def _never_reached(x: Library) -> None:
    x.numbers(x.step(SECOND)["claims"][0], "values", lambda v: np.full_like(v, 2**30))


@forgery
def a_constant_that_is_no_number(x: Library) -> None:
    x.step(SECOND)["constants"]["k0"] = encode_json_array(np.array([[np.nan]]))


@forgery
def a_constant_that_is_infinite(x: Library) -> None:
    chain, constants = x.step(SECOND)["chain"], x.step(SECOND)["constants"]
    name = next(op["of"][1] for op in chain if op["op"] in ("div", "mul") and op["of"][1] in constants)
    constants[name] = encode_json_array(np.array([[np.inf]]))
    _never_reached(x)


@forgery
def an_operation_that_hides_a_later_one(x: Library) -> None:
    step = x.step(SECOND)
    step["chain"].insert(0, {"op": "max", "of": ["scale0", "scale0"], "is": step["claims"][0]["is"]})
    _never_reached(x)


@forgery
def a_constant_called_as_the_result(x: Library) -> None:
    step = x.step(SECOND)
    step["constants"][step["claims"][0]["is"]] = encode_json_array(np.zeros((2, 1)))
    _never_reached(x)


@forgery
def a_constant_called_as_the_scale(x: Library) -> None:
    x.step(SECOND)["constants"]["scale0"] = 1


@forgery
def another_reference(x: Library) -> None:
    x.given["reference"] = "onnxruntime"


# Order and memory.


@forgery
def steps_in_another_order(x: Library) -> None:
    x.given["steps"][1:3] = x.given["steps"][2:0:-1]


@forgery
def no_steps(x: Library) -> None:
    x.given.update(steps=[], buffers={}, arena={"bytes": 0, "bound": 0}, inputs=[], outputs=[], kernels=[])


@forgery
def buffers_that_overlap(x: Library) -> None:
    x.given["buffers"][x.made(FIRST)]["offset"] = 0


@forgery
def buffers_that_overlap_and_have_no_bytes(x: Library) -> None:
    x.given["buffers"][x.made(FIRST)].update(offset=0, bytes=0)
    x.given["edges"][x.made(FIRST)]["shape"] = [0]


@forgery
def buffers_that_overlap_and_have_no_bits(x: Library) -> None:
    x.given["buffers"][x.made(FIRST)].update(offset=0, bytes=0, bits=0)


@forgery
def buffers_that_overlap_and_are_said_to_be_outputs(x: Library) -> None:
    x.given["outputs"].append(x.made(FIRST))
    x.given["buffers"][x.made(FIRST)]["offset"] = 0


@forgery
def a_smaller_arena(x: Library) -> None:
    x.given["arena"]["bytes"] = 1


@forgery
def codes_whose_offset_is_no_integer(x: Library) -> None:
    x.given["buffers"][x.made(START)]["operand"] = [1, 0.0]


@forgery
def a_step_that_reads_another_buffer(x: Library) -> None:
    x.step(SECOND)["inputs"] = [x.made(START)]
    x.given["buffers"][x.made(FIRST)]["life"] = [1, 1]


def _alias(x: Library, times: float, **more: Any) -> None:
    """A second name of step 1's result, on another scale, which step 2 reads."""
    edges, buffers = x.given["edges"], x.given["buffers"]
    edges["alias"] = copy.deepcopy(edges[x.made(FIRST)])
    x.numbers(edges["alias"], "scale", lambda scale: scale * times)
    buffers["alias"] = {**buffers[x.made(FIRST)], "edge": "alias", "alias": x.made(FIRST), **more}
    x.step(SECOND)["inputs"] = ["alias"]


@forgery
def an_alias_with_twice_the_scale(x: Library) -> None:
    _alias(x, 2)


@forgery
def an_alias_with_twice_the_scale_and_thresholds_to_match(x: Library) -> None:
    """Sums stand for twice the numbers: half as many reach a level."""
    _alias(x, 2)
    step = x.step(SECOND)
    chain = checker.make_chain(step, [x.given["edges"]["alias"], x.given["edges"][x.made(SECOND)]], True)
    sums = np.arange(-200, 201, dtype=float)[None]
    codes = chain.values(sums, np.zeros((1, 1)))[step["claims"][0]["is"]].numbers
    codes = np.broadcast_to(codes, (2, codes.shape[1]))
    rising = checker.array(step["claims"][0]["rising"]).ravel()
    levels = np.full((2, 3), 2**30)
    for channel, level in np.ndindex(2, 3):
        above = np.flatnonzero(codes[channel] > level)
        if above.size:
            levels[channel, level] = sums[0, above[0]] - 1 if rising[channel] else sums[0, above[-1]] + 1
    step["claims"][0]["values"] = encode_json_array(levels)


@forgery
def an_alias_by_a_view_that_c_does_not_know(x: Library) -> None:
    """It is said to be a node of the file: what C makes of sums is another formula then."""
    _alias(x, 2, through={"nodes": [["v", "view"]], "unclaimed": "", "claims": []})


# Kernels.


def _kernels(x: Library, kind: str) -> list[Any]:
    return [kernel for kernel in x.given["kernels"] if kernel["kind"] == kind]


@forgery
def no_kernels(x: Library) -> None:
    x.given["kernels"] = []


@forgery
def no_kernels_of_any_step(x: Library) -> None:
    x.given["kernels"] = []
    for step in x.given["steps"]:
        step["kernels"] = []


@forgery
def digests_of_kernels_exchanged(x: Library) -> None:
    one, other, *_ = _kernels(x, "elementwise")
    one["digest"], other["digest"] = other["digest"], one["digest"]


@forgery
def an_epilogue_of_other_widths(x: Library) -> None:
    one, other, *_ = _kernels(x, "elementwise")
    assert x.step(FIRST)["kernels"][1] == one["name"]
    x.step(FIRST)["kernels"][1] = other["name"]


@forgery
def a_kernel_of_another_kind(x: Library) -> None:
    products, (depthwise,) = (_kernels(x, kind) for kind in ("product", "depthwise"))
    assert x.step(FIRST)["kernels"][0] in [product["name"] for product in products]
    x.step(FIRST)["kernels"][0] = depthwise["name"]


@forgery
def kernels_that_are_not_stored(x: Library) -> None:
    for kernel in x.given["kernels"]:
        kernel["digest"] = "0" * 64


@forgery
def a_layer_of_other_widths(x: Library) -> None:
    x.step(LAST)["c"]["spec"]["act"]["bits"] = 3


@forgery
def a_layer_of_another_window(x: Library) -> None:
    x.step(FIRST)["c"]["spec"]["geometry"]["padding"] = [0, 0, 2, 2]


@forgery
def glue_with_another_table(x: Library) -> None:
    table = x.step(JOINED)["c"]["glue"]["table"]
    x.numbers(table, "array", lambda t: t[::-1])
