"""Translations of the operators for torch.onnx.export: TopK and CumSum where the kernel searches.

    torch.onnx.export(model, (x,), "model.onnx", dynamo=True, custom_translation_table=translations())

The sum of clip((x - mu)/tau, 0, 1) is linear between its 2n breakpoints, the x and the x - tau. Sorted, with the number
of active entries between two of them as a cumulative sum, they give the sum at each breakpoint, and so the piece on
which it is k. The other curves are searched, in `_onnx_curves`. What comes out are the library's own results; a k out
of range is not reported there.
"""

from collections.abc import Callable
from typing import Any

from hypersimplex.torch import _onnx_curves, _operators

_DOUBLE, _INT = 11, 7  # as ONNX counts types
_ROUNDING = 1e-12


def translations() -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return what torch.onnx.export(dynamo=True) takes as custom_translation_table. Needs onnxscript."""
    return {_operators.project.default: _project, _operators.binary.default: _binary}


def _op() -> Any:
    from onnxscript import opset18

    return opset18


def _project(x: Any, k: Any, tau: Any, dim: int, curve: str = "ramp") -> Any:
    op, axis = _op(), [dim]
    wide, k, tau = op.Cast(x, to=_DOUBLE), _over(k, dim), _over(tau, dim)
    if curve != "ramp":
        y, mu = _onnx_curves.project(op, curve, wide, k, tau, dim)
        return op.CastLike(y, x), op.Squeeze(mu, axis)
    zero, one, infinite = (op.Constant(value_float=value) for value in (0.0, 1.0, float("inf")))
    zero, one, infinite = (op.Cast(value, to=_DOUBLE) for value in (zero, one, infinite))
    near = _near(op, wide, tau, dim, zero)

    def share(mu: Any) -> Any:
        y = op.Min(op.Max((near - mu) / tau, zero), one)
        y = op.Where(y < op.CastLike(op.Constant(value_float=_ROUNDING), y), zero, y)
        return op.Where(one - y < op.CastLike(op.Constant(value_float=_ROUNDING), y), one, y)

    y = share(_piece(op, near, k, tau, dim, zero))
    active = op.And(y > zero, y < one)
    count = op.ReduceSum(op.Cast(active, to=_DOUBLE), axis, keepdims=1)
    ones = op.ReduceSum(op.Cast(op.Equal(y, one), to=_DOUBLE), axis, keepdims=1)
    total = op.ReduceSum(op.Where(active, near, zero), axis, keepdims=1)
    mu = (total - tau * (k - ones)) / op.Max(count, one)
    y = op.Where(count > zero, share(mu), y)
    # Without an active entry the middle of the interval, or its finite end.
    zeros_end = op.ReduceMax(op.Where(op.Equal(y, zero), wide, op.Neg(infinite)), axis, keepdims=1)
    ones_end = op.ReduceMin(op.Where(op.Equal(y, one), wide, infinite), axis, keepdims=1) - tau
    middle = (zeros_end + ones_end) / (one + one)
    middle = op.Where(op.IsInf(zeros_end), ones_end, op.Where(op.IsInf(ones_end), zeros_end, middle))
    top, top_near = (op.ReduceMax(op.Where(active, each, op.Neg(infinite)), axis, keepdims=1) for each in (wide, near))
    mu = op.Where(count > zero, top + (mu - top_near), middle)
    broken = _broken(op, wide, axis)
    nan = op.Cast(op.Constant(value_float=float("nan")), to=_DOUBLE)
    return op.CastLike(op.Where(broken, nan, y), x), op.Squeeze(op.Where(broken, nan, mu), axis)


def _near(op: Any, x: Any, tau: Any, dim: int, zero: Any) -> Any:
    """x from its largest entry down, gaps beyond 2 tau shortened: beside what lies far off, tau would be rounded away.

    No two entries are active across such a gap, so y is the same; and infinities become finite.
    """
    values, at = op.TopK(x, op.Gather(op.Shape(x), op.Constant(value_ints=[dim])), axis=dim, largest=1, sorted=1)
    first, second, last, end = (op.Constant(value_ints=[i]) for i in (0, 1, -1, 2**31))
    axes = op.Constant(value_ints=[dim])
    upper, lower = op.Slice(values, first, last, axes), op.Slice(values, second, end, axes)
    gaps = op.Where(op.Equal(upper, lower), zero, op.Min(upper - lower, tau + tau))
    begin = op.Expand(zero, op.Shape(op.Slice(values, first, second, axes)))
    down = op.Neg(op.CumSum(op.Concat(begin, gaps, axis=dim), op.Constant(value_int=dim)))
    return op.ScatterElements(down, at, down, axis=dim)


def _piece(op: Any, x: Any, k: Any, tau: Any, dim: int, zero: Any) -> Any:
    """The threshold from the breakpoints around it."""
    points = op.Concat(x, x - tau, axis=dim)
    one = op.Cast(op.Constant(value_float=1.0), to=_DOUBLE)
    opens = op.Expand(one, op.Shape(x))
    number = op.Gather(op.Shape(points), op.Constant(value_ints=[dim]))
    values, at = op.TopK(points, number, axis=dim, largest=1, sorted=1)
    along = op.Constant(value_int=dim)
    active = op.CumSum(op.GatherElements(op.Concat(opens, op.Neg(opens), axis=dim), at, axis=dim), along)
    first, last, end = op.Constant(value_ints=[0]), op.Constant(value_ints=[-1]), op.Constant(value_ints=[2**31])
    axes, second = op.Constant(value_ints=[dim]), op.Constant(value_ints=[1])
    steps = op.Slice(values, first, last, axes) - op.Slice(values, second, end, axes)
    sums = op.CumSum(op.Slice(active, first, last, axes) * steps / tau, along)
    # The sum at the breakpoint before k is reached, which is 0 at the first one.
    sums = op.Concat(op.Slice(sums, first, second, axes) * zero, sums, axis=dim)
    reached = op.ReduceSum(op.Cast(op.Slice(sums, second, end, axes) < k, to=_INT), [dim], keepdims=1)
    reached = op.Min(reached, number - op.Constant(value_int=2))
    mu, before, count = (op.GatherElements(each, reached, axis=dim) for each in (values, sums, active))
    return mu - (k - before) * tau / op.Max(count, one)


def _binary(x: Any, k: Any, dim: int) -> Any:
    op = _op()
    k = _over(k, dim)
    number = op.Gather(op.Shape(x), op.Constant(value_ints=[dim]))
    _, at = op.TopK(x, number, axis=dim, largest=1, sorted=1)  # of equal entries the lower index first
    ones = op.Expand(op.Cast(op.Constant(value_float=1.0), to=_DOUBLE), op.Shape(x))
    rank = op.CumSum(ones, op.Constant(value_int=dim))
    chosen = op.Cast(op.Not(rank > k), to=_DOUBLE)
    y = op.ScatterElements(chosen, at, chosen, axis=dim)
    nan = op.Cast(op.Constant(value_float=float("nan")), to=_DOUBLE)
    return op.CastLike(op.Where(_broken(op, x, [dim]), nan, y), x)


def _broken(op: Any, x: Any, axis: list[int]) -> Any:
    return op.ReduceMax(op.Cast(op.IsNaN(x), to=_INT), axis, keepdims=1) > op.Constant(value_int=0)


def _over(value: Any, dim: int) -> Any:
    """One number for all slices, or one for each, to meet the entries along dim."""
    wide = _op().Cast(value, to=_DOUBLE)
    return wide if len(value.shape) == 0 else _op().Unsqueeze(wide, [dim])
