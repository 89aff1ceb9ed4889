"""backward_in_chunks gives the gradient of the whole batch, with the activations of one chunk."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hypersimplex.torch import HyperSimplexLoss, backward_in_chunks
from hypersimplex.torch.loss import hypersimplex_loss
from tests.torch.ranks import ranks

FEATURES, CLASSES = 6, 4


def problem(samples=22, seed=0, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(samples, FEATURES, dtype=dtype, generator=rng)
    return x, torch.randint(CLASSES, (samples,), generator=rng)


def network(*extra, seed=0, dtype=torch.float64):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), *extra, nn.Linear(16, CLASSES)).to(dtype)


def gradients(model):
    return [parameter.grad for parameter in model.parameters()]


def same(got, expected, tolerance=1e-12):
    assert max(float(e.abs().max()) for e in expected) > 1e-3, "an expected zero proves nothing"
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("chunk_size", [1, 5, 11, 22, 100])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_equals_the_whole_batch(chunk_size, reduction):
    x, y = problem()
    model, whole = network(), network()

    def loss(logits, target):
        return hypersimplex_loss(logits, target, reduction=reduction)

    value = backward_in_chunks(model, loss, x, y, chunk_size=chunk_size)
    expected = loss(whole(x), y)
    expected.backward()
    assert not value.requires_grad
    torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=0)
    same(gradients(model), gradients(whole))


def test_accumulating_small_losses_is_something_else():
    """What most training loops do: each chunk its own loss, weighted by its size."""
    x, y = problem()
    naive, whole = network(), network()
    for a, b in zip(x.split(4), y.split(4), strict=True):
        (hypersimplex_loss(naive(a), b) * len(a) / len(x)).backward()
    hypersimplex_loss(whole(x), y).backward()
    difference = sum((a - b).norm() ** 2 for a, b in zip(gradients(naive), gradients(whole), strict=True))
    assert difference > 0.2**2 * sum(g.norm() ** 2 for g in gradients(whole))


def test_gradients_are_added_to_what_is_there():
    x, y = problem()
    model, whole = network(), network()
    for _ in range(2):
        backward_in_chunks(model, hypersimplex_loss, x, y, chunk_size=4)
        hypersimplex_loss(whole(x), y).backward()
    same(gradients(model), gradients(whole))


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(FEATURES, CLASSES).double()

    def forward(self, first, second):
        return self.linear(first) - self.linear(second) ** 2


@pytest.mark.parametrize("kind", [tuple, list, dict])
def test_several_inputs(kind):
    (a, y), (b, _) = problem(), problem(seed=1)
    inputs = {"second": b, "first": a} if kind is dict else kind((a, b))
    model, whole = TwoInputs(), TwoInputs()
    backward_in_chunks(model, hypersimplex_loss, inputs, y, chunk_size=7)
    hypersimplex_loss(whole(a, b), y).backward()
    same(gradients(model), gradients(whole))


def test_dropout_draws_the_same_masks_again():
    """The expected gradient is that of the joined logits of the chunks, in one graph, from the same random state."""
    x, y = problem()
    model, whole = network(nn.Dropout(0.5)), network(nn.Dropout(0.5))
    torch.manual_seed(7)
    backward_in_chunks(model, hypersimplex_loss, x, y, chunk_size=5)
    after = torch.rand(3)
    torch.manual_seed(7)
    hypersimplex_loss(torch.cat([whole(part) for part in x.split(5)]), y).backward()
    same(gradients(model), gradients(whole))
    assert torch.equal(after, torch.rand(3)), "the random numbers go on as after one forward pass"


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_move_once(momentum):
    x, y = problem()
    model, whole = (network(nn.BatchNorm1d(16, momentum=momentum)) for _ in range(2))
    for _ in range(2):
        backward_in_chunks(model, hypersimplex_loss, x, y, chunk_size=8)
        hypersimplex_loss(torch.cat([whole(part) for part in x.split(8)]), y).backward()
    same(gradients(model), gradients(whole))
    assert int(model[2].num_batches_tracked) == 6
    for name, buffer in whole.named_buffers():
        assert torch.equal(model.get_buffer(name), buffer)


def test_a_forward_pass_that_uses_its_buffers_is_replayed():
    """Spectral norm takes a step of its power iteration with every forward pass."""
    x, y = problem()
    model = network()
    nn.utils.parametrizations.spectral_norm(model[0])
    whole = copy.deepcopy(model)
    backward_in_chunks(model, hypersimplex_loss, x, y, chunk_size=5)
    hypersimplex_loss(torch.cat([whole(part) for part in x.split(5)]), y).backward()
    same(gradients(model), gradients(whole))


def test_evaluation_mode_stays_as_it_is():
    x, y = problem()
    model = network(nn.BatchNorm1d(16), nn.Dropout(0.5)).eval()
    whole = copy.deepcopy(model)
    backward_in_chunks(model, hypersimplex_loss, x, y, chunk_size=5)
    hypersimplex_loss(whole(x), y).backward()
    same(gradients(model), gradients(whole))
    assert int(model[2].num_batches_tracked) == 0


def test_the_loss_is_called_once_and_its_own_parameters_learn():
    x, y = problem()
    model, whole = network(), network()
    losses = [HyperSimplexLoss(tau=nn.Parameter(torch.tensor(0.7, dtype=torch.float64))) for _ in range(2)]
    backward_in_chunks(model, losses[0], x, y, chunk_size=5)
    losses[1](whole(x), y).backward()
    same([losses[0].tau.grad, *gradients(model)], [losses[1].tau.grad, *gradients(whole)])
    same(losses[0].threshold, losses[1].threshold)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_gradient_scaling(dtype):
    x, y = problem(dtype=torch.float32)
    model, whole = network(dtype=torch.float32), network(dtype=torch.float32)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    with torch.autocast("cpu", dtype=dtype):
        value = backward_in_chunks(model, hypersimplex_loss, x, y, chunk_size=5, scaler=scaler)
        expected = hypersimplex_loss(whole(x), y)
    scaler.scale(expected).backward()
    torch.testing.assert_close(value, expected.detach(), rtol=1e-6, atol=0)
    assert all(gradient.dtype == torch.float32 for gradient in gradients(model))
    torch.testing.assert_close(gradients(model), gradients(whole), rtol=0.02, atol=0.02 * 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler.unscale_(optimizer)
    with torch.autocast("cpu", dtype=dtype):
        plain = network(dtype=torch.float32)
        backward_in_chunks(plain, hypersimplex_loss, x, y, chunk_size=5)
    torch.testing.assert_close(gradients(model), gradients(plain), rtol=0.02, atol=1e-3)


def kept_bytes(function):
    """The most that autograd keeps for backward passes at any one time."""
    now, most = 0, 0

    class Kept:
        def __init__(self, tensor):
            nonlocal now, most
            self.tensor, self.bytes = tensor, tensor.nbytes
            now += self.bytes
            most = max(most, now)

        def __del__(self):
            nonlocal now
            now -= self.bytes

    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        function()
    return most


def test_the_memory_is_that_of_one_chunk():
    x, y = problem(512)
    model = nn.Sequential(nn.Linear(FEATURES, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, CLASSES))
    model.double()
    whole = kept_bytes(lambda: hypersimplex_loss(model(x), y).backward())
    chunk = kept_bytes(lambda: hypersimplex_loss(model(x[:32]), y[:32]).backward())
    in_chunks = kept_bytes(lambda: backward_in_chunks(model, hypersimplex_loss, x, y, chunk_size=32))
    assert in_chunks <= chunk + x.shape[0] * (CLASSES + 1) * 8  # and the logits and labels of the whole batch
    assert 3 * in_chunks < whole


def on_rank(group, split, chunk_size, x, y, extra):
    rank = torch.distributed.get_rank(group)
    model = DistributedDataParallel(network(*extra), process_group=group)
    loss = HyperSimplexLoss(group=group)
    value = backward_in_chunks(model, loss, x.split(split)[rank], y.split(split)[rank], chunk_size=chunk_size)
    return value, gradients(model.module), loss.threshold


@pytest.mark.parametrize("split", [[22], [15, 7], [15, 0, 7]])
def test_many_ranks_with_different_numbers_of_chunks(split):
    x, y = problem()
    whole, loss = network(), HyperSimplexLoss()
    expected = loss(whole(x), y)
    expected.backward()
    for value, grads, threshold in ranks.run(len(split), on_rank, split, 4, x, y, ()):
        torch.testing.assert_close(value, expected.detach(), rtol=1e-12, atol=0)
        same(grads, gradients(whole))
        torch.testing.assert_close(threshold, loss.threshold)


def test_many_ranks_with_batch_norm():
    """DistributedDataParallel sends the first rank's statistics along; nobody waits for a chunk another rank lacks."""
    x, y = problem()
    answers = ranks.run(2, on_rank, [15, 7], 4, x, y, (nn.BatchNorm1d(16).double(),))
    same(answers[0][1], answers[1][1])


@pytest.mark.parametrize("chunk_size", [0, -3, 2.5, True, None])
def test_bad_chunk_size(chunk_size):
    x, y = problem()
    with pytest.raises(ValueError, match=r"chunk_size must be a whole number of at least 1, got "):
        backward_in_chunks(network(), hypersimplex_loss, x, y, chunk_size=chunk_size)


def test_bad_inputs_models_and_losses():
    x, y = problem()
    with pytest.raises(ValueError, match=r"inputs must have the same size of dim 0, got \[22, 21\]"):
        backward_in_chunks(TwoInputs(), hypersimplex_loss, (x, x[1:]), y, chunk_size=4)
    with pytest.raises(TypeError, match=r"inputs must be a tensor, or a tuple, list or dict of tensors .* got str"):
        backward_in_chunks(network(), hypersimplex_loss, "x", y, chunk_size=4)
    with pytest.raises(TypeError, match="model must give one tensor of logits, got tuple"):
        backward_in_chunks(nn.LSTM(FEATURES, 3).double(), hypersimplex_loss, x, y, chunk_size=4)
    with pytest.raises(ValueError, match=r"loss must give a scalar, got shape \(22,\)"):
        backward_in_chunks(network(), lambda *a: hypersimplex_loss(*a, reduction="none"), x, y, chunk_size=4)


def test_a_loss_that_fails_leaves_the_model_as_it_was():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, random = torch.randn(6, 4), torch.get_rng_state()
    with pytest.raises(ValueError, match="target must be between 0 and 2"):
        backward_in_chunks(model, hypersimplex_loss, x, torch.full((6,), 3), chunk_size=2)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_thresholds_inside_the_model_move_once():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.criterion = nn.Linear(4, 3), HyperSimplexLoss()

        def forward(self, x):
            return self.linear(x)

    model, x, y = Model(), torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    backward_in_chunks(model, model.criterion, x, y, chunk_size=2)
    backward_in_chunks(model, model.criterion, x, y, chunk_size=2)
    assert model.criterion.seen.tolist() == [12, 12, 12]  # samples of two batches
