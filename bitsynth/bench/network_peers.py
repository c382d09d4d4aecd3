"""Peers of a whole network: ONNX Runtime, OpenVINO and the C of emx-onnx-cgen, on the file and on its twins; LiteRT."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from bitsynth import toolchain
from bitsynth.errors import ToolError
from bitsynth.graph.read import tflite
from bitsynth.graph.read.file import load_for_peers
from bitsynth.graph.read.inputs import fix_inputs, with_shapes
from bitsynth.graph.types import Tensor, numpy_type
from bitsynth.host.features import arch, features
from bitsynth.isa import architecture
from bitsynth.isa.load import load
from bitsynth.network.run import Network
from bitsynth.progress import Progress
from bitsynth.run.runner import Runner, runner_for

Bound = Callable[[Any], Callable[[], object]]
"""A function that returns a call of a model."""
ORT, OPENVINO, EMX, LITERT = "onnxruntime", "openvino", "emx-onnx-cgen", "ai-edge-litert"
INT8_TWIN = "int8 twin"
INSTALL = "pip install 'bitsynth[peers]'"
_MODULES = {ORT: "onnxruntime", OPENVINO: "openvino", EMX: "emx_onnx_cgen", LITERT: "ai_edge_litert"}
_NEEDS = {ORT: (ORT, INT8_TWIN), OPENVINO: (OPENVINO,), EMX: (EMX,), LITERT: (LITERT,)}
"""The contenders that are left out without a package: ONNX Runtime quantizes the int8 twin too."""
_EMX_NAME = "model"
_EMX_FLAGS = ("-O3", "-w", "-lm")
"""The C of emx-onnx-cgen has warnings that ours must not have."""
_LITERT_KERNELS = {"AUTO": "default kernels", "BUILTIN_WITHOUT_DEFAULT_DELEGATES": "without XNNPACK"}
"""The names of contenders, by LiteRT's resolver of kernels."""
INT8_INSTRUCTIONS = "int8 instructions"
"""What `settings` calls the fastest instructions of this processor that the int8 of others can use."""
ONEDNN_LIMIT = "ONEDNN_MAX_CPU_ISA"
"""The environment variable that keeps OpenVINO from wider instructions, as AVX512_CORE_VNNI does from AMX."""


def missing(threads: int, model: Path | None = None) -> dict[str, tuple[str, ...]]:
    """Return the peers' packages that are not installed, with the contenders that are left out without each."""
    wanted: tuple[str, ...] = (ORT, OPENVINO, EMX) if threads == 1 else (ORT, OPENVINO)
    if model is not None and isinstance(load_for_peers(model), bytes):
        wanted = (LITERT,)
    return {package: _NEEDS[package] for package in wanted if not _is_installed(_MODULES[package])}


def settings(contenders: Iterable[str]) -> dict[str, str]:
    """Return what a comparison depends on, by name; nothing without other packages.

    These are the versions of the contenders' packages, and `INT8_INSTRUCTIONS` and `ONEDNN_LIMIT`.
    """
    packages = dict.fromkeys(name.partition(",")[0] for name in contenders)
    facts = {package: importlib.metadata.version(package) for package in packages if package in _MODULES}
    if not facts:
        return {}
    instructions = architecture.find_architecture(arch()).int8_instructions
    facts[INT8_INSTRUCTIONS] = next((text for name, text in instructions.items() if name in features()), "unknown")
    if OPENVINO in facts and (limit := os.environ.get(ONEDNN_LIMIT)):
        facts[ONEDNN_LIMIT] = limit
    return facts


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # of a module that was made in this process
        return False


def bind_peers(
    model: Path, net: Network, inputs: Mapping[str, Tensor], left_out: dict[str, str], progress: Progress
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield name and call of each peer that runs; the reasons why others do not go to `left_out`."""
    if isinstance(data := load_for_peers(model), bytes):
        yield from _bind_litert(data, inputs, net.program.threads, left_out, progress)
        return
    packages: dict[str, Bound] = {}
    binders = {ORT: bind_onnxruntime, OPENVINO: bind_openvino, **({EMX: _emx} if net.program.threads == 1 else {})}
    for package, bind in binders.items():
        try:
            packages[package] = bind(net, inputs)
        except ImportError as why:
            left_out[package] = f"{why}; {INSTALL}"
    for what, file in models(model, net, inputs, left_out):
        for package, make in packages.items():
            progress(f"starting {package}, {what}")
            try:
                yield f"{package}, {what}", make(file)
            except Exception as why:  # whatever a peer says of a file that it cannot run
                left_out[f"{package}, {what}"] = _first_line(why)


def _bind_litert(
    data: bytes, inputs: Mapping[str, Tensor], threads: int, left_out: dict[str, str], progress: Progress
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield name and call of LiteRT, on the file as it is, with its default kernels and without XNNPACK."""
    for kernels, name in _LITERT_KERNELS.items():
        contender = f"{LITERT}, {name}"
        progress(f"starting {contender}")
        try:
            yield contender, bind_litert_kernels(data, inputs, threads, kernels)
        except ImportError as why:
            left_out[LITERT] = f"{why}; {INSTALL}"
            return
        except Exception as why:  # whatever a peer says of a file that it cannot run
            left_out[contender] = _first_line(why)


def bind_onnxruntime(net: Network, inputs: Mapping[str, Tensor]) -> Bound:
    """Return a function that binds a model to ONNX Runtime; ImportError if it is not installed."""
    from bitsynth.bench.baselines.onnxruntime_baseline import session, start

    def bind(model: Any) -> Callable[[], object]:
        start(net.program.threads)
        running = session(model, net.program.threads)
        binding = running.io_binding()
        for name, x in inputs.items():
            binding.bind_cpu_input(name, np.ascontiguousarray(x))
        for output in running.get_outputs():
            binding.bind_output(output.name)
        return lambda: running.run_with_iobinding(binding)

    return bind


def bind_openvino(net: Network, inputs: Mapping[str, Tensor]) -> Bound:
    """Return a function that binds a model to OpenVINO; ImportError if it is not installed.

    Floats stay float32: on a processor with AMX it would otherwise compute in bfloat16.
    """
    import openvino

    threads = net.program.threads
    options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}

    def bind(model: Any) -> Callable[[], object]:
        core = openvino.Core()
        request = core.compile_model(core.read_model(model.SerializeToString()), "CPU", options).create_infer_request()
        for name, x in inputs.items():
            request.set_tensor(name, openvino.Tensor(np.ascontiguousarray(x)))
        call: Callable[[], object] = request.infer
        return call

    return bind


def _emx(net: Network, inputs: Mapping[str, Tensor]) -> Bound:
    """Return a function that compiles a model by emx-onnx-cgen, for one thread; ImportError if it is not installed."""
    from emx_onnx_cgen.compiler import Compiler, CompilerOptions

    edges = [net.graph.edges[name] for name in net.graph.outputs]
    outputs = [np.empty(edge.shape, numpy_type(edge.dtype)) for edge in edges]
    arguments = [np.ascontiguousarray(x) for x in (*(inputs[name] for name in net.graph.inputs), *outputs)]
    isa = load(net.program.isa)

    def bind(model: Any) -> Callable[[], object]:
        text, weights = Compiler(CompilerOptions(model_name=_EMX_NAME)).compile_with_weight_data(model)
        runner = runner_for(isa, toolchain.compile_for(isa, {"model.c": text}, flags=_EMX_FLAGS))
        if weights:
            _load_weights(runner, weights)
        return runner.bind(_EMX_NAME, *arguments)

    return bind


def _load_weights(runner: Runner, weights: bytes) -> None:
    """Have the C of emx-onnx-cgen read its larger weights, from a file; ToolError if it does not take them."""
    with NamedTemporaryFile(suffix=".bin") as file:
        file.write(weights)
        file.flush()
        path = np.frombuffer(os.fsencode(file.name) + b"\0", np.uint8)
        if not runner.call(f"{_EMX_NAME}_load", path, bits=32) & 1:
            raise ToolError("the C of emx-onnx-cgen does not load its weights")


def models(
    model: Path, net: Network, inputs: Mapping[str, Tensor], left_out: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    """Yield name and model of each file that peers run: the file as `net` was read from it, and its twins."""
    import onnx

    if isinstance(load_for_peers(model), bytes):
        left_out[ORT] = "it runs ONNX files alone"
        return

    from bitsynth.bench import twins

    reading = net.reading
    loaded = fix_inputs(onnx.load(model), reading.fixed, reading.shapes, reading.batch)
    file = with_shapes(loaded, {name: x.shape for name, x in inputs.items()})
    makers: dict[str, Callable[[], Any]] = {
        "same file": lambda: file,
        "fp32 twin": lambda: twins.float_twin(file),
        INT8_TWIN: lambda: twins.int8_twin(twins.float_twin(file), inputs),
    }
    for what, make in makers.items():
        try:
            yield what, make()
        except Exception as why:  # whatever a package says of a file that it cannot read
            left_out[what] = _first_line(why)


def _first_line(why: Exception) -> str:
    """Return the first line of an exception's message, at most 200 characters."""
    return str(why).strip().split("\n")[0][:200]


def bind_litert_kernels(data: bytes, inputs: Mapping[str, Tensor], threads: int, kernels: str) -> Callable[[], object]:
    """Return a call that runs the file of these bytes on `inputs`."""
    from ai_edge_litert import interpreter as package

    running = package.Interpreter(
        model_content=data,
        num_threads=threads,
        experimental_op_resolver_type=getattr(package.OpResolverType, kernels),
    )
    names = tflite.tensor_names(data)
    for given in running.get_input_details():
        if tuple(given["shape"]) != (shape := inputs[names[given["index"]]].shape):
            running.resize_tensor_input(given["index"], shape)
    running.allocate_tensors()
    for given in running.get_input_details():
        running.set_tensor(given["index"], inputs[names[given["index"]]].astype(given["dtype"]))
    call: Callable[[], object] = running.invoke
    return call
