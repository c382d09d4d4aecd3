"""Docstrings of the public API: every parameter is named where a reader looks for it."""

import inspect
import re

import pytest

import bitsynth

PUBLIC = [getattr(bitsynth, name) for name in bitsynth.__all__]
ERRORS = [x for x in PUBLIC if inspect.isclass(x) and issubclass(x, Exception)]


def members(public):
    """By name, a public function, or a class and its public methods."""
    found = {public.__name__: public}
    if inspect.isclass(public):
        methods = inspect.getmembers(public, inspect.isfunction)
        found |= {f"{public.__name__}.{n}": m for n, m in methods if n == "__call__" or not n.startswith("_")}
    return found


def undocumented(public):
    """The parameters that the docstring has neither an entry for, as of `Args:`, nor a word in backticks."""
    names, doc = inspect.signature(public).parameters.keys() - {"self"}, inspect.getdoc(public) or ""
    return [name for name in names if not re.search(rf"^ +\**{name}: \S|`{name}`", doc, re.MULTILINE)]


@pytest.mark.parametrize("public", [x for x in PUBLIC if x not in ERRORS], ids=lambda public: public.__name__)
def test_every_parameter_is_documented(public):
    assert {name: missing for name, x in members(public).items() if (missing := undocumented(x))} == {}
