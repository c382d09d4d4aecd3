"""C types of elements."""

from __future__ import annotations

_SPELLED = {"float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t", "bool": "uint8_t"}


def c_type(dtype: str) -> str:
    """Return the C type that holds an element: a byte for integers of fewer bits, the bits of 16-bit floats."""
    if dtype in _SPELLED:
        return _SPELLED[dtype]
    kind, _, bits = dtype.rpartition("int")
    return f"{kind}int{max(8, int(bits))}_t"
