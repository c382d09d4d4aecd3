"""Run the cases of `tests/support/project_cases.py` with the code of the projects that define their operators.

Each project's results become a file of `tests/golden/operators`, with the name and version of what gave them. A project
needs its own packages, best in a virtual environment of its own:

    python tests/project_goldens.py qonnx
    python tests/project_goldens.py openvino
    python tests/project_goldens.py quark          # amd-quark and g++; builds its custom operators
    python tests/project_goldens.py quantlab PATH  # torch; a clone of github.com/pulp-platform/quantlib
    python tests/project_goldens.py deeploy PATH   # gcc; a clone of github.com/pulp-platform/Deeploy
    python tests/project_goldens.py dory PATH      # gcc; a clone of github.com/pulp-platform/pulp-nn-mixed
"""

from __future__ import annotations

import argparse
import ast
import ctypes
import importlib.metadata
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from support.project_cases import Case, of_project

GOLDENS = Path(__file__).parent / "golden" / "operators"
Runner = Callable[[Case], Any]


def version_of(package: str) -> str:
    """A package and its version."""
    return f"{package} {importlib.metadata.version(package)}"


def commit_of(clone: Path) -> str:
    """The commit of a clone."""
    command = ["git", "-C", str(clone), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout[:12]


def file_of(clone: Path, name: str) -> str:
    """The text of a file of a clone, of which a bare one will do."""
    found = subprocess.run(["git", "-C", clone, "show", f"HEAD:{name}"], capture_output=True, text=True, check=True)
    return found.stdout


def qonnx(_: Path | None) -> tuple[str, Runner]:
    """qonnx's own executor."""
    from qonnx.core.datatype import DataType
    from qonnx.core.modelwrapper import ModelWrapper
    from qonnx.core.onnx_exec import execute_onnx
    from qonnx.transformation.infer_shapes import InferShapes

    def run(case: Case) -> Any:
        wrapped = ModelWrapper(case.model)
        wrapped.set_tensor_datatype("x", DataType["FLOAT32"])
        if len(case.model.graph.node) > 1:  # codes of the input, whose shape is not inferred in time
            wrapped.set_tensor_shape("q", list(case.feed["x"].shape))
        wrapped = wrapped.transform(InferShapes())
        return execute_onnx(wrapped, dict(case.feed))["y"]

    return version_of("qonnx"), run


def openvino(_: Path | None) -> tuple[str, Runner]:
    """OpenVINO on this processor, in float32."""
    from openvino import Core

    def run(case: Case) -> Any:
        core = Core()
        net = core.read_model(case.model.SerializeToString())
        net = core.compile_model(net, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return next(iter(net(dict(case.feed)).values()))

    return version_of("openvino"), run


def quark(_: Path | None) -> tuple[str, Runner]:
    """Quark's custom operators in ONNX Runtime."""
    import onnxruntime

    folder = Path(str(importlib.metadata.distribution("amd-quark").locate_file("quark/onnx/operators/custom_ops")))
    runtime = folder / "include" / "onnxruntime-1.17.0" / "onnxruntime"
    headers = folder / "include"
    include = [headers, headers / "gsl-4.0.0", runtime, runtime / "core" / "session", folder / "src"]
    sources = [*(p for p in folder.glob("src/*.cc") if p.stem != "torch_ops"), *folder.glob("src/*/cpu/*.cc")]
    library = Path(tempfile.mkdtemp()) / "libquark.so"
    options = ["-std=c++17", "-O1", "-shared", "-fPIC", "-w", "-DNO_GPU", *(f"-I{p}" for p in include)]
    subprocess.run(["g++", *options, *sources, "-o", library], check=True)

    def run(case: Case) -> Any:
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(str(library))
        return onnxruntime.InferenceSession(case.model.SerializeToString(), options).run(None, dict(case.feed))[0]

    return version_of("amd-quark"), run


def parameters(case: Case) -> dict[str, Any]:
    """The attributes and constants of a RequantShift."""
    (one,) = case.model.graph.node
    found = {a.name: onnx.numpy_helper.to_array(a.t) for a in one.attribute}
    return found | {t.name: onnx.numpy_helper.to_array(t) for t in case.model.graph.initializer}


def quantlab(clone: Path | None) -> tuple[str, Runner]:
    """The class RequantShift of quantlib, alone: the package has more dependencies than it needs."""
    import torch

    assert clone is not None, "quantlab wants the path of a clone of quantlib"
    tree = ast.parse(file_of(clone, "algorithms/pact/pact_ops.py"))
    tree.body = [part for part in tree.body if isinstance(part, ast.ClassDef) and part.name == "RequantShift"]
    scope: dict[str, Any] = {"torch": torch, "nn": torch.nn, "parse_args": lambda *_: lambda function: function}
    exec(compile(tree, "pact_ops.py", "exec"), scope)

    def run(case: Case) -> Any:
        p = {k: torch.from_numpy(np.array(v, np.float64)) for k, v in parameters(case).items()}
        result = scope["RequantShift"](
            p["m"], p["a"], int(p["n_levels_out"]), signed=bool(p["signed"]), D=p["div"], requant_node=False
        )
        return result(torch.from_numpy(case.feed["x"].astype(np.float64))).numpy()

    return f"quantlib {commit_of(clone)}", run


_HEAD = """
#include <stdint.h>
#include <stdbool.h>
#define CLAMP(x, a, b) ((x) < (a) ? (a) : (x) > (b) ? (b) : (x))
"""
"""What the kernel needs of Deeploy's header."""


def deeploy(clone: Path | None) -> tuple[str, Runner]:
    """Deeploy's kernel for 32-bit integers, with the limits of its template."""
    assert clone is not None, "deeploy wants the path of a clone of Deeploy"
    library = Path(tempfile.mkdtemp()) / "libdeeploy.so"
    text = file_of(clone, "TargetLibraries/Generic/src/RequantShift_s8.c")
    text = text.replace('#include "DeeployBasicMath.h"', _HEAD)
    options = ["gcc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(options, input=text, text=True, check=True)
    kernel = ctypes.CDLL(str(library)).RequantShift_s32_s8_NCHW

    def run(case: Case) -> Any:
        p, x = parameters(case), case.feed["x"].astype(np.int32)
        levels, channels = int(p["n_levels_out"][0]), x.shape[1]
        mul, add = (np.broadcast_to(p[k].reshape(-1), channels).astype(np.int32).copy() for k in "ma")
        down = 0 if p["signed"][0] else levels // 2
        out, shift = np.zeros(x.shape, np.int8), int(np.log2(p["div"][0]))
        pointers = (a.ctypes.data_as(ctypes.c_void_p) for a in (x, mul, add, out))
        data, factor, offset, result = pointers
        size, low, high = x.size // channels, -(levels // 2), levels // 2 - 1
        kernel(data, x.size, factor, offset, result, shift, size, 0, -down, low, high, True)
        return out.astype(np.float32) + down

    return f"Deeploy {commit_of(clone)}, RequantShift_s32_s8_NCHW", run


_PULP = """
#include <stdint.h>
#include <stdio.h>
#define NUM_CORES 1
#define min(a, b) ((a) < (b) ? (a) : (b))
#define log2(x) 0
#define clip8(x) ((x) < 0 ? 0 : (x) > 255 ? 255 : (x))
#define clips8(x) ((x) < -128 ? -128 : (x) > 127 ? 127 : (x))
static int pi_core_id(void) { return 0; }
static void pi_cl_team_barrier() {}
"""
"""What the kernels need of their headers, for one core."""


def dory(clone: Path | None) -> tuple[str, Runner]:
    """The kernels of pulp-nn-mixed that DORY calls for a sum, by the types of operands and result."""
    assert clone is not None, "dory wants the path of a clone of pulp-nn-mixed"
    folder = Path(tempfile.mkdtemp())

    def kernel(name: str) -> Any:
        text = file_of(clone, f"XpulpV2/32bit/src/Add/{name}.c")
        for header in ("pmsis.h", "pulp_nn_utils.h"):
            text = text.replace(f'#include "{header}"', _PULP if header == "pmsis.h" else "")
        options = ["gcc", "-w", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", str(folder / f"{name}.so")]
        subprocess.run(options, input=text, text=True, check=True)
        return ctypes.CDLL(str(folder / f"{name}.so"))[name]

    def run(case: Case) -> Any:
        total = case.model.graph.node[1]
        at = {a.name: onnx.helper.get_attribute_value(a) for a in total.attribute}
        given = {t.name: onnx.numpy_helper.to_array(t) for t in case.model.graph.initializer}
        x, w = case.feed["x"], given["w"]
        signed = [bool(values.min() < 0) for values in (x, w)]
        signed.append(bool(at.get("out_signed", any(signed))))
        letters = ["ui"[sign] for sign in signed]
        kinds = [np.int8 if sign else np.uint8 for sign in signed]
        first, second, out = x.astype(kinds[0]), w.astype(kinds[1]), np.zeros(x.shape, kinds[2])
        pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (first, second, out)]
        numbers = [at[f"{part}_{key}"] for part in ("in1", "in2", "out") for key in ("mul", "add", "shift")]
        kernel("pulp_nn_add_" + "_".join(f"{letter}8" for letter in letters))(
            *pointers, *numbers, x.size, 1, 1, at["out_rq"]
        )
        return out.astype(np.float32)

    return f"pulp-nn-mixed {commit_of(clone)}, pulp_nn_add", run


PROJECTS = {found.__name__: found for found in (qonnx, openvino, quark, quantlab, deeploy, dory)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", choices=PROJECTS)
    parser.add_argument("clone", type=Path, nargs="?")
    asked = parser.parse_args()
    made_by, run = PROJECTS[asked.project](asked.clone)
    GOLDENS.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {name: np.asarray(run(case), np.float32) for name, case in of_project(asked.project)}
    np.savez_compressed(GOLDENS / f"{asked.project}.npz", made_by=np.array(made_by), **results)
    print(f"{len(results)} cases of {made_by}")


if __name__ == "__main__":
    main()
