"""The other curves in an ONNX graph: the bounds and sums of `_solve`, written as nodes, and an unrolled search."""

from typing import Any

from hypersimplex._search import ACTIVE, ACTIVE_SUM, ONES, Start
from hypersimplex._solve import Problem, Slices, solve, sums_at

_DOUBLE, _INT = 11, 7  # as ONNX counts types
_HALVINGS, _NEWTON_STEPS = 16, 4  # from bounds some tens of tau apart


class Node:
    """A tensor of float64 or of truth values in a graph, with the operators of an array."""

    def __init__(self, op: Any, value: Any) -> None:
        self.op, self.value = op, value

    def _with(self, name: str, other: Any, turned: bool = False) -> "Node":
        first, second = self.value, constant(self.op, other)
        return Node(self.op, getattr(self.op, name)(*((second, first) if turned else (first, second))))

    def __add__(self, other: Any) -> "Node":
        return self._with("Add", other)

    def __sub__(self, other: Any) -> "Node":
        return self._with("Sub", other)

    def __rsub__(self, other: Any) -> "Node":
        return self._with("Sub", other, turned=True)

    def __mul__(self, other: Any) -> "Node":
        return self._with("Mul", other)

    def __truediv__(self, other: Any) -> "Node":
        return self._with("Div", other)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> "Node":
        return Node(self.op, self.op.Neg(self.value))

    def __eq__(self, other: object) -> "Node":  # type: ignore[override]
        return self._with("Equal", other)

    def __lt__(self, other: Any) -> "Node":
        return self._with("Less", other)

    def __le__(self, other: Any) -> "Node":
        return self._with("LessOrEqual", other)

    def __gt__(self, other: Any) -> "Node":
        return self._with("Greater", other)

    def __ge__(self, other: Any) -> "Node":
        return self._with("GreaterOrEqual", other)

    def __and__(self, other: Any) -> "Node":
        return self._with("And", other)

    def __or__(self, other: Any) -> "Node":
        return self._with("Or", other)

    def __invert__(self) -> "Node":
        return Node(self.op, self.op.Not(self.value))


def constant(op: Any, value: Any) -> Any:
    if isinstance(value, Node):
        return value.value
    return op.Cast(op.Constant(value_float=float(value)), to=_DOUBLE)


class Graph:
    """What `_solve` asks of an array library."""

    inf, nan = float("inf"), float("nan")

    def __init__(self, op: Any) -> None:
        self.op = op

    def where(self, condition: Node, yes: Any, no: Any) -> Node:
        return Node(self.op, self.op.Where(condition.value, constant(self.op, yes), constant(self.op, no)))

    def exp(self, x: Node) -> Node:
        return Node(self.op, self.op.Exp(x.value))

    def log(self, x: Node) -> Node:
        return Node(self.op, self.op.Log(x.value))

    def log1p(self, x: Node) -> Node:
        return self.log(1 + x)

    def ceil(self, x: Node) -> Node:
        return Node(self.op, self.op.Ceil(x.value))

    def isfinite(self, x: Node) -> Node:
        return x - x == 0.0


def project(op: Any, curve: str, x: Any, k: Any, tau: Any, dim: int) -> tuple[Any, Any]:
    """Nodes of y and mu; all in float64, k and tau shaped to meet x. mu keeps size 1 along dim."""
    graph, axis = Graph(op), [dim]

    def total(terms: Node) -> Node:
        return Node(op, op.ReduceSum(terms.value, axis, keepdims=1))

    def most(entries: Node) -> Node:
        return Node(op, op.ReduceMax(entries.value, axis, keepdims=1))

    def largest(entries: Node, place: Node) -> Node:
        number = op.Gather(op.Shape(entries.value), op.Constant(value_ints=axis))
        values, _ = op.TopK(entries.value, number, axis=dim, largest=1, sorted=1)
        return Node(op, op.GatherElements(values, op.Cast((place - 1.0).value, to=_INT), axis=dim))

    def find(xp: Graph, curve: str, p: Problem, start: Start) -> Node:
        nu: Node
        nu, lo, hi = start.mu, start.lo, start.hi
        for step in range(_HALVINGS + _NEWTON_STEPS):
            table = sums_at(xp, curve, p.z, nu, 0.0, total)
            r = table[ACTIVE_SUM] - (p.k - table[ONES])
            lo, hi = xp.where(r > 0, nu, lo), xp.where(r > 0, hi, nu)
            newton = nu + r / xp.where(table[ACTIVE] > 0, table[ACTIVE], 1.0)
            middle = lo * 0.5 + hi * 0.5
            nu = middle if step < _HALVINGS else xp.where((newton > lo) & (newton < hi), newton, nu)
        return nu

    some = total(Node(op, x))  # of a slice: k and tau get its shape
    k, tau = (graph.where(some == some, Node(op, value), Node(op, value)) for value in (k, tau))
    y, mu = solve(graph, curve, Node(op, x), k, tau, Slices(total, most, largest, find))
    return y.value, mu.value
