"""enable, disable, enabled, PyTorch's registry, and `python -m saccade.run`."""

import os
import pathlib
import subprocess
import sys
import warnings

import pytest
import torch
import torch.nn.functional as F
from conftest import check_close

import saccade
from saccade import _torch

theirs = torch._C._nn.scaled_dot_product_attention


@pytest.fixture
def calls(monkeypatch):
    """The problems that reached Saccade's operator."""
    seen = []
    forward = _torch._sdpa_forward

    def spy(*args):
        seen.append(args[0].shape)
        return forward(*args)

    monkeypatch.setattr(_torch, "_sdpa_forward", spy)
    monkeypatch.setattr(_torch, "_sdpa_plain", lambda q, k, v, causal: spy(q, k, v, None, causal))
    return seen


def test_enable_and_disable(device, calls):
    q = torch.randn(1, 2, 4, 8, device=device)
    assert F.scaled_dot_product_attention is theirs
    F.scaled_dot_product_attention(q, q, q)
    assert not calls
    saccade.enable()
    saccade.enable()
    assert saccade.is_enabled()
    mine = F.scaled_dot_product_attention(q, q, q)
    assert len(calls) == 1
    saccade.disable()
    assert not saccade.is_enabled()
    assert F.scaled_dot_product_attention is theirs
    check_close(mine, theirs(q.double(), q.double(), q.double()))
    assert len(calls) == 1
    saccade.disable()


def test_a_function_that_was_imported_before(device, calls):
    """The operator below the Python function is ours too: callers in C++ and early importers reach it."""
    q = torch.randn(1, 2, 4, 8, device=device)
    with saccade.enabled():
        mine = theirs(q, q, q, is_causal=True)
        through_dispatcher = torch.ops.aten.scaled_dot_product_attention(q, q, q, None, 0.0, True)
        with torch.inference_mode():
            theirs(q, q, q)
    assert len(calls) == 3
    assert torch.equal(mine, through_dispatcher)
    check_close(mine, theirs(q.double(), q.double(), q.double(), is_causal=True))


def test_vmap_while_enabled(device, calls):
    q = torch.randn(3, 1, 2, 4, 8, device=device)
    with saccade.enabled():
        results = [torch.func.vmap(f)(q, q, q) for f in (F.scaled_dot_product_attention, theirs)]
    for result in results:
        check_close(result, theirs(q.double(), q.double(), q.double()))


def test_contexts_nest_and_end_on_errors():
    with saccade.enabled():
        with saccade.enabled():
            assert saccade.is_enabled()
        assert saccade.is_enabled()
    assert not saccade.is_enabled()
    with pytest.raises(ZeroDivisionError), saccade.enabled():
        raise ZeroDivisionError
    assert F.scaled_dot_product_attention is theirs


@pytest.mark.skipif(
    not hasattr(torch.nn.attention, "restore_flash_attention_impl"), reason="this torch has no registry"
)
def test_pytorchs_registry(device, calls):
    from torch.nn.attention import (
        activate_flash_attention_impl,
        current_flash_attention_impl,
        list_flash_attention_impls,
        restore_flash_attention_impl,
    )

    assert "saccade" in list_flash_attention_impls()
    activate_flash_attention_impl("saccade")
    assert saccade.is_enabled()
    assert current_flash_attention_impl() == "saccade"
    q = torch.randn(1, 2, 4, 8, device=device)
    F.scaled_dot_product_attention(q, q, q)
    assert calls
    restore_flash_attention_impl()
    assert not saccade.is_enabled()
    assert F.scaled_dot_product_attention is theirs


def test_fallbacks_while_enabled_do_not_come_back(device):
    """PyTorch's own kernel is reached from both replacements, with gradients."""
    q = torch.randn(1, 2, 4, 8, device=device, requires_grad=True)
    expected = theirs(q, q, q)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), q)
    with saccade.enabled(), pytest.warns(saccade.FallbackWarning, match="gradients"):
        for function in (F.scaled_dot_product_attention, theirs, torch.ops.aten.scaled_dot_product_attention):
            out = function(q, q, q)
            (gradient,) = torch.autograd.grad(out.sum(), q)
            torch.testing.assert_close(out, expected)
            torch.testing.assert_close(gradient, expected_gradient)
        theirs(q.double(), q.double(), q.double())
        with pytest.raises(RuntimeError):
            theirs(q, q[..., :3], q)


@pytest.mark.parametrize("batch_first", [True, False])
def test_multihead_attention(device, calls, batch_first):
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(32, 4, batch_first=batch_first, device=device).eval()
    x = torch.randn(5, 7, 32, device=device)
    expected = module(x, x, x, need_weights=False)[0]
    module.train()  # keeps it off the fast path, which on the CPU has an attention of its own
    with torch.no_grad(), saccade.enabled():
        torch.testing.assert_close(module(x, x, x, need_weights=False)[0], expected, atol=1e-5, rtol=1e-5)
    assert calls


def test_transformer_encoder(device):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0, device=device)
    x = torch.randn(3, 9, 32, device=device)
    padding = torch.zeros(3, 9, dtype=torch.bool, device=device)
    padding[1, 6:] = True
    for mode in (True, False):
        layer.train(mode)
        with torch.no_grad():
            expected = layer(x, src_key_padding_mask=padding)
            with saccade.enabled():
                result = layer(x, src_key_padding_mask=padding)
        torch.testing.assert_close(result[~padding], expected[~padding], atol=1e-5, rtol=1e-5)


SCRIPT = """
import sys, torch, torch.nn.functional as F
q = torch.ones(1, 1, 2, 4)
sdpa = F.scaled_dot_product_attention
print(sys.argv[1:], __name__, sdpa.__module__, sdpa(q, q, q).sum().item())
"""


def python(*arguments, **options):
    folder = str(pathlib.Path(saccade.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": folder + os.pathsep + os.environ.get("PYTHONPATH", "")}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, timeout=300, **options
    )


def test_run_a_script(tmp_path):
    (tmp_path / "script.py").write_text("import helper\n" + SCRIPT)
    (tmp_path / "helper.py").write_text("")
    done = python("-m", "saccade.run", str(tmp_path / "script.py"), "--x", "1")
    assert done.stdout == "['--x', '1'] __main__ saccade._torch 8.0\n", done.stderr


def test_run_a_module(tmp_path):
    (tmp_path / "module.py").write_text(SCRIPT + "sys.exit(7)\n")
    done = python("-m", "saccade.run", "-m", "module", "a", cwd=tmp_path)
    assert done.stdout == "['a'] __main__ saccade._torch 8.0\n", done.stderr
    assert done.returncode == 7
    assert python("-m", "saccade.run").returncode == 2


def test_import_changes_nothing():
    """No torch, no NumPy, nothing replaced."""
    code = "import sys, saccade; print('torch' in sys.modules, 'numpy' in sys.modules, saccade.is_enabled())"
    assert python("-c", code).stdout == "False False False\n"
    code = (
        "import torch, saccade; "
        "print(torch.nn.functional.scaled_dot_product_attention is torch._C._nn.scaled_dot_product_attention)"
    )
    assert python("-c", code).stdout == "True\n"


def test_no_warning_is_raised_by_switching():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saccade.enable()
        saccade.disable()
