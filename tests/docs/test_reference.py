"""Pages of the reference name what the code has, all of it and no more; README's and docs' links lead somewhere."""

import re
import tomllib
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from markdown_it import MarkdownIt
from support.markdown_blocks import PAGES, ROOT
from support.network_programs import by_hand
from support.project_cases import CASES

import bitsynth
from bitsynth import device, errors, layers
from bitsynth.bench.baselines.start import Cap
from bitsynth.cli import interrupts
from bitsynth.graph.read import tflite
from bitsynth.graph.read.nodes import qonnx
from bitsynth.graph.read.readers import custom_operators
from bitsynth.isa import architecture, baseline_loops, step, tables
from bitsynth.isa.functions import FUNCTIONS
from bitsynth.kernel import inputs, program
from bitsynth.layers import tuned
from bitsynth.network.arena import plan_arena
from bitsynth.network.certificate import checker, objects
from bitsynth.network.library import NetworkText
from bitsynth.schedule.cost import KernelCost
from bitsynth.store import entry
from bitsynth.store.depthwise import DEPTHWISE
from bitsynth.store.elementwise import ELEMENTWISE
from bitsynth.tune import study

DOCS = ROOT / "docs"
ISA_SPEC = {
    "[isa]": tables.IsaTable,
    "[isa.cpu.NAME]": tables.CpuTable,
    "[isa.cpu.NAME.issue]": tables.IssueTable,
    "[isa.features.NAME]": tables.FeatureTable,
    "[isa.halves]": tables.HalvesTable,
    "[isa.prefetch]": tables.PrefetchTable,
    "[isa.paper]": tables.PaperTable,
    "[isa.matrices]": tables.MatrixTable,
    "[isa.matrices.cycles.CPU]": tables.MatrixCycles,
    "[instr.NAME]": tables.InstrTable,
    "A cost": tables.CostTable,
    "architectures.toml": architecture.Architecture,
    "[ARCH.emulator]": architecture.Emulator,
    "[ARCH.emulator.qemu]": architecture.Qemu,
    "[ARCH.emulator.unicorn]": architecture.Unicorn,
    "Baselines": baseline_loops.BaselineTable,
    "peers.toml": Cap,
}
KERNEL_FILE = {
    "The file": entry.Entry,
    "runners_up": entry.RunnerUp,
    "cost": KernelCost,
    "certificate": entry.Certificate,
    "kernel": program.Kernel,
    "memory": program.Memory,
    "constants": step.Constant,
    "build": inputs.Build,
    "passes": program.Pass,
    "Input: planes": inputs.Planes,
    "Input: table": inputs.Table,
    "loops": program.Loop,
    "accs": program.Acc,
}


def sections(page):
    """Tables of a page by heading: rows of cells, the first row the titles."""
    found: dict[str, list[list[str]]] = {}
    last: list[str] = []
    heading = ""
    tokens = MarkdownIt().enable("table").parse((DOCS / page).read_text(encoding="utf-8"))
    for token, after in pairwise(tokens):
        if token.type == "heading_open":
            heading = after.content.replace("`", "")
        elif token.type == "tr_open":
            last = []
            found.setdefault(heading, []).append(last)
        elif token.type in ("th_open", "td_open"):
            last.append(after.content)
    return found


def names(rows):
    """What the first column of a table names, in code."""
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]


def keys(struct):
    """The keys of a table in a file, in any order."""
    tag = struct.__struct_config__.tag_field
    return sorted([*(f.encode_name for f in msgspec.structs.fields(struct)), *([tag] if tag else [])])


@pytest.mark.parametrize(("heading", "struct"), ISA_SPEC.items())
def test_every_key_of_an_instruction_set(heading, struct):
    rows = sections("reference/isa-spec.md")[heading]
    assert sorted(names(rows)) == keys(struct)
    required = {f.encode_name for f in msgspec.structs.fields(struct) if f.required}
    assert {name for row in rows for name in names([row]) if row[2] == "required"} == required


def test_every_figure_of_a_processor_that_does_not_say_its_own():
    by_name = {names([row])[0]: row[2] for row in sections("reference/isa-spec.md")["[isa.cpu.NAME]"][1:]}
    for field in msgspec.structs.fields(tables.CpuTable):
        if type(field.default) in (int, float):
            assert by_name[field.encode_name] == f"{field.default:,}".removesuffix(".0")


def test_every_table_of_an_instruction_set_is_looked_at():
    assert {heading for heading, rows in sections("reference/isa-spec.md").items() if rows[0][0] == "key"} == set(
        ISA_SPEC
    )


def test_every_function_of_lane_expressions():
    rows = sections("reference/isa-spec.md")["The lane expression"]
    assert {name.partition("(")[0] for name in names(rows) if "(" in name} == set(FUNCTIONS)


OPERATORS = {
    "QONNX and FINN": qonnx.DOMAINS,
    "Channels last of QONNX": (qonnx.CHANNELS_LAST_DOMAIN,),
    "ONNX Runtime": ("com.microsoft",),
    "Vitis AI and Quark": ("com.vai.quantize", "com.amd.quark"),
    "OpenVINO": ("org.openvinotoolkit",),
    "Quantlab, Deeploy and DORY": ("",),
    "TensorFlow Lite": (tflite.DOMAIN,),
}
"""The domains of operators by the headings of their tables."""
RUN_BY_TESTS = ("ONNX Runtime", "TensorFlow Lite")
"""The headings of projects that tests run where they are installed, so that they need no goldens."""


def test_every_operator_that_is_not_of_standard_onnx():
    """Each is in the table of its domain, with what it was compared with, or that it follows a reading."""
    found = sections("reference/operators.md")
    assert found.keys() == OPERATORS.keys()
    custom = custom_operators()
    assert sorted(d for domains in OPERATORS.values() for d in domains) == sorted(custom)
    for heading, domains in OPERATORS.items():
        for domain in domains:
            assert sorted(names(found[heading][1:])) == sorted(custom[domain]), domain
        assert all(all(row) for row in found[heading])


def test_every_project_that_operators_were_compared_with():
    """The page has the versions of what wrote the goldens, and every operator with a case is one of those compared."""
    text = (DOCS / "reference" / "operators.md").read_text(encoding="utf-8")
    for path in (ROOT / "tests" / "golden" / "operators").glob("*.npz"):
        assert str(np.load(path)["made_by"]) in text, path
    found = sections("reference/operators.md")
    read = {name for rows in found.values() for row in rows for name in names([row]) if row[1].startswith("a reading")}
    compared = {op for case in CASES.values() for op in (n.op_type for n in case.model.graph.node)}
    rest = {name for heading, rows in found.items() if heading not in RUN_BY_TESTS for name in names(rows[1:])}
    rest -= {"QuantLSTMCell"}  # test_quant_lstm.py has goldens of its own
    assert rest - compared <= read


@pytest.mark.parametrize(("heading", "struct"), KERNEL_FILE.items())
def test_every_key_of_a_kernel_file(heading, struct):
    assert sorted(names(sections("reference/kernel-file.md")[heading])) == keys(struct)


def test_every_table_of_a_kernel_file_is_looked_at():
    found = sections("reference/kernel-file.md")
    assert {heading for heading, rows in found.items() if rows[0][0] == "key"} == set(KERNEL_FILE)
    assert f"the version of this format: {entry.FORMAT}" in [row[1] for row in found["The file"]]


def test_every_format_of_a_file():
    rows = sections("develop/stability.md")["Files"][1:]
    formats = [int(row[1]) for row in rows if row[1].isdigit()]
    of_networks = [checker.FORMAT, objects.FORMAT]
    assert formats == [entry.FORMAT, DEPTHWISE.format, ELEMENTWISE.format, *of_networks, tuned.FORMAT, study.FORMAT]


def test_every_variable_of_the_environment():
    """One for a compiler of each architecture stands for them all."""
    files = (p for folder in ("bitsynth", "benchmarks", "tests", ".ci") for p in (ROOT / folder).rglob("*"))
    code = [p for p in files if p.is_file() and (p.suffix in (".py", ".c", ".h", ".j2") or p.parent.name == ".ci")]
    assert variables(DOCS / "reference" / "environment.md") == set().union(*map(variables, code))


def variables(path):
    found = re.findall(r"BITSYNTH(?:_[A-Z0-9]+)+", path.read_text(encoding="utf-8"))
    return {"BITSYNTH_CC_<ARCH>" if name.startswith("BITSYNTH_CC_") else name for name in found}


def test_every_error_and_its_exit_code():
    rows = sections("reference/errors.md")["Errors and exit codes"][1:]
    by_name = {names([row])[0]: int(row[1]) for row in rows if names([row])}
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.BitsynthError)
    ]
    assert by_name == {kind.__name__: kind.exit_code for kind in kinds if kind is not errors.BitsynthError}
    (signals,) = (row[1] for row in rows if row[0] == "a signal")
    assert {int(code) for code in signals.split(", ")} == {128 + number for number in interrupts.SIGNALS}


def test_every_public_name_of_python():
    text = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    steps = {f"bitsynth.layers.{n}" for n in layers.__all__ if getattr(layers, n) is not getattr(bitsynth, n, None)}
    public = {f"bitsynth.{name}" for name in bitsynth.__all__} | {f"bitsynth.device.{name}" for name in device.__all__}
    assert sorted(re.findall(r"^::: (\S+)$", text, re.MULTILINE)) == sorted(public | steps)


def test_every_function_of_a_kernel_in_c():
    """Those of a kernel with all of them: terms of rows, and of encodings, and rows in pairs."""
    kernel = bitsynth.get_kernel("neon", 2, 2, "signed", "ternary", method="pairs", channels=64)
    text = (DOCS / "reference" / "c-abi.md").read_text(encoding="utf-8")
    declared = re.findall(rf"\b{kernel.name}(\w*)\(", kernel.header)
    assert {"_pack_act", "_matmul", ""} <= set(declared)
    assert [name for name in declared if f"NAME{name}(" not in text] == []
    constants = re.findall(rf"^    {kernel.name}(_\w+) =", kernel.header, re.MULTILINE)
    assert [name for name in constants if f"`NAME{name}`" not in text] == []


def test_every_function_of_a_layer_in_c():
    (header,) = (p for p in (ROOT / "tests" / "golden" / "layer").glob("*.h") if not re.match(r"bs_|.*_names", p.name))
    pool = ROOT / "bitsynth" / "runtime" / "bs_pool.h"
    text = (DOCS / "reference" / "c-abi.md").read_text(encoding="utf-8")
    declared = re.findall(rf"\b{header.stem}(_\w+)\(", header.read_text(encoding="utf-8"))
    assert len(declared) > 4
    assert [name for name in declared if f"NAME{name}(" not in text] == []
    shared = re.findall(r"\b(bs_pool_\w+)\(", pool.read_text(encoding="utf-8"))
    assert [name for name in shared if f"{name}(" not in text] == []


def test_every_function_of_a_network_in_c():
    result, _ = by_hand("avx2")
    header = NetworkText("net", result, plan_arena(result)).own()["net.h"]
    text = (DOCS / "reference" / "c-abi.md").read_text(encoding="utf-8")
    declared = re.findall(r"\bnet(_\w+)\(", header)
    assert {"_run", "_run_steps", "_step", "_selftest"} <= set(declared)
    assert [name for name in declared if f"NAME{name}(" not in text] == []
    constants = re.findall(r"^    net(_\w+) =", header, re.MULTILINE)
    assert [name for name in constants if f"`NAME{name}`" not in text] == []


def test_every_folder_and_the_order_of_imports():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [name for layer in contract[0]["layers"] for name in layer.split(" | ")]
    texts = [name.rstrip("/") for name in names(sections("develop/architecture.md")["Architecture"])]
    assert texts[: len(layers)] == layers


def test_every_folder_of_tests():
    texts = [
        name for row in sections("develop/testing.md")["Testing"] for name in names([row]) if name.startswith("tests/")
    ]
    folders = (p for p in (ROOT / "tests").iterdir() if p.is_dir() and p.name != "__pycache__")
    assert sorted(texts) == sorted(f"tests/{p.name}" for p in folders)


def test_every_benchmark_is_on_the_page():
    text = names(sections("develop/measuring.md")["Measuring"])
    assert [name for name in text if not (ROOT / "benchmarks" / name).is_file()] == []
    scripts = {p.name for p in (ROOT / "benchmarks").glob("*.py") if "__main__" in p.read_text(encoding="utf-8")}
    assert scripts - {"remeasure.py"} == set(text)


def test_every_extra_that_is_named_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = {name for found in re.findall(r"(?:bitsynth|'\.)\[([a-z,]+)\]", text) for name in found.split(",")}
    assert named == set(extras)
    table = re.findall(
        r"^\| `bitsynth\[([a-z]+)\]` \|", (DOCS / "quickstart.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(table) == sorted(extras)


def test_docs_install_from_a_clone():
    """No registry has the package: what pip installs is the clone."""
    assert [page.name for page in PAGES if "pip install 'bitsynth" in page.read_text(encoding="utf-8")] == []


def test_figures_of_the_picture_are_the_kernels():
    kernel = bitsynth.get_kernel("avx2", 2, 1)
    lemmas = len(kernel.certificate.lemmas) + len(kernel.certificate.instructions)
    text = (DOCS / "one-kernel.svg").read_text(encoding="utf-8")
    assert f">{kernel.cost.ops_per_128_mac:.2f} ops per 128 MAC<" in text
    assert f">{lemmas} lemmas,<" in text


def test_the_readme_is_a_page():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_no_file_is_where_a_command_of_the_readme_writes():
    """Else the first command of a new user fails in a clone."""
    written = set(re.findall(r"-o (\w+)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert written == {"out", "conv"}
    assert not [name for name in written if (ROOT / name).is_file()]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_paths_lead_somewhere(page):
    """Links to files; and in code the paths of the checkout, of the package too as `proof/checker.py`."""
    tokens = [t for token in MarkdownIt().parse(page.read_text(encoding="utf-8")) for t in token.children or ()]
    links = [str(t.attrs.get("href", t.attrs.get("src", ""))) for t in tokens if t.type in ("link_open", "image")]
    generated = DOCS / "reference" / "cli.md", DOCS / "results"
    for link in (link.partition("#")[0] for link in links if ":" not in link):
        target = (page.parent / link).resolve()
        assert target.exists() or target in generated or target.parent in generated, link
    shown = [t.content for t in tokens if t.type == "code_inline"]
    for path in (text for text in shown if re.fullmatch(r"[\w.]+(/[\w.]+)+\.(py|toml|c|h)", text)):
        assert any((ROOT / part / path).is_file() for part in ("", "bitsynth", "isa_specs/avx2")), path
