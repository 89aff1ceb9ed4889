"""What is no dense tensor or no number is refused by name, before torch says something about itself."""

import re

import numpy as np
import pytest
import torch
from torch import nn

import hypersimplex.torch as hst
from hypersimplex.torch import BalancedRouter, HyperSimplexLoss, hypersimplex_loss

X, Y = torch.randn(6, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0, 1, 2])
HUGE = 10**400
ROWS = [torch.ones(3), torch.ones(2)]


def odd(layout):
    if layout == "nested":
        return torch.nested.nested_tensor(ROWS)
    if layout == "jagged":
        return torch.nested.nested_tensor(ROWS, layout=torch.jagged)
    return X.to_sparse() if layout == "sparse" else X.to_sparse_csr()


def chunks(**given):
    arguments = {"inputs": X, "chunk_size": 2} | given
    return hst.backward_in_chunks(nn.Linear(3, 3), hypersimplex_loss, targets=Y, **arguments)


def trained():
    criterion = HyperSimplexLoss(num_classes=3)
    criterion(X.clone().requires_grad_(), Y)
    return criterion.calibrate([(X, Y)])


TAKES_TENSORS = {
    "soft_topk": ("input", lambda t: hst.soft_topk(t, 1)),
    "gradients": ("input", lambda t: hst.soft_topk(t.clone().requires_grad_(), 1)),
    "threshold": ("input", lambda t: hst.threshold(t, 1)),
    "binary_argmax": ("input", lambda t: hst.binary_argmax(t, 1)),
    "box_section": ("input", lambda t: hst.box_section(t, 1.0)),
    "segments": ("input", lambda t: hst.soft_topk_segments(t, 1, torch.tensor([0, 3]))),
    "offsets": ("offsets", lambda t: hst.soft_topk_segments(X[0], 1, t.long())),
    "k": ("k", lambda t: hst.soft_topk(X, t)),
    "tau": ("tau", lambda t: hst.soft_topk(X, 1, t)),
    "assignment": ("input", lambda t: hst.soft_assignment(t, 1, 4.0)),
    "k of tokens": ("k", lambda t: hst.soft_assignment(X, t, 4.0)),
    "capacity": ("capacity", lambda t: hst.soft_assignment(X, 1, t)),
    "router": ("input", lambda t: BalancedRouter(3, 1)(t)),
    "router that serves": ("input", lambda t: BalancedRouter(3, 1).eval()(t)),
    "loss": ("input", lambda t: hypersimplex_loss(t, Y)),
    "gradient of the loss": ("input", lambda t: hypersimplex_loss(t.clone().requires_grad_(), Y)),
    "loss of each sample": ("input", lambda t: hypersimplex_loss(t, Y, reduction="none")),
    "smoothed": ("input", lambda t: hypersimplex_loss(t, Y, label_smoothing=0.1)),
    "another ignore_index": ("input", lambda t: hypersimplex_loss(t, Y, ignore_index=1)),
    "target": ("target", lambda t: hypersimplex_loss(X, t)),
    "labels": ("target", lambda t: hypersimplex_loss(X, t.long())),
    "smoothed target": ("target", lambda t: hypersimplex_loss(X, t, label_smoothing=0.1)),
    "weight": ("weight", lambda t: hypersimplex_loss(X, Y, t)),
    "k of classes": ("k", lambda t: hypersimplex_loss(X, Y, k=t)),
    "prior": ("prior", lambda t: hypersimplex_loss(X, Y, prior=t)),
    "tau of classes": ("tau", lambda t: hypersimplex_loss(X, Y, tau=t)),
    "module": ("input", lambda t: HyperSimplexLoss()(t, Y)),
    "predict": ("logits", lambda t: trained().predict(t)),
    "scores": ("logits", lambda t: trained().scores(t)),
    "probabilities": ("logits", lambda t: trained().probabilities(t)),
    "calibrate": ("logits", lambda t: trained().calibrate([(t, Y)])),
    "calibrate without targets": ("logits", lambda t: HyperSimplexLoss(k=1).calibrate([t])),
    "chunks": ("inputs", lambda t: chunks(inputs=t)),
}

TAKES_ROWS = {"soft_topk", "gradients", "threshold", "binary_argmax"}


# torch says of CSR that it is in beta, and of nested tensors that they are.
@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("layout", ["sparse", "csr", "nested", "jagged"])
@pytest.mark.parametrize("of", TAKES_TENSORS)
def test_neither_sparse_nor_nested(of, layout):
    name, call = TAKES_TENSORS[of]
    if layout == "jagged" and of in TAKES_ROWS:
        pytest.skip("takes nested tensors of this layout: test_nested.py")
    what = "a nested tensor" if layout in ("nested", "jagged") else "a tensor of layout torch.sparse_c"
    message = f"^{name} must be a dense tensor with values in memory, got {what}"
    tensor = odd(layout)
    with pytest.raises(TypeError, match=message):
        call(tensor)


TAKES_NUMBERS = {
    "soft_topk": ("k", lambda v: hst.soft_topk(X, v)),
    "many": ("k", lambda v: hst.soft_topk(X, [v] * 6)),
    "threshold": ("tau", lambda v: hst.threshold(X, 1, v)),
    "binary_argmax": ("k", lambda v: hst.binary_argmax(X, v)),
    "segments": ("k", lambda v: hst.soft_topk_segments(X[0], v, torch.tensor([0, 3]))),
    "k of tokens": ("k", lambda v: hst.soft_assignment(X, v, 4.0)),
    "capacity": ("capacity", lambda v: hst.soft_assignment(X, 1, v)),
    "tau of tokens": ("tau", lambda v: hst.soft_assignment(X, 1, 4.0, v)),
    "loss": ("k", lambda v: hypersimplex_loss(X, Y, k=v)),
    "smoothing": ("label_smoothing", lambda v: hypersimplex_loss(X, Y, label_smoothing=v)),
    "module": ("tau", lambda v: HyperSimplexLoss(tau=v)),
    "momentum": ("momentum", lambda v: HyperSimplexLoss(momentum=v)),
    "router": ("k", lambda v: BalancedRouter(8, v)),
    "tau of a router": ("tau", lambda v: BalancedRouter(8, 2, tau=v)),
    "capacity_factor": ("capacity_factor", lambda v: BalancedRouter(8, 2, v)),
}


@pytest.mark.parametrize("value", [HUGE, -HUGE])
@pytest.mark.parametrize("of", TAKES_NUMBERS)
def test_whole_numbers_that_float64_does_not_hold(of, value):
    name, call = TAKES_NUMBERS[of]
    with pytest.raises(ValueError, match=f"^{name} must be a number that float64 holds, got one beyond 1e308$"):
        call(value)


def test_a_chunk_may_be_larger_than_any_batch():
    torch.manual_seed(0)
    value = chunks(chunk_size=HUGE)
    torch.manual_seed(0)
    assert torch.equal(value, chunks(chunk_size=6))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ((2.5, 1), TypeError, "num_experts must be a whole number, got 2.5"),
        (("8", 2), TypeError, "num_experts must be a whole number, got '8'"),
        ((True, 1), TypeError, "num_experts must be a whole number, got True"),
        ((0, 0), ValueError, "num_experts must be at least 1, got 0"),
        ((8, "2"), TypeError, "k must be a number, got '2'"),
        ((8, None), TypeError, "k must be a number, got None"),
        ((8, torch.tensor(9.0)), ValueError, "k must be between 0 and 8 (the size of experts), got 9"),
        ((8, 2, "x"), TypeError, "capacity_factor must be a number, got 'x'"),
        ((8, 2, 1.0, "x"), TypeError, "tau must be a number, got 'x'"),
        ((8, 2, 1.0, torch.tensor(-1.0)), ValueError, "tau must be positive, got -1.0"),
    ],
)
def test_a_router_of_odd_numbers(given, error, message):
    with pytest.raises(error, match="^" + re.escape(message) + "$"):
        BalancedRouter(*given)


def test_a_router_of_numbers_in_other_clothes():
    expected = BalancedRouter(3, 1, 1.0, 0.5)(X)
    for given in ((np.int64(3), np.float64(1)), (torch.tensor(3), torch.tensor(1))):
        tau = nn.Parameter(torch.tensor(0.5))
        torch.testing.assert_close(BalancedRouter(*given, 1.0, tau)(X), expected)


@pytest.mark.parametrize("value", ["x", True, [0.1], torch.ones(2), 0j])
def test_momentum_is_a_number(value):
    with pytest.raises(TypeError, match=r"^momentum must be a number, got "):
        HyperSimplexLoss(momentum=value)


@pytest.mark.parametrize("value", [np.float32(0.5), torch.tensor(0.5)])
def test_momentum_by_any_number(value):
    given, plain = HyperSimplexLoss(momentum=value), HyperSimplexLoss(momentum=0.5)
    for criterion in (given, plain):
        for scale in (1.0, 2.0):
            criterion((scale * X).requires_grad_(), Y)
    assert torch.equal(given.threshold, plain.threshold)
    assert repr(given) == repr(plain)


@pytest.mark.parametrize("name", ["k", "tau", "prior"])
def test_a_module_refuses_text(name):
    with pytest.raises(TypeError, match=f"^{name} must be a number or an array of numbers, got str$"):
        HyperSimplexLoss(**{name: "x"})


@pytest.mark.parametrize("kind", [nn.LazyLinear, nn.LazyConv1d])
def test_a_layer_without_weights_is_not_folded_into(kind):
    layer = kind(3) if kind is nn.LazyLinear else kind(3, 1)
    message = f"^linear must have its weight: call it once before, got {kind.__name__} without one$"
    criterion = trained()
    with pytest.raises(ValueError, match=message):
        criterion.fold_into_(layer)
    layer(torch.randn(2, 5) if kind is nn.LazyLinear else torch.randn(2, 5, 4))
    assert criterion.fold_into_(layer) is layer
