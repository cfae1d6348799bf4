"""The examples of the docstrings and of the pages run and give what they say."""

import doctest
import importlib
import pathlib

import pytest

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["saccade", "saccade._attention", "saccade._switch", "saccade._torch"])
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert result.failed == 0
    assert result.attempted > 0


@pytest.mark.parametrize("page", ["docs/pytorch.md", "README.md"])
def test_pages(page):
    if not (ROOT / page).exists():
        pytest.skip(f"{page} is not here")
    result = doctest.testfile(str(ROOT / page), module_relative=False, optionflags=FLAGS)
    assert result.failed == 0
    assert result.attempted > 0


def test_every_public_name_is_documented():
    import saccade

    for name in saccade.__all__:
        value = getattr(saccade, name)
        assert isinstance(value, str) or value.__doc__, name
