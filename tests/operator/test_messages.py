"""Arguments of the wrong kind: the error names the argument, the rule and the value."""

import numpy as np
import pytest
import torch

import hypersimplex as hs
import hypersimplex.torch as ht

X = np.array([[0.1, 1.6, 1.0], [2.0, -3.0, 0.5]])
FUNCTIONS = [hs.soft_binary_argmax, hs.threshold, hs.binary_argmax]
TORCH = [ht.soft_binary_argmax, ht.threshold, ht.binary_argmax]
TOO_LARGE = "k must be a number that float64 holds, got one beyond 1e308"


def name(function: object) -> str:
    return function.__name__  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("axis", ["1", 1.0, None, (0,)])
@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_axis_of_another_type(function, axis):
    with pytest.raises(TypeError, match=f"^axis must be a whole number, got {type(axis).__name__}$"):
        function(X, 1, axis=axis)


@pytest.mark.parametrize("dim", ["1", 1.0, None, (0,)])
@pytest.mark.parametrize("function", TORCH, ids=name)
def test_dim_of_another_type(function, dim):
    for k in (1, torch.tensor(1.0)):
        with pytest.raises(TypeError, match=f"^dim must be a whole number, got {type(dim).__name__}$"):
            function(torch.tensor(X), k, dim=dim)


@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_a_number_beyond_float64(function):
    with pytest.raises(ValueError, match=TOO_LARGE):
        function(X, 10**400)


@pytest.mark.parametrize("function", TORCH, ids=name)
def test_a_number_beyond_float64_in_torch(function):
    with pytest.raises(ValueError, match=TOO_LARGE):
        function(torch.tensor(X), 10**400)
    with pytest.raises(ValueError, match=TOO_LARGE):
        function(torch.tensor(X, requires_grad=True), 10**400)


@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_masked_arrays_would_lose_their_mask(function):
    masked = np.ma.masked_array(X, X > 1)
    with pytest.raises(TypeError, match="x must be an array without a mask"):
        function(masked, 1)
    with pytest.raises(TypeError, match="k must be an array without a mask"):
        function(X, np.ma.masked_array([1, 1], [True, False]))


@pytest.mark.parametrize("k", [np.array([1 + 1j, 1]), np.complex64(1 + 1j), 1 + 1j])
@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_complex_k_would_lose_its_imaginary_part(function, k):
    with pytest.raises(TypeError, match="k must be real, got complex"):
        function(X, k)


@pytest.mark.parametrize("function", TORCH, ids=name)
def test_k_of_another_kind_in_torch(function):
    x = torch.tensor(X)
    for k in (torch.tensor([1 + 1j, 1]), np.array([1 + 1j, 1]), 1 + 1j):
        with pytest.raises(TypeError, match=r"k must be real, got (torch\.)?complex"):
            function(x, k)
    with pytest.raises(TypeError, match="k must be a dense tensor with values in memory, got one on meta"):
        function(x, torch.ones(2, device="meta"))
    with pytest.raises(TypeError, match=r"k must be a dense tensor.*got a tensor of layout torch.sparse_coo"):
        function(x, torch.ones(2).to_sparse())
    with pytest.raises(TypeError, match="k must be an array without a mask"):
        function(x, np.ma.masked_array([1, 1], [True, False]))


@pytest.mark.parametrize("function", TORCH, ids=name)
def test_a_sparse_input(function):
    with pytest.raises(TypeError, match=r"input must be a dense tensor.*got a tensor of layout torch.sparse_coo"):
        function(torch.tensor(X).to_sparse(), 1)
