"""ONNX Runtime's times of models, on a board, a line of JSON each. Arguments: threads, repeats, models."""

import json
import sys
import time
from typing import Any

_TYPES = {"tensor(float)": "float32", "tensor(double)": "float64"}
"""Of numpy, where it names them otherwise."""


def main(threads: str, repeats: str, *paths: str) -> None:
    """Print the package's version, then nanoseconds of single calls of each model."""
    try:
        import numpy as np
        import onnxruntime as ort
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return
    print(json.dumps({"onnxruntime": ort.__version__}), flush=True)
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = int(threads), 1
    for path in paths:
        try:
            session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            feed = {x.name: np.ones(x.shape, _TYPES.get(x.type, x.type[7:-1])) for x in session.get_inputs()}
            answer: dict[str, Any] = {"ns": [time_call(session, feed) for _ in range(int(repeats))]}
        except Exception as error:  # whatever it says of a file that it cannot run
            answer = {"failed": str(error).strip().split("\n")[0][:200]}
        print(json.dumps({"model": path, **answer}), flush=True)


def time_call(session: Any, feed: dict[str, Any]) -> int:
    """Return nanoseconds of one call, after one that brings its operands back into the caches."""
    session.run(None, feed)
    start: int = time.perf_counter_ns()
    session.run(None, feed)
    return time.perf_counter_ns() - start


main(*sys.argv[1:])
