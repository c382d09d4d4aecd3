"""The table that Python shares with the C runtime, compared with the headers; the board's job, with its reader."""

import re
from pathlib import Path

import numpy as np
import pytest

from bitsynth import device, runtime
from bitsynth.device import job
from bitsynth.emit.runtime_abi import ARRAYS, ENUMS, NUMBERS, SHAPE, CEnum, c_value, describe, shape_of

RUNTIME = Path(runtime.__file__).parent
BOARD = Path(device.__file__).parent / "board"
HEADER = (RUNTIME / "bs_layer.h").read_text(encoding="utf-8")


def plain(text):
    """C without its comments and line breaks."""
    return " ".join(re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).split())


def body(text, what):
    """What stands between the braces of `struct NAME` or `enum NAME`."""
    (found,) = re.findall(rf"\b{what} {{(.*?)}}", plain(text))
    return found


def enumerators(text, ctype):
    """Names by numbers, which are counted: none is given."""
    names = [name.strip() for name in body(text, ctype).split(",")]
    assert all(name.isidentifier() for name in names)
    return dict(enumerate(names))


def fields(text, struct):
    """Name and type of each field, in order; a pointer's type ends with *."""
    items = []
    for declaration in filter(None, map(str.strip, body(text, f"struct {struct}").split(";"))):
        first, *others = declaration.split(",")
        ctype, first = re.fullmatch(r"(.*?[ *])(\w+(?:\[\d*\])?)", first).groups()
        pointers = "*" * ctype.count("*")
        base = ctype.replace("*", "").strip()
        names = [f"{pointers}{first}", *map(str.strip, others)]
        items += [(name.lstrip("* "), base + " *" * name.count("*")) for name in names]
    return items


def mismatches(header):
    """What the table has otherwise than the header."""
    wrong = [e.ctype for e in ENUMS.values() if enumerators(header, e.ctype) != dict(enumerate(e.enumerators.values()))]
    arrays = {(name, f"const {ctype} *") for name, ctype in ARRAYS}
    kernels = {("kernel", "const struct bs_kernel *"), ("depthwise", "const struct bs_depthwise *")}
    programs = {(name, "const struct bs_epilogue *") for name in ("program", "residual")}
    ours = {*NUMBERS, *arrays, *kernels, *programs}
    if ours ^ set(fields(header, "bs_layer")):
        wrong.append("struct bs_layer")
    if fields(header, "bs_shape") != [(name, "size_t") for name in SHAPE]:
        wrong.append("struct bs_shape")
    return wrong


def test_the_table_is_the_headers():
    assert mismatches(HEADER) == []


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("BS_NHWC, BS_NCHW", "BS_NCHW, BS_NHWC", "enum bs_layout"),
        ("BS_INDIRECT, BS_IM2COL", "BS_IM2COL, BS_INDIRECT", "enum bs_conv_algorithm"),
        ("size_t act_bits;", "", "struct bs_layer"),
        ("size_t act_bits;", "size_t act_bits, zero_point;", "struct bs_layer"),
        ("const int32_t *padding;", "const int64_t *padding;", "struct bs_layer"),
        ("batch, height, width", "batch, width, height", "struct bs_shape"),
    ],
)
def test_another_header_is_told_apart(old, new, what):
    assert HEADER.count(old) == 1
    assert what in mismatches(HEADER.replace(old, new))


def test_a_description_has_every_number_in_its_place():
    numbers = {name: ENUMS[name].words[-1] if name in ENUMS else i for i, (name, _) in enumerate(NUMBERS)}
    description = describe(numbers, {"padding": 64})
    sizes = [len(ENUMS[name].words) - 1 if name in ENUMS else i for i, (name, _) in enumerate(NUMBERS)]
    starts = [64 if name == "padding" else -1 for name, _ in ARRAYS]
    assert description == [*sizes, *starts, 0, 0, 0]
    assert shape_of(np.array([*description[:-3], 7, 8, 9], np.int64)) == (7, 8, 9)


def test_what_is_not_said_is_0_or_the_first_word():
    assert describe({}, {})[: len(NUMBERS)] == [0] * len(NUMBERS)


def test_an_enumerator_is_printed_by_its_name():
    values = [c_value("conv_algorithm", "im2col"), c_value("in_layout", "packed"), c_value("groups", 3)]
    assert values == ["BS_IM2COL", "BS_PACKED", "3"]


def test_a_word_that_is_none():
    with pytest.raises(ValueError, match="not in tuple"):
        CEnum("enum x", {"one": "X_ONE"}).number("two")


def test_the_boards_job_is_as_its_reader_has_it():
    reader = (BOARD / "bs_board.c").read_text(encoding="utf-8")
    assert [name for name, _ in fields(reader, "head")] == [job.HEAD[0] + "[8]", *job.HEAD[1:]]
    assert [name for name, _ in fields(reader, "row")] == [*job.ROW, "shape", "numbers[]"]
    assert {ctype for _, ctype in fields(reader, "row")} == {"int64_t", "struct bs_fp32"}
    sizes = fields((BOARD / "bs_fp32.h").read_text(encoding="utf-8"), "bs_fp32")
    assert sizes == [(name, "int64_t") for name in job.FP32]
    assert f'"{job.MAGIC[:-1].decode()}", {len(job.MAGIC)}' in reader
    assert f"NO_THREADS = {job.NO_THREADS}" in plain(reader)
