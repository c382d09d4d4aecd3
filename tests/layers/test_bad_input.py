"""What a layer refuses, each with its error; what looks odd and works."""

import re
import subprocess
import sys
import threading
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.layer_cases import Case, machine, usable, words

from bitsynth import compile_all
from bitsynth.errors import NoKernel, SpecError
from bitsynth.layers import Conv2d, Dense, Requantize, Scale, Thresholds, pack_words, packed_words, unpack_words
from bitsynth.layers import layer as layer_module
from bitsynth.layers.library import library as compile_library
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.spec.options import MAX_THREADS

M = machine("avx2", "lookup", 2, 2, "ternary", "signed")
ISA = {"isa": "avx2", "act_encoding": "ternary", "weight_encoding": "signed"}
SCHEDULE = LayerSchedule("avx2", "lookup", 64, gather="direct")
"""Of one kernel, so that one is compiled; None for the default."""
BITS = {"act_bits": 2, "w_bits": 2}
W = np.ones((4, 3, 3, 3), np.int8)
X = np.ones((2, 5, 6, 3), np.int8)
CODES = np.ones((2, 5, 6, 3), np.uint8)
RNG = np.random.default_rng(1)
LEVELS = np.zeros((4, 1), int)


def nested(depth):
    return [nested(depth - 1)] if depth else 1


def conv(weight=W, **options):
    return Conv2d(weight, **{**BITS, **ISA, "schedule": SCHEDULE, **options})


def dense(weight=W[..., 0, 0], **options):
    return Dense(weight, **{**BITS, **ISA, "schedule": SCHEDULE, **options})


@pytest.fixture(autouse=True, scope="module")
def compiled(skip_isa):
    usable(M, skip_isa)


REFUSED = {
    "weight shape": (lambda: conv(W[0]), "want a weight (OC, IC / groups, KH, KW)"),
    "weight without channels": (lambda: conv(W[:, :0]), "a weight without elements"),
    "weight without window": (lambda: conv(W[..., :0]), "a weight without elements"),
    "weight values": (lambda: conv(W * 2), "is 2; 2-bit signed holds -2 to 1"),
    "weight type": (lambda: conv(W * 1j), "weight must be an integer array"),
    "weight not whole": (lambda: conv(W * [1, 1, 0.5]), "weight[0, 0, 0, 2] is 0.5, not a whole number"),
    "weight infinite": (lambda: conv(W * np.inf), "weight[0, 0, 0, 0] is inf, not a whole number"),
    "weight NaN": (lambda: dense(W[..., 0, 0] * np.nan), "weight[0, 0] is nan, not a whole number"),
    "weight too great": (lambda: conv(W * 1e300), "weight[0, 0, 0, 0] is 1e+300, not a whole number"),
    "narrow values": (lambda: conv(-2 * W, weight_encoding="narrow"), "is -2; 2-bit narrow holds -1 to 1"),
    "narrow bit": (lambda: conv(w_bits=1, weight_encoding="narrow"), "narrow of 1 bit holds 0 alone"),
    "weight ragged": (lambda: conv([[[[1]], [[1, 1]]]]), "weight is not an array: rows of different lengths"),
    "weight nested deeply": (lambda: conv(nested(99)), "weight is not an array: "),
    "weight masked": (lambda: conv(np.ma.masked_equal(W, 0)), "masked"),
    "groups": (lambda: conv(W, groups=3), "4 output channels cannot be shared by 3 groups"),
    "no groups": (lambda: conv(groups=0), "groups must be"),
    "true groups": (lambda: conv(groups=True), "groups must be"),
    "stride": (lambda: conv(stride=0), "stride must be"),
    "three strides": (lambda: conv(stride=(1, 1, 1)), "stride must be"),
    "padding": (lambda: conv(padding=-1), "padding must be"),
    "padding of an array": (lambda: conv(padding=np.ones(2, int)), "padding must be a whole number"),
    "layout of an array": (lambda: conv(layout=np.ones(2, int), out_layout="NHWC"), "unknown layout"),
    "isa of an array": (lambda: conv(isa=np.ones(2, int), schedule=None), "unknown instruction set"),
    "zero point of flat images": (lambda: dense(flatten=(1, 1, 3), zero_point="0"), "zero_point must be a whole"),
    "great zero point of flat images": (lambda: dense(flatten=(1, 1, 3), zero_point=1 << 80), "zero_point must be"),
    "bias of flat images": (lambda: dense(flatten=(1, 1, 3), bias="0"), "bias must be one number or 4 of them"),
    "no layer to compile": (
        lambda: compile_all([cast(Any, None)]),
        "wants a list of Conv2d and Dense layers, not None",
    ),
    "workers in words": (lambda: compile_all([], workers=cast(Any, "2")), "workers must be a whole number from 1 to"),
    "a layer to compile alone": (lambda: compile_all(cast(Any, 7)), "wants a list of Conv2d and Dense layers, not 7"),
    "padding in words": (lambda: conv(padding="valid"), "padding must be a whole number"),
    "same padding with strides": (lambda: conv(padding="same", stride=2), "padding 'same' wants stride 1, not (2, 2)"),
    "zero point": (lambda: conv(zero_point=0.5), "zero_point must be a whole number"),
    "zero point too great": (lambda: conv(zero_point=1 << 15), "zero_point must be a whole number of at most 32,767"),
    "bias shape": (lambda: conv(bias=[1, 2]), "bias must be one number or 4 of them"),
    "bias float": (lambda: conv(bias=0.5), "bias[] is 0.5, not a whole number"),
    "bias too great": (lambda: conv(bias=1 << 31), "bias has numbers that int32 does not hold"),
    "bias that leaves no room": (
        lambda: conv(bias=[0, 0, 0, (1 << 31) - 1]),
        "add up to 2,147,483,647 may leave int32",
    ),
    "dilation": (lambda: conv(dilation=1.5), "dilation must be"),
    "layout": (lambda: conv(layout="NWHC"), "unknown layout 'NWHC'"),
    "out layout": (lambda: conv(out_layout="CHW"), "unknown layout 'CHW'"),
    "packed sums": (lambda: conv(out_layout="packed"), "only codes can be packed"),
    "packed floats": (lambda: conv(out_layout="packed", epilogue=Scale(1.0)), "only codes can be packed"),
    "isa of a list": (lambda: conv(isa=["avx2"], schedule=None), "unknown instruction set ['avx2']"),
    "isa of a tuple": (lambda: conv(isa=(["avx2"],), schedule=None), "unknown instruction set (['avx2'],)"),
    "isa": (lambda: conv(isa="mmx", schedule=None), "mmx"),
    "act encoding": (lambda: conv(act_encoding="float"), "unknown encoding 'float'"),
    "bits": (lambda: conv(w_bits=9), "bits must be"),
    "threads": (lambda: conv(threads=0), "threads must be"),
    "many threads": (lambda: conv(threads=MAX_THREADS + 1), "threads must be"),
    "half threads": (lambda: conv(threads=1.5), "threads must be"),
    "solve": (lambda: conv(solve="please"), "solve is True, False or a function"),
    "image": (lambda: conv(image=(2, 2), schedule=None), "no room for a window"),
    "image type": (lambda: conv(image="224", schedule=None), "image must be"),
    "schedule method": (lambda: LayerSchedule("avx2", "magic", 64, gather="direct"), "unknown method 'magic'"),
    "schedule gather": (lambda: LayerSchedule("avx2", "lookup", 64, gather="fft"), "unknown gather 'fft'"),
    "schedule band": (lambda: LayerSchedule("avx2", "lookup", 64, gather="direct", band_rows=-1), "band_rows"),
    "schedule unroll": (
        lambda: LayerSchedule("avx2", "lookup", 64, gather="direct", unroll=-1),
        "unroll of a schedule",
    ),
    "schedule unrolled often": (lambda: conv(schedule=msgspec.structs.replace(SCHEDULE, unroll=17)), "0 to 16 times"),
    "schedule bit axis": (
        lambda: LayerSchedule("avx2", "lookup", 64, "direct", bit_axis="no"),
        "unknown bit axis 'no'",
    ),
    "schedule without planes": (
        lambda: conv(schedule=msgspec.structs.replace(SCHEDULE, bit_axis="outer")),
        "can be inner, not 'outer'",
    ),
    "schedule block": (
        lambda: LayerSchedule("avx2", "lookup", 64, gather="direct", block_rows=0.5),  # type: ignore[arg-type]
        "block_rows",
    ),
    "schedule of no kernel": (
        lambda: conv(schedule=LayerSchedule("avx2", "dot", 64, gather="direct")),
        "is not cached",
    ),
    "schedule of another isa": (lambda: conv(schedule=LayerSchedule("mmx", "dot", 64, gather="direct")), "mmx"),
    "schedule in words": (lambda: conv(schedule="fast"), "a schedule is"),
    "epilogue": (lambda: conv(epilogue="relu"), "an epilogue is"),
    "scale NaN": (lambda: conv(epilogue=Scale(np.nan)), "scale has numbers that float32 does not hold"),
    "bias infinite": (lambda: conv(epilogue=Scale(1, np.inf)), "bias has numbers"),
    "scale too great": (lambda: conv(epilogue=Scale(1e300)), "scale has numbers"),
    "scale shape": (lambda: conv(epilogue=Scale([1, 2])), "scale must be one number or 4"),
    "scale in words": (lambda: conv(epilogue=Scale("1")), "scale must be"),
    "scale ragged": (lambda: conv(epilogue=Scale([[1], [1, 2]])), "scale is not an array: rows of different lengths"),
    "scale masked": (lambda: conv(epilogue=Scale(np.ma.masked_equal([1, 2, 3, 4], 2))), "masked"),
    "multiplier float": (lambda: conv(epilogue=Requantize(0.5, 1, 2)), "multiplier must be"),
    "multiplier too great": (lambda: conv(epilogue=Requantize(1 << 31, 1, 2)), "multiplier has numbers"),
    "shift": (lambda: conv(epilogue=Requantize(1, 63, 2)), "shift must be"),
    "requantized bits": (lambda: conv(epilogue=Requantize(1, 1, 9)), "bits must be"),
    "thresholds shape": (lambda: conv(epilogue=Thresholds(LEVELS[None])), "thresholds must be"),
    "thresholds channels": (lambda: conv(epilogue=Thresholds(LEVELS[:3])), "3 channels of thresholds for 4"),
    "thresholds float": (lambda: conv(epilogue=Thresholds(LEVELS * 1.0)), "thresholds must be"),
    "no thresholds": (lambda: conv(epilogue=Thresholds(LEVELS[:, :0])), "thresholds must be"),
    "256 thresholds": (lambda: conv(epilogue=Thresholds(np.zeros((4, 256), int))), "thresholds must be"),
    "thresholds all masked": (lambda: conv(epilogue=Thresholds(np.ma.masked_less(LEVELS, 1))), "4 channels of 0"),
    "input type": (lambda: conv()(X * 1.0), "x must be an integer array"),
    "input values": (lambda: conv()(X * 2), "is 2; 2-bit ternary holds -1 to 1"),
    "input ragged": (lambda: conv()([[[[1]], [[1, 1]]]]), "x is not an array: rows of different lengths"),
    "words ragged": (lambda: conv(layout="packed", out_layout="NHWC")([[1], [1, 1]]), "x is not an array: rows"),
    "input masked": (lambda: conv()(np.ma.masked_equal(X, 0)), "masked"),
    "input axes": (lambda: conv()(X[0]), "want activations (N, H, W, C) with C = 3"),
    "input channels": (lambda: conv()(X[..., :2]), "want activations (N, H, W, C) with C = 3"),
    "input layout": (lambda: conv(layout="NCHW")(X), "want activations (N, C, H, W) with C = 3"),
    "input without height": (lambda: conv(padding=3)(X[:, :0]), "no room for a window"),
    "input without width": (lambda: conv(padding=3)(X[:, :, :0]), "no room for a window"),
    "input too small": (lambda: conv()(X[:, :2]), "no room for a window"),
    "codes type": (lambda: conv().run(X), "want uint8 codes, not int8"),
    "codes values": (lambda: conv().run(X.astype(np.uint8) * 3), "codes of 2-bit ternary go to 2"),
    "codes masked": (lambda: conv().run(np.ma.masked_equal(X.astype(np.uint8), 0)), "masked"),
    "words type": (lambda: conv(layout="packed", out_layout="NHWC")(X), "want uint64 codes, not int8"),
    "words too few": (
        lambda: conv(layout="packed", out_layout="NHWC")(np.zeros((1, 3, 3, 1), np.uint64)),
        "want activations (N, H, W, C) with C = 2",
    ),
    "words values": (
        lambda: conv(layout="packed", out_layout="NHWC")(np.full((1, 3, 3, 2), 1, np.uint64)),
        "codes of 2-bit ternary go to 2",
    ),
    "words of other order": (
        lambda: conv(layout="packed", out_layout="NHWC")(np.zeros((1, 3, 3, 2), ">u8")),
        "want uint64 codes, not >u8",
    ),
    "bound part": (lambda: conv().bind(CODES, part="finish"), "a layer's parts are run and pack, not 'finish'"),
    "bound times": (lambda: conv().bind(CODES, times=0), "times must be a whole number of at least 1, not 0"),
    "bound half times": (lambda: conv().bind(CODES, times=1.5), "times must be"),
    "bound values": (lambda: conv().bind(CODES * 3), "codes of 2-bit ternary go to 2"),
    "bound type": (lambda: conv().bind(CODES.astype(np.int64)), "want uint8 codes, not int64"),
    "bound features": (lambda: dense().bind(CODES), "want activations (N, 3)"),
    "schedule order": (
        lambda: LayerSchedule("avx2", "lookup", 64, "direct", columns_first=1),  # type: ignore[arg-type]
        "columns_first of a schedule",
    ),
    "dense weight ragged": (lambda: dense([[1], [1, 1]]), "weight is not an array: rows of different lengths"),
    "name": (lambda: conv().emit("nowhere", None), "a layer cannot be named None"),
    "dense weight": (lambda: dense(W), "want a weight (out features, in features)"),
    "dense layout": (lambda: dense(layout="NCHW"), "layouts are NHWC and packed"),
    "dense out layout": (lambda: dense(out_layout="NCHW"), "layouts are NHWC and packed"),
    "dense padding": (lambda: dense(padding=1), "a dense layer has no padding"),
    "dense input": (lambda: dense()(X), "want activations (N, 3)"),
    "dense features": (lambda: dense()(X[:0, 0, 0, :2]), "want activations (N, 3), not (0, 2)"),
    "packing": (lambda: pack_words(np.full((1, 3), 4, np.uint8), 2), "codes of 2 bits"),
    "unpacking": (lambda: unpack_words(np.zeros((1, 3), np.uint64), 2, 64), "want 2 words"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_refused(what):
    make, message = REFUSED[what]
    with pytest.raises(SpecError, match=re.escape(message)):
        make()


def test_no_kernel_says_what_makes_one():
    message = "bitsynth synth --isa avx2 --act-bits 7 --w-bits 8 --act-encoding bipolar --channels 64"
    with pytest.raises(NoKernel, match=re.escape(f"run `{message}`")):
        conv(act_bits=7, act_encoding="bipolar", w_bits=8, weight_encoding="bipolar", schedule=None)


def test_whole_floats_are_weights():
    assert (conv(W * 1.0)(X) == conv()(X)).all()
    assert (dense(W[..., 0, 0].astype(np.float32))(X[0, 0]) == dense()(X[0, 0])).all()


def test_padding_for_an_output_as_large_as_the_input():
    """An odd pixel is behind."""
    layer = conv(RNG.integers(-2, 2, (4, 3, 4, 3)), padding="same", dilation=(1, 2))
    assert layer.geometry.padding == (1, 2, 2, 2)
    assert layer(X).shape == (2, 5, 6, 4)


def test_sums_that_may_leave_int32():
    layer = dense(np.ones((1, 1), int))
    with pytest.raises(SpecError, match="may leave int32"):
        dense(np.broadcast_to(np.int8(1), (1, layer.k_max + 1)), schedule=layer.schedule)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_sums_that_may_leave_int32_at_borders(groups, columns):
    """Weights that cancel each other out in the whole window, and not where one edge of it is on padding."""
    w, far = np.zeros((2, 600, 3, 3), np.int64), (1 << 15) - 1
    w[:, :, 0], w[:, :, 2] = 127, -127
    w = w.swapaxes(2, 3) if columns else w
    text: dict[str, Any] = {"weight_encoding": "signed", "isa": "avx2", "groups": groups}
    for padding in (0, (0, 1) if not columns else (1, 0)):
        Conv2d(w, 8, 8, zero_point=far, padding=padding, **text)
    Conv2d(w[:, :100], 8, 8, zero_point=far, padding=1, **text)
    for sign in (-1, 1):
        with pytest.raises(SpecError, match="may leave int32"):
            Conv2d(w, 8, 8, zero_point=sign * far, padding=1, **text)


def test_depthwise_sums_that_may_leave_int32_at_borders():
    w = np.zeros((16, 1, 400, 3), np.int64)
    w[:, :, :200], w[:, :, 200:] = 127, -127
    text: dict[str, Any] = {"weight_encoding": "signed", "isa": "avx2", "groups": 16, "zero_point": (1 << 15) - 1}
    Conv2d(w, 8, 8, image=(400, 400), **text)
    with pytest.raises(SpecError, match="may leave int32"):
        Conv2d(w, 8, 8, padding="same", image=(400, 400), **text)


@pytest.mark.slow
def test_memory_that_there_cannot_be(skip_isa):
    """Padding of 2 ** 15 on every side, on a machine of 32-bit addresses."""
    m, far = machine("armv7_neon", "lookup", 2, 1), (1 << 15) - 1
    usable(m, skip_isa)
    layer = Case(m, 1, (8, 8), (3, 4), (3, 3), padding=(far,) * 4, stride=(far, far)).made(W)
    with pytest.raises(SpecError, match="more scratch memory than armv7_neon can have"):
        layer(np.zeros((1, 8, 8, 3), int))


def test_no_images_give_no_results():
    assert conv()(X[:0]).shape == (0, 3, 4, 4)
    assert conv(layout="NCHW")(X.transpose(0, 3, 1, 2)[:0]).shape == (0, 4, 3, 4)
    packed = conv(epilogue=Thresholds(LEVELS), out_layout="packed")(X[:0])
    assert (packed.shape, packed.dtype) == ((0, 3, 4, 1), np.uint64)
    assert dense()(X[:0, 0, 0]).shape == (0, 4)
    call, out = conv().bind(CODES[:0])
    assert (call(), out.shape) == (0, (0, 3, 4, 4))


def test_a_bound_call_gives_what_a_call_gives():
    for layer, codes in ((conv(), CODES), (dense(), CODES[0, 0])):
        call, out = layer.bind(codes, times=2)
        assert call() == 0
        assert (out == layer.run(codes)).all()


def test_arrays_that_lie_oddly():
    """Strided, reversed, read-only, not aligned, of other byte order, or a list."""
    rng = np.random.default_rng(0)
    x = rng.integers(-1, 2, (2, 10, 6, 3))
    layer, wide = conv(), np.ascontiguousarray(x[:, ::2])
    want = layer(wide)
    fixed = wide.copy()
    fixed.flags.writeable = False
    for odd in (x[:, ::2], wide[:, ::-1][:, ::-1], np.asfortranarray(wide), fixed, wide.astype(">i4"), wide.tolist()):
        np.testing.assert_array_equal(layer(odd), want)
    codes = (x + 1).astype(np.uint8)
    np.testing.assert_array_equal(layer.run(codes[:, ::2]), want)
    reads_words = conv(layout="packed", out_layout="NHWC")
    lying = words((wide + 1).astype(np.uint8), 2)
    raw = np.zeros(lying.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(lying.tobytes(), np.uint8)
    off = raw[1:].view(np.uint64).reshape(lying.shape)
    assert not off.flags.aligned
    np.testing.assert_array_equal(reads_words(off), want)


def test_thresholds_beyond_int32():
    """Those below every sum are passed, those above never."""
    sums = conv()(X)
    for levels, code in (([-(2**40)], 1), ([2**40], 0), ([-(2**63), 2**63 - 1], 1)):
        got = conv(epilogue=Thresholds(np.array([levels] * 4)))(X)
        assert (got.shape, set(got.ravel().tolist())) == (sums.shape, {code})
    assert not conv(epilogue=Thresholds(np.full((4, 1), 2**64 - 1, np.uint64)))(X).any()


def test_windows_wider_than_typical_images():
    wide = conv(np.ones((1, 1, 40, 1), int), schedule=None)
    assert wide.geometry.output(41, 1) == (2, 1)


def test_dense_is_a_matrix_product():
    rng = np.random.default_rng(1)
    x, w = rng.integers(-1, 2, (7, 130)), rng.integers(-2, 2, (9, 130))
    np.testing.assert_array_equal(dense(w)(x), x @ w.T)
    np.testing.assert_array_equal(dense(w, layout="packed", out_layout="NHWC")(words(x + 1, 2)), x @ w.T)
    above = dense(w, epilogue=Thresholds(np.zeros((9, 1), int)), out_layout="packed")
    np.testing.assert_array_equal(above(x), words((x @ w.T > 0).astype(np.uint8), 1))


@settings(deadline=None, derandomize=True, max_examples=60, database=None)
@given(bits=st.integers(1, 8), channels=st.integers(1, 200), seed=st.integers(0, 99))
def test_packed_codes_come_back(bits, channels, seed):
    codes = np.random.default_rng(seed).integers(0, 1 << bits, (3, 2, channels), np.uint8)
    packed = pack_words(codes, bits)
    assert packed.shape == (3, 2, packed_words(bits, channels))
    np.testing.assert_array_equal(packed, words(codes, bits))
    np.testing.assert_array_equal(unpack_words(packed, bits, channels), codes)


def test_threads_of_python_share_a_layer():
    rng = np.random.default_rng(2)
    layer, inputs = conv(rng.integers(-2, 2, (64, 64, 3, 3))), rng.integers(-1, 2, (4, 1, 30, 30, 64))
    want = [layer(x) for x in inputs]
    wrong: list[Any] = []

    def repeat(i):
        wrong.extend(i for _ in range(20) if (layer(inputs[i]) != want[i]).any())

    threads = [threading.Thread(target=repeat, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_layer_does_not_wait_for_another_that_compiles(monkeypatch):
    compiling, go_on = threading.Event(), threading.Event()
    slow, quick = conv(), conv(W[:2])

    def library(*key):
        if threading.current_thread() is not threading.main_thread():
            compiling.set()
            assert go_on.wait(60)
        return compile_library(*key)

    monkeypatch.setattr(layer_module, "library", library)
    thread = threading.Thread(target=slow, args=(X,))
    thread.start()
    assert compiling.wait(60)
    assert quick(X).shape == (2, 3, 4, 2)
    go_on.set()
    thread.join()


FORK = """
import os, numpy as np
from bitsynth.layers import Conv2d
from bitsynth.layers.library import library as compile_library
from bitsynth.layers.schedule import LayerSchedule
schedule = LayerSchedule("avx2", "lookup", 64, gather="direct")
layer = Conv2d(np.ones((70, 64, 3, 3), int), 2, 1, schedule=schedule, threads=3)
x = np.ones((1, 20, 20, 64), int)
want = layer(x)
child = os.fork()
if child == 0:
    os._exit(int((layer(x) != want).any()))
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_has_threads_of_its_own():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], timeout=60, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
