"""Elementwise specs of a residual: a second tensor that is added to a layer's values before they are rounded."""

from __future__ import annotations

from bitsynth.errors import SpecError
from bitsynth.spec.elementwise import ElementInput, ElementwiseSpec, SpecKind
from bitsynth.spec.rescaling import CodeForm, is_number

ELEMENTS = {"uint8": "u8", "int8": "s8", "int16": "s16", "int32": "s32", "float32": "f32"}
"""The types of a residual's elements as names of specs have them, by the types of arrays."""
_VALUE, _FACTOR = ElementInput("s", "s32"), ElementInput("f", "s32", "channel")


def add_to_sums(element: str, *, factor: bool) -> ElementwiseSpec:
    """Return a spec in s32: s, plus c of its channel, plus element e, times f if there is a `factor`; all of it wraps.

    A zero point z of elements goes into c, as -f * z.
    """
    if element == "f32":
        raise SpecError("float32 is added to float32 alone")
    more = f"{_widen_element(element)} * f" if factor else _widen_element(element)
    inputs = (_VALUE, ElementInput("e", element), ElementInput("c", "s32", "channel"), *([_FACTOR] if factor else []))
    name = f"residual_{element}{'_factor' if factor else ''}"
    return ElementwiseSpec(name=name, inputs=inputs, meaning=f"s + c + {more}", out="s32", kind=SpecKind.RESIDUAL)


def scale_sums(element: str) -> ElementwiseSpec:
    """Return a spec in float32: s converted, times m, plus b, plus (e - z) * f of the element e; each step rounds.

    Elements of 32 bits have no z. -0 as b changes no value.
    """
    small = element in ("u8", "s8", "s16")
    more = "e" if element == "f32" else f"float_of({_widen_element(element)}{' - z' if small else ''})"
    text = f"fadd(fadd(fmul(float_of(s), m), b), fmul({more}, f))"
    return ElementwiseSpec(
        name=f"residual_{element}_float",
        inputs=(
            _VALUE,
            ElementInput("e", "u32" if element == "f32" else element),
            *(ElementInput(x, "u32", "channel") for x in "mbf"),
            *([ElementInput("z", "s32", "all")] if small else []),
        ),
        meaning=text,
        out="u32",
        assumes=(is_number(text),),
        kind=SpecKind.RESIDUAL,
    )


def round_to_codes(codes: CodeForm) -> ElementwiseSpec:
    """Return codes of the float32 value v: rounded half to even, plus z, clamped, as `rescale` does it."""
    code = codes.clamp("sext(nearest(v), 64)")
    return codes.spec(SpecKind.ROUNDED, "", (ElementInput("v", "u32"),), code, [is_number("v")])


def _widen_element(element: str) -> str:
    return {"u8": "zext(e, 32)", "s8": "sext(e, 32)", "s16": "sext(e, 32)"}.get(element, "e")
