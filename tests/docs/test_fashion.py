"""The script that trains a network, as far as it goes without PyTorch."""

import gzip
import json
import runpy
import sys

import numpy as np
import pytest
from support.markdown_blocks import ROOT

import bitsynth

EXAMPLES = ROOT / "examples"


@pytest.fixture
def data(monkeypatch):
    """The script's reader."""
    monkeypatch.syspath_prepend(EXAMPLES)
    from fashion import data

    return data


def file(magic, *shape):
    """The bytes of elements in MNIST's format."""
    header = b"".join(int(n).to_bytes(4, "big") for n in (magic, *shape))
    return header + bytes(k % 251 for k in range(int(np.prod(shape))))


def write(folder, part="t10k"):
    """Three pictures and their labels."""
    (folder / f"{part}-images-idx3-ubyte").write_bytes(file(2051, 3, 28, 28))
    (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(file(2049, 3)))


def test_packed_and_unpacked_files_are_read(data, tmp_path):
    write(tmp_path)
    x, labels = data.pictures(tmp_path, "t10k")
    assert x.shape == (3, 28, 28)
    assert x[1, 0, 0] == 784 % 251
    assert labels.tolist() == [0, 1, 2]
    scaled = data.scaled(x)
    assert scaled.shape == (3, 1, 28, 28)
    assert scaled.dtype == np.float32
    assert scaled[0, 0, 0, 250 % 28] == np.float32(250 % 28) / np.float32(255)


def test_other_elements_are_refused(data, tmp_path):
    write(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(file(2049, 3))
    with pytest.raises(ValueError, match="holds no images"):
        data.pictures(tmp_path, "t10k")


def script(arguments, monkeypatch):
    """Run the script."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setattr(sys, "argv", ["train_fashion.py", *map(str, arguments)])
    runpy.run_path(str(EXAMPLES / "train_fashion.py"), run_name="__main__")


def refused(folder, monkeypatch, capsys):
    """What the script says before it ends with exit code 2."""
    with pytest.raises(SystemExit) as stopped:
        script(["--data", folder, "--out", folder], monkeypatch)
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_without_data_it_says_how_to_get_them(monkeypatch, capsys, tmp_path):
    assert "apt-get install dataset-fashion-mnist" in refused(tmp_path, monkeypatch, capsys)


def test_without_pytorch_it_says_how_to_get_it(monkeypatch, capsys, tmp_path):
    for part in ("t10k", "train"):
        write(tmp_path, part)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install 'bitsynth[train]'" in refused(tmp_path, monkeypatch, capsys)


def test_an_evaluation_is_noted(monkeypatch, capsys, tmp_path):
    write(tmp_path)
    messages = iter(np.eye(10)[[0, 1, 7]])
    monkeypatch.setattr(bitsynth, "compile", lambda model: lambda picture: next(messages))
    (tmp_path / "net.json").write_text('{"accuracy": {"trainer": 0.5}}')
    script(["--data", tmp_path, "--evaluate", tmp_path / "net_qonnx.onnx"], monkeypatch)
    assert "classifies 66.67% of 3 test images correctly" in capsys.readouterr().out
    accuracy = json.loads((tmp_path / "net.json").read_text())["accuracy"]
    assert accuracy == {"trainer": 0.5, "compiled": pytest.approx(2 / 3)}
