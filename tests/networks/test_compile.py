"""`bitsynth compile` and `bitsynth.compile`: an ONNX file becomes a network equal to its reference, and C."""

import json

import numpy as np
import pytest
from support.onnx_files import small

import bitsynth
from bitsynth.graph import run
from bitsynth.graph.types import Integers
from bitsynth.host import placement
from bitsynth.host.features import arch
from bitsynth.isa.load import load
from bitsynth.layers.candidates import cpu_for
from bitsynth.network.program import LayerStep
from bitsynth.toolchain import compilers

SLOW = pytest.mark.slow


@pytest.fixture
def path(tmp_path):
    result = tmp_path / "small net.onnx"
    result.write_bytes(small().SerializeToString())
    return result


@pytest.mark.smoke
@pytest.mark.parametrize("isa", ["avx2", pytest.param("neon", marks=SLOW), pytest.param("armv7_neon", marks=SLOW)])
def test_every_edge_equals_the_reference(rng, path, isa, skip_isa):
    if not compilers(load(isa)) or (load(isa).table.arch == arch() and not placement.runs_natively(load(isa).table)):
        skip_isa(isa, f"no compiler for {isa}, or it does not run here")
    net = bitsynth.compile(path, isa=isa)
    x = rng.uniform(-0.5, 1.5, (1, 3, 6, 6)).astype(np.float32)
    y, m = net(x)
    want, found = run(net.graph, {"x": x}), net.trace(x)
    assert (y.dtype, y.shape, m.shape) == (np.float32, (1, 5), (1, 8, 3, 3))
    assert np.array_equal(y, want.floats("y"))
    assert np.array_equal(m, want.floats("m"))
    integers = [n for n in found if isinstance(net.graph.edges[n].type, Integers) and n != "m"]
    assert {"q", "p"} <= {*integers}
    assert all(np.array_equal(found[name], want[name]) for name in integers)
    assert net.inspect().macs == 8 * 27 * 36 + 72 * 5


def test_threads_give_the_same(rng, path):
    x = rng.uniform(-0.5, 1.5, (1, 3, 6, 6)).astype(np.float32)
    one, *others = (bitsynth.compile(path, isa="avx2", threads=n)(x) for n in (1, 2, 5))
    assert all(np.array_equal(a, b) for other in others for a, b in zip(one, other, strict=True))


@pytest.mark.smoke
def test_the_command_writes_a_library(ended, path, tmp_path):
    out, err = ended(0, "compile", str(path), "--isa", "neon", "-o", str(tmp_path / "out"))
    lines = out.splitlines()
    assert lines[0].endswith(f"steps on neon, {cpu_for('neon')}, 1 thread, reference exact")
    assert lines[2].split() == ["step", "by", "shape", "as", "MAC", "cycles", "weights", "bytes"]
    assert any(line.startswith("m") and "max pool" in line for line in lines)
    assert "bytes; arena" in out
    assert err == ""
    written = {p.name for p in (tmp_path / "out").iterdir()}
    assert {"small_net.h", "small_net.c", "small_net_weights.c", "small_net_selftest.c", "CMakeLists.txt"} <= written


def test_the_command_says_it_in_json(ended, path, tmp_path):
    out, _ = ended(0, "compile", str(path), "--isa", "avx2", "--name", "tiny", "-o", str(tmp_path / "out"), "--json")
    fields = json.loads(out)
    assert (fields["library"], fields["isa"], fields["threads"]) == ("tiny", "avx2", 1)
    assert fields["arena_bytes"] >= fields["arena_bound"] > 0
    assert {s["kind"] for s in fields["steps"]} <= {"layer", "glue", "plain"}
    assert sum(s["macs"] for s in fields["steps"]) == 8 * 27 * 36 + 72 * 5
    assert str(tmp_path / "out" / "tiny.c") in fields["files"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--name", "bs_mine"], "cannot be named 'bs_mine'"),
        (["--isa", "sse9"], "sse9"),
        (["--reference", "mine"], "unknown reference 'mine'"),
        (["--input-scale", "2"], "give that too"),
    ],
)
def test_bad_usage_writes_nothing(fails, path, tmp_path, more, message):
    assert message in fails(2, "compile", str(path), "-o", str(tmp_path / "out"), *more)
    assert not (tmp_path / "out").exists()


def test_an_open_batch_is_named(fails, tmp_path):
    path = tmp_path / "open.onnx"
    path.write_bytes(small(("N", 3, 6, 6)).SerializeToString())
    assert "--batch" in fails(2, "compile", str(path), "-o", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_files_of_others_stay(fails, path, tmp_path):
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    assert "was not written by bitsynth" in fails(2, "compile", str(path), "-o", str(tmp_path))
    assert {p.name for p in tmp_path.iterdir()} == {"main.c", "small net.onnx"}


def test_a_network_says_the_processor_that_it_is_for(path):
    net = bitsynth.compile(path, isa="neon", cpu="a72")
    assert (net.report().cpu, net.certificate["cpu"]) == ("a72", "a72")
    assert " for neon on a72, " in net.files("small")["small.h"]
    assert {s.layer.plan.processor for s in net.program.steps if isinstance(s, LayerStep)} == {"a72"}
    assert bitsynth.compile(path, isa="neon").report().cpu == cpu_for("neon")
    assert bitsynth.compile(path, isa="avx2").report().cpu == cpu_for("avx2")
