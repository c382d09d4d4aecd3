"""Guides are true: their code runs, and the code that they show is the repository's."""

import re
import shutil
import subprocess
from inspect import isabstract

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save
from support.markdown_blocks import PAGES, ROOT, bitsynth_commands, blocks

from bitsynth.cli import main
from bitsynth.graph.read import readers
from bitsynth.layers import epilogues

DOCS = ROOT / "docs"
OPERATOR, EPILOGUE = (DOCS / "develop" / f"add-an-{name}.md" for name in ("operator", "epilogue"))
CROSS, FLOAT = (DOCS / "guides" / f"{name}.md" for name in ("cross-compile", "float-network"))


def float_network(path):
    """Write a small network of floats, which takes images of 32 x 32 pixels."""
    draw = np.random.default_rng(0).standard_normal
    weights = {"v": draw((64, 3, 3, 3)) / 5, "w": draw((64, 64, 3, 3)) / 24, "d": draw((64, 10)) / 8}
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"], pads=[1] * 4, strides=[2, 2]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["c"], pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["e"]),
        helper.make_node("GlobalAveragePool", ["e"], ["f"]),
        helper.make_node("Flatten", ["f"], ["g"]),
        helper.make_node("MatMul", ["g", "d"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 32, 32))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))
    constants = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "net", [x], [y], constants)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


@pytest.mark.slow
def test_a_float_network_quantized_by_onnxruntime_compiles_to_layers(tmp_path, monkeypatch, capsys):
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    float_network("float.onnx")
    (code,) = blocks(FLOAT, "py")
    exec(compile(code.text, str(FLOAT), "exec"), {"__name__": "__page__"})
    for name in ("int8", "int4"):
        assert main(["compile", f"{name}.onnx", "--isa", "neon", "-o", name]) == 0
        out, err = capsys.readouterr()
        assert re.search(r"^3 by layers, 1 by glue", out, re.MULTILINE), out
        assert "slow" not in out + err


@pytest.mark.slow
@pytest.mark.toolchains
def test_a_network_is_cross_compiled_and_run_under_qemu(tmp_path, monkeypatch, capsys):
    for tool in ("cmake", "qemu-aarch64", "aarch64-linux-gnu-gcc"):
        if not shutil.which(tool):
            pytest.skip(f"{tool} is not installed")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    (target,), (commands,) = blocks(CROSS, "cmake"), blocks(CROSS, "sh")
    (tmp_path / "aarch64.cmake").write_text(target.text, encoding="utf-8")
    (compiled,) = bitsynth_commands(commands)
    assert main(compiled) == 0, capsys.readouterr().err
    rest = commands.text.partition("\n")[2]
    done = subprocess.run(["bash", "-euc", rest], capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "100% tests passed" in done.stdout
    assert done.stdout.endswith("the greatest is number 9\n")


def test_code_of_the_page_on_operators_is_the_code_that_reads_and_means_them():
    code = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "bitsynth" / "graph").rglob("*.py"))
    reader, row = (block.text for block in blocks(OPERATOR, "py"))
    (entry,) = re.findall(r"it is `(elementwise_operator\(.*?\))`", OPERATOR.read_text(encoding="utf-8"))
    for line in [reader.splitlines()[-1], *row.splitlines()[1:], entry]:
        assert line.strip() in code


def test_what_the_page_on_operators_says_of_a_node_exists():
    kind = readers.reader_of("Add", "").__globals__["FileNode"]
    text = OPERATOR.read_text(encoding="utf-8")
    table = text[text.index("| of a `FileNode`") : text.index("A reader refuses")]
    named = re.findall(r"`(\w+)\(", table)
    assert {"edge", "get", "add", "fail"} <= set(named)
    assert [name for name in named if not hasattr(kind, name)] == []


def test_the_page_on_epilogues_has_every_kind():
    text = EPILOGUE.read_text(encoding="utf-8")
    kinds = re.findall(r"^\| `([A-Z]\w+)` \|", text, re.MULTILINE)
    exported = [x for x in vars(epilogues).values() if isinstance(x, type) and issubclass(x, epilogues.Epilogue)]
    families = [x for x in exported if not isabstract(x)]
    assert sorted(kinds) == sorted(kind.__name__ for kind in families)
    folders = re.findall(r"`((?:layers|spec|sketches|emit|network|synth)/[\w/]*)`", text)
    assert [name for name in folders if not (ROOT / "bitsynth" / name).exists()] == []


def test_one_result_is_told_everywhere_alike():
    """README, the site's first page, its picture and the results have the same times and bytes."""
    results = (DOCS / "results" / "index.md").read_text(encoding="utf-8")
    times = re.findall(r"^\| (bitsynth|ONNX Runtime|OpenVINO), ([^|]*) \| (\d+) \| [\d.]+ \|", results, re.M)
    assert len(times) == 7
    kinds = ("AVX-512", "int8", "float32", "same file")
    fastest = [next(time for _, how, time in times if how.endswith(end)) for end in kinds]
    readme, picture = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/network.svg"))
    for time in fastest:
        assert f"| {time} µs" in readme
    for time in fastest[:3]:
        assert f">{time} µs<" in picture
        assert f"{time} µs" in (DOCS / "index.md").read_text(encoding="utf-8")
    for count in ("48,704 bytes", "611,072"):
        assert count in readme
        assert count in picture


def test_the_picture_of_the_readme_is_legible_on_a_phone():
    """On a screen of 360 pixels no letters are smaller than 11 pixels."""
    text = (DOCS / "network.svg").read_text(encoding="utf-8")
    width = float(re.search(r'viewBox="0 0 (\d+) ', text)[1])
    sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', text)]
    assert min(sizes) * 360 / width >= 11
    assert "docs/network.svg" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_guides_are_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [p.relative_to(DOCS).as_posix() for p in PAGES if p.is_relative_to(DOCS)]
    assert [page for page in pages if page not in menu] == []


def test_the_changelog_is_short():
    """At most 60 lines for the first version, and a line or two for a change: history is git's."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert len(text.partition("## 0.1.0")[2].splitlines()) <= 60
    changes = re.split(r"^\* ", text, flags=re.MULTILINE)[1:]
    assert [change for change in changes if len(change.partition("\n\n")[0]) > 320] == []
