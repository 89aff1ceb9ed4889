"""How each peer is called for a top-k of the slices of x along dim. A peer is imported by its function here."""

import contextlib
import importlib
import importlib.util
import io
import sys
import types
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

Function = Callable[..., Any]


def ours(_: Path) -> Function:
    from hypersimplex.torch import soft_binary_argmax

    return lambda x, k, dim: soft_binary_argmax(x, k, dim=dim)


def softmax(_: Path) -> Function:
    return lambda x, k, dim: torch.softmax(x, dim)


def ours_in_jax(_: Path) -> Function:
    return importlib.import_module("hypersimplex.jax").soft_binary_argmax  # type: ignore[no-any-return]


def entmax_budget(_: Path) -> Function:
    entmax = importlib.import_module("entmax")
    # The last dim by its negative name: with the other one the backward pass of entmax 1.3 fails.
    return lambda x, k, dim: entmax.budget_bisect(x, budget=k, dim=-1 if dim == x.ndim - 1 else dim)


def entmax_sparsemax(_: Path) -> Function:
    entmax = importlib.import_module("entmax")
    return lambda x, k, dim: entmax.sparsemax(x, dim=dim)


def torchsort_pav(_: Path) -> Function:
    ops = importlib.import_module("torchsort.ops")
    forward, backward = ops.isotonic_l2["cpu"], ops.isotonic_l2_backward["cpu"]

    class Project(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, k: int) -> Tensor:
            s, order = torch.sort(x, descending=True)
            weights = torch.zeros_like(s)
            weights[:, :k] = 1
            dual = forward(s - weights)
            back = torch.argsort(order)
            ctx.save_for_backward(s, dual, order, back)
            y: Tensor = (s - dual).gather(1, back)
            return y

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Any:
            s, dual, order, back = ctx.saved_tensors
            (v,) = gradients
            return v - backward(s, dual, v.gather(1, order).contiguous()).gather(1, back), None

    return _along_last(lambda x, k: Project.apply(x, k))  # type: ignore[no-untyped-call]


def torchsort_rank(_: Path) -> Function:
    torchsort = importlib.import_module("torchsort")
    return _along_last(lambda x, k: torchsort.soft_rank(-x, regularization_strength=0.1))


def paper(folder: Path) -> Function:
    path = folder / "Differentiable-Zero-One-Loss-via-Hypersimplex-Projections/src/soft_binary_arg_max_ops.py"
    project = _from_file("soft_binary_arg_max_ops", path).soft_binary_argmax_k
    return _along_last(lambda x, k: project(x, k, 1.0))


def fast_soft_sort(folder: Path) -> Function:
    with _path(folder / "fast-soft-sort"):
        numpy_ops = importlib.import_module("fast_soft_sort.numpy_ops")
        torch_ops = importlib.import_module("fast_soft_sort.pytorch_ops")

    def project(x: Tensor, k: int) -> Any:
        weights = torch.zeros(x.shape[-1])
        weights[:k] = 1
        row = torch_ops.wrap_class(numpy_ops.Projection, input_w=weights.numpy())
        return torch_ops.map_tensor(row.apply, x)

    return _along_last(project)


def jaxopt(_: Path) -> Function:
    jax, projection = importlib.import_module("jax"), importlib.import_module("jaxopt.projection")

    def row(x: Any, k: float) -> Any:
        ones = jax.numpy.ones_like(x)
        return projection.projection_box_section(x, (jax.numpy.zeros_like(x), ones, ones, float(k)))

    return lambda x, k: jax.vmap(lambda r: row(r, k))(x)


def sparse_pav(folder: Path) -> Function:
    mask = _sparse_soft_topk(folder).sparse_soft_topk_mask_pav
    jax = importlib.import_module("jax")
    pav: Any = importlib.import_module("sparse_soft_topk._src.isotonic_pav")

    def callback(function: Function, result: Any, *operands: Any, vectorized: bool) -> Any:
        """It calls JAX as it was before 0.6: with `vectorized`, and NumPy arrays for the function."""
        call = lambda *arrays: function(*map(np.asarray, arrays))  # noqa: E731
        return jax.pure_callback(call, result, *operands, vmap_method="sequential")

    pav.jax = types.SimpleNamespace(**{**vars(jax), "pure_callback": callback})
    return lambda x, k: mask(x, k, 1.0, 2.0)


def sparse_dykstra(folder: Path) -> Function:
    jax, mask = importlib.import_module("jax"), _sparse_soft_topk(folder).sparse_soft_topk_mask_dykstra
    return lambda x, k: jax.vmap(lambda r: mask(r, k, 1.0))(x)


def _sparse_soft_topk(folder: Path) -> Any:
    with _path(folder / "google-research"):
        return importlib.import_module("sparse_soft_topk._src.topk")


def cvxpylayers(_: Path) -> Function:
    cvxpy, layers = importlib.import_module("cvxpy"), importlib.import_module("cvxpylayers.torch")

    @lru_cache(maxsize=2)
    def layer(n: int, k: float) -> Any:
        x, y = cvxpy.Parameter(n), cvxpy.Variable(n)
        rules = [y >= 0, y <= 1, cvxpy.sum(y) == k]
        # The square multiplied out and a tighter tolerance than the default: only so are the digits right.
        problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(y) / 2 - x @ y), rules)
        return layers.CvxpyLayer(problem, parameters=[x], variables=[y])

    arguments = {"eps": 1e-8, "max_iters": 20_000}
    return _along_last(lambda x, k: layer(x.shape[-1], k)(x, solver_args=arguments)[0])


def lml(folder: Path) -> Function:
    layer = _from_file("lml_of_locuslab", folder / "lml/lml.py").LML
    return _along_last(lambda x, k: layer(N=k, verbose=-1)(x))


def lapsum(folder: Path) -> Function:
    """Its Python file with its CPU source compiled here: its own build asks for CUDA."""
    from torch.utils.cpp_extension import load

    inside = folder / "LapSum/lapsum/lapsum/topk"
    if not inside.is_dir():
        raise FileNotFoundError(f"no folder {inside}")
    package = types.ModuleType("lapsum.topk.extension")
    package.soft_topk_cpu = load("soft_topk_cpu", [str(inside / "cpu/soft_topk.cpp")], extra_cflags=["-O3"])  # type: ignore[attr-defined]
    package.soft_topk_cuda = None  # type: ignore[attr-defined]
    for name in ("lapsum", "lapsum.topk", "lapsum.topk.extension"):
        sys.modules[name] = package
    soft_topk = _from_file("lapsum.topk.extension.soft_topk", inside / "extension/soft_topk.py").soft_topk

    def project(x: Tensor, k: float) -> Any:
        scale = torch.ones(1)  # a tensor, as its backward hands a gradient to it
        return soft_topk(x, torch.full((x.shape[0], 1), float(k), dtype=x.dtype), scale)

    return _along_last(project)


def softtorch(_: Path) -> Function:
    topk = importlib.import_module("softtorch").topk
    return _along_last(lambda x, k: topk(x, k, method="softsort", standardize=False, softness=1.0).indices.sum(-2))


def difftopk(_: Path) -> Function:
    with contextlib.redirect_stdout(io.StringIO()):  # it prints at import that torch-sparse is not needed
        module = importlib.import_module("difftopk")

    @lru_cache(maxsize=2)
    def network(n: int, k: int) -> Any:
        return module.DiffTopkNet("bitonic", n, k)

    return _along_last(lambda x, k: network(x.shape[-1], k)(x)[1].sum(-1))


def _along_last(function: Callable[[Tensor, Any], Any]) -> Function:
    """For peers that know rows only: other slices are brought there and back, as a user would have to."""

    def call(x: Tensor, k: float, dim: int) -> Any:
        if dim in (-1, x.ndim - 1):
            return function(x, k)
        return function(x.movedim(dim, -1).contiguous(), k).movedim(-1, dim)

    return call


def _from_file(name: str, path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _path(folder: Path) -> Any:
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {folder}")
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
