"""`bitsynth verify --model`: a certificate belongs to the file, and claims no more and no less than it would get."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from support.onnx_files import QONNX, model, node

from bitsynth import compile
from bitsynth.errors import Refuted, SpecError
from bitsynth.graph import InputCodes
from bitsynth.graph.ir import digest as graph_digest
from bitsynth.network import verify_model
from bitsynth.network.certificate import digest
from bitsynth.network.certificate.records import CertificateRecord, record_of


def dense(more=0):
    """A layer with thresholds and a last one, whose first weight has `more`."""
    nodes = [
        node("Quant", "x s z b", "q", domain=QONNX, signed=0, narrow=0),
        node("MatMul", "q w", "m"),
        node("Quant", "m t z b", "r", domain=QONNX, signed=0, narrow=0),
        node("MatMul", "r v", "y"),
    ]
    numbers = {"s": np.float32(0.5), "t": np.float32(1.5), "z": np.float32(0), "b": np.float32(2)}
    weights = {name: np.arange(-8, 8, dtype=np.float32).reshape(4, 4) % 3 - 1 for name in ("w", "v")}
    weights["w"][0, 0] += more
    return model(nodes, {"x": (1, 4)}, numbers | weights)


def saved(onnx_model, path):
    path.write_bytes(onnx_model.SerializeToString())
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return saved(dense(), tmp_path_factory.mktemp("model") / "net.onnx")


@pytest.fixture(scope="module")
def net(file):
    return compile(file, isa="avx2")


@pytest.fixture
def folder(net, tmp_path):
    net.emit(tmp_path, "net")
    return tmp_path


@pytest.fixture
def refused(net, folder, file, monkeypatch):
    """What is said of a certificate in which something is changed, its digest made anew."""
    monkeypatch.setattr(verify_model, "compile", lambda *_, **__: net)
    path = folder / "net.certificate.json"

    def said(change):
        fields = json.loads(path.read_text())
        change(fields)
        path.write_text(json.dumps({**fields, "digest": digest(fields)}))
        with pytest.raises((Refuted, SpecError)) as error:
            verify_model.require_of(record_of(fields, CertificateRecord), path, file)
        return str(error.value)

    return said


def test_a_certificate_is_of_its_file(folder, file, ended):
    out, _ = ended(0, "verify", str(folder), "--no-z3", "--model", str(file))
    assert "gives the same chains, ranges, weights and C" in out
    digest_of = hashlib.sha256(file.read_bytes()).hexdigest()
    assert out.splitlines()[-1].endswith(f", of net.onnx with digest {digest_of}")


def test_another_network_is_refused(folder, ended, tmp_path):
    other = saved(dense(1), tmp_path / "other.onnx")
    _, err = ended(1, "verify", str(folder), "--no-z3", "--model", str(other))
    assert "graph is not what" in err


def leave_out(result):
    result["steps"][1].update(claims=[], unclaimed="plain C computes it: tested, not proved")


FORGED = {
    "a step that claims nothing": (leave_out, "steps/1/"),
    "a step less": (lambda c: c["steps"].pop(), "steps"),
    "wider ranges": (lambda c: c["edges"]["q"].update(high=7), "edges/q/high"),
    "another scale": (lambda c: c["edges"]["q"].update(scale=1), "edges/q/scale"),
    "a chain without an end": (lambda c: c["steps"][1]["chain"].pop(), "steps/1/chain"),
    "other weights": (lambda c: c["steps"][1]["sums"]["weights"].update(low=0), "steps/1/sums/weights/low"),
    "a kernel less": (lambda c: c["kernels"].pop(), "kernels"),
    "other files": (lambda c: c["files"].update({"net.c": "0" * 64}), "files/net.c"),
    "a file less": (lambda c: c["files"].pop("net_selftest.c"), "files/net_selftest.c"),
    "another graph": (lambda c: c.update(graph="0" * 64), "graph"),
    "a field more": (lambda c: c["arena"].update(more=1), "unknown field `more`"),
    "fixed inputs": (lambda c: c["reading"].update(fixed={"x": None}), "x was fixed"),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_certificate_is_refused(refused, case):
    change, message = FORGED[case]
    assert message in refused(change)


def test_options_are_those_of_the_certificate(tmp_path, ended):
    onnx_model = model([node("MatMul", "x w", "y")], {"x": (1, 4)}, {"w": np.eye(4, dtype=np.float32)})
    file = saved(onnx_model, tmp_path / "n.onnx")
    compile(file, isa="avx2", codes=InputCodes(2, 0.5, "signed")).emit(tmp_path / "out", "net")
    ended(0, "verify", str(tmp_path / "out"), "--no-z3", "--model", str(file))


def test_weights_may_lie_in_a_file(net, file, tmp_path, ended):
    net.emit(tmp_path / "out", "net", weights_file=True)
    ended(0, "verify", str(tmp_path / "out"), "--no-z3", "--model", str(file))


def test_a_kernel_is_of_no_file(file, ended):
    _, err = ended(2, "verify", "bs_mm_a2u_w2b_s32_avx2_6x16x4", "--model", str(file))
    assert "--model is for compiled networks" in err


def test_digests_of_graphs_tell_all_apart(net):
    graph = net.graph
    name, value = next((n, v) for n, v in graph.constants.items() if v.size > 1)
    found = {graph_digest(graph)}
    for changed in (value + 1, value.astype(np.float64), value.reshape(-1)):
        found.add(graph_digest(replace(graph, constants={**graph.constants, name: changed})))
    assert len(found) == 4
