"""Recipes: layers, epilogues and glue in certificates, as the arguments of their constructors.

A recipe is JSON from which `rebuild` makes the same value. It calls constructors of `CLASSES` alone, which check their
arguments, as anybody may have written the recipe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from inspect import isabstract
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np

from bitsynth.errors import SpecError
from bitsynth.layers import epilogues, glue
from bitsynth.layers.epilogues import Epilogue
from bitsynth.layers.flatten import FlatImage
from bitsynth.layers.geometry import Geometry
from bitsynth.layers.glue.base import Glue
from bitsynth.layers.glue.quantization import Quantization
from bitsynth.layers.schedule import LayerSchedule
from bitsynth.layers.spec import LayerSpec
from bitsynth.network.certificate import checker
from bitsynth.network.certificate.arrays import encode_array
from bitsynth.network.certificate.records import JsonValue
from bitsynth.network.program import Matrices
from bitsynth.spec.layout import Layout
from bitsynth.spec.matmul import Encoding, MatmulOperand

_VALUES = (LayerSpec, LayerSchedule, Geometry, FlatImage, MatmulOperand, Quantization, Matrices)
_EPILOGUES = (
    *(x for x in vars(epilogues).values() if isinstance(x, type) and issubclass(x, Epilogue) and not isabstract(x)),
    epilogues.FixedPointFormula,
    epilogues.Residual,
)
_GLUE = tuple(x for x in vars(glue).values() if isinstance(x, type) and issubclass(x, Glue) and x is not Glue)
_NAMES_IN_RECIPES: Mapping[type, str] = {epilogues.FixedPointFormula: "FixedLine"}
"""Classes that the format of certificates calls by another name."""


def _name_in_recipes(kind: type) -> str:
    return _NAMES_IN_RECIPES.get(kind, kind.__name__)


CLASSES: Mapping[str, type] = MappingProxyType({_name_in_recipes(x): x for x in (*_VALUES, *_EPILOGUES, *_GLUE)})
"""Every class that a recipe may name, by its name there."""
_ARGUMENTS_IN_RECIPES = {"PairLookup": {"reachable": "come"}, "FixedPoint": {"first_formula": "line"}}
"""Arguments that the format calls by another name, for each class."""


def recipe(value: Any) -> JsonValue:
    """Return the recipe of a number, a text, an array, an object of `CLASSES`, or a sequence of these.

    TypeError for anything else.
    """
    if isinstance(value, Encoding):
        return {"encoding": value.value}
    if value is None or isinstance(value, bool | int | float | str):
        return str(value) if isinstance(value, Layout) else value
    if isinstance(value, np.ma.MaskedArray):
        return {"mask": recipe(np.ma.getmaskarray(value)), **recipe(value.filled())}
    if isinstance(value, np.ndarray | np.generic):
        return {"array": encode_array(np.asarray(value)), "dtype": np.asarray(value).dtype.name}
    if isinstance(value, tuple | list):
        return [recipe(x) for x in value]
    arguments, name = _arguments(value), _name_in_recipes(type(value))
    keys = _ARGUMENTS_IN_RECIPES.get(name, {})
    return {"is": name, **{keys.get(argument, argument): recipe(x) for argument, x in arguments.items()}}


def _arguments(value: Any) -> Mapping[str, Any]:
    """Return what makes a value of `CLASSES` again, by name; TypeError for another value."""
    if type(value) not in CLASSES.values():
        raise TypeError(f"no recipe is known for {value!r}")
    if isinstance(value, Glue):
        return {**{k: x for k, x in value.arguments.items() if k != "threads"}, "isa": value.isa}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    return {field.name: getattr(value, field.name) for field in msgspec.structs.fields(value)}


def rebuild(given: JsonValue) -> Any:
    """Return the value of a recipe; SpecError if there is none."""
    if isinstance(given, list):
        return tuple(rebuild(x) for x in given)
    if not isinstance(given, dict):
        return given
    if "encoding" in given and len(given) == 1:
        return Encoding.parse(given["encoding"])
    if "array" in given:
        if not given.keys() <= {"array", "dtype", "mask"}:
            raise SpecError(f"no array of a recipe has the fields {', '.join(sorted(given))}")
        array = checker.array(given["array"]).astype(given["dtype"])
        return np.ma.masked_array(array, rebuild(given["mask"])) if "mask" in given else array
    if given.get("is") not in CLASSES:
        raise SpecError(f"no class {given.get('is')!r} is known to recipes")
    names = {key: argument for argument, key in _ARGUMENTS_IN_RECIPES.get(given["is"], {}).items()}
    arguments = {str(names.get(key, key)): rebuild(x) for key, x in given.items() if key != "is"}
    try:
        return CLASSES[given["is"]](**arguments)
    except TypeError as error:
        raise SpecError(f"no {given['is']} is made of {sorted(arguments)}: {error}") from None
