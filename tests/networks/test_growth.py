"""Time and memory to read, show and compile a network grow with its file, and not with its square or its paths."""

import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest
from support.case_selection import quick
from support.growing_graphs import FAMILIES
from support.onnx_files import QONNX, model, node

from bitsynth.errors import SpecError
from bitsynth.graph import inspect, read, reference, run
from bitsynth.network import lower
from bitsynth.network.compiling import compile, network_of
from bitsynth.network.def_use import NetworkTarget
from bitsynth.progress import silent

FULL = 1000
_SECONDS, _BYTES = 30, 2 << 30
GREW = (
    *("clips", "constants", "diamonds", "doubles", "fan_out", "fan_out_quantized", "initializers", "outputs", "relus"),
    *("residuals", "scaled", "squares"),
)
"""Families in which work grew faster than the file, and those next to them."""


def calls(result):
    """Calls of Python's functions, and of C's by these, until a network is compiled or refused."""
    counted = 0

    def count(frame, event, argument):
        nonlocal counted
        counted += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        graph = read(result, reference="exact")
        inspect.inspect_graph(graph)
        net = network_of(graph, NetworkTarget("avx2"), 1, silent, {})
        net.files("net")
        net.report()
    except SpecError:
        pass
    finally:
        sys.setprofile(None)
    return counted


OTHERS = [family for family in FAMILIES if family not in GREW]
SIZES = [*((family, 40, 100) for family in (*GREW, *OTHERS[::2])), *((family, 80, 240) for family in GREW[::4])]


@pytest.mark.parametrize("case", quick([(family, 40, 100) for family in GREW], of=SIZES), ids=str)
def test_work_grows_as_the_file_does(case):
    """Three times the nodes are at most 4.5 times the calls, and so on, less the calls that any network takes."""
    family, *sizes = case
    fixed = calls(FAMILIES[family](2))  # And what is loaded once.
    fixed = calls(FAMILIES[family](2))
    small, large = (calls(FAMILIES[family](size)) - fixed for size in sizes)
    assert large < 1.5 * (sizes[1] / sizes[0]) * max(small, 10_000)


_COMMANDS = """
    import resource, sys
    resource.setrlimit(resource.RLIMIT_CPU, ({seconds}, {seconds}))
    resource.setrlimit(resource.RLIMIT_AS, ({bytes}, {bytes}))
    from bitsynth.cli import main
    sys.exit(main({argv!r}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "command"), [*((family, "compile") for family in GREW[::2]), ("fan_out", "inspect")]
)
def test_files_of_a_thousand_nodes_take_half_a_minute_and_two_gigabytes_at_most(tmp_path, family, command):
    """Of processor time; they are compiled, or refused with a message."""
    path = tmp_path / "net.onnx"
    onnx.save(FAMILIES[family](FULL), path)
    assert path.stat().st_size < 1 << 20
    argv = [command, str(path), *(["--isa", "avx2", "-o", str(tmp_path / "out")] if command == "compile" else [])]
    code = textwrap.dedent(_COMMANDS).format(seconds=_SECONDS, bytes=_BYTES, argv=argv)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 2), done.stderr[-400:]
    assert done.returncode == 0 or done.stderr.startswith(f"error: {path}: ")


@pytest.mark.parametrize(
    ("elements", "length", "says"),
    [
        (1 << 22, 48, ""),
        pytest.param(1 << 24, 4, "", marks=pytest.mark.slow),
        pytest.param(1 << 26, 4, "input x: the reference's values of shape", marks=pytest.mark.slow),
    ],
)
def test_large_activations_are_compiled_or_their_node_is_named(tmp_path, elements, length, says):
    """Memory holds the edges alive at once, however many nodes there are; with less the node is named.

    The int64 values of all edges of the first case would take 1.5 GiB.
    """
    nodes = [node("Quant", "x s z b", "q", domain=QONNX, signed=1, narrow=0), node("Relu", "q", "v0")]
    nodes += [node("Neg", f"v{k}", f"v{k + 1}", name=f"n{k}") for k in range(length)]
    grid = {"s": np.float32(1), "z": np.float32(0), "b": np.float32(2)}
    path = tmp_path / "net.onnx"
    onnx.save(model([*nodes, node("Relu", f"v{length}")], {"x": (1, elements >> 10, 1, 1 << 10)}, grid), path)
    argv = ["compile", str(path), "--isa", "avx2", "-o", str(tmp_path / "out")]
    code = textwrap.dedent(_COMMANDS).format(seconds=_SECONDS, bytes=5 * (1 << 28), argv=argv)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == (4 if says else 0), done.stderr[-400:]
    assert says in done.stderr


def test_values_that_do_not_fit_in_memory_name_their_node(monkeypatch):
    graph = read(FAMILIES["relus"](2))

    def evaluate(node, *_):
        raise MemoryError

    monkeypatch.setattr(reference, "evaluate", evaluate)
    with pytest.raises(MemoryError, match=rf"^{graph.nodes[0]}: the reference's values of shape \(.*\) do not fit"):
        run(graph, {name: np.zeros(graph.edges[name].shape, np.float32) for name in graph.inputs})


def test_networks_of_too_many_products_are_refused(monkeypatch):
    monkeypatch.setattr(lower, "_MAX_PRODUCTS", 3)
    assert len(lower.lower(read(FAMILIES["dense"](3)), NetworkTarget("avx2")).steps) > 3
    why = "4 convolutions and matrix products, more than the 3 that are compiled as one network; cut it in parts"
    with pytest.raises(SpecError, match=f"^{why}"):
        lower.lower(read(FAMILIES["dense"](4)), NetworkTarget("avx2"))


def test_networks_of_too_much_glue_are_refused(monkeypatch):
    """Each choice is a table of pairs of codes."""
    nodes = [node("Quant", "x s z b", "c0", domain=QONNX, signed=0, narrow=0)]
    for k in range(6):
        nodes += [node("Greater", f"c0 t{k}", f"g{k}"), node("Where", f"g{k} v{k} c{k}", f"c{k + 1}")]
    constants = {f"{name}{k}": np.float32(k * 3 + 1) for k in range(6) for name in "tv"}
    onnx_model = model(
        [*nodes, node("Quant", "c6 s z b", "y", domain=QONNX, signed=0, narrow=0)],
        {"x": (1, 4)},
        {**constants, "s": np.float32(1), "z": np.float32(0), "b": np.float32(8)},
    )
    monkeypatch.setattr(lower, "_MAX_PRODUCTS", 0)
    with pytest.raises(SpecError, match=r"more than 0 layers and glue, .* among them, are not compiled as one network"):
        lower.lower(read(onnx_model), NetworkTarget("avx2"))


def test_thresholds_of_very_many_channels_are_plain_c(monkeypatch, rng):
    """They are not searched one by one, which would take minutes; the codes are the same."""
    scale = rng.uniform(0.1, 1, (1, 40, 1, 1)).astype(np.float32)
    nodes = [node("Quant", "x s z b", "q", domain=QONNX, signed=0, narrow=0), node("Mul", "q s", "m")]
    nodes.append(node("Quant", "m s z b", "y", domain=QONNX, signed=0, narrow=0))
    onnx_model = model(nodes, {"x": (1, 40, 1, 1)}, {"s": scale, "z": np.float32(0), "b": np.float32(8)})
    x = rng.uniform(0, 300, (1, 40, 1, 1)).astype(np.float32) * scale
    first = compile(onnx_model, isa="avx2")
    monkeypatch.setattr(sys.modules["bitsynth.network.formulas.step_functions"], "_MAX_THRESHOLDS", 40 * 255 - 1)
    second = compile(onnx_model, isa="avx2")
    formulas = [getattr(net.program.steps[0], "formula", None) for net in (first, second)]
    assert formulas[0] is not None
    assert formulas[1] is None
    np.testing.assert_array_equal(first(x), run(first.graph, {"x": x}).floats("y"))
    np.testing.assert_array_equal(second(x), first(x))
