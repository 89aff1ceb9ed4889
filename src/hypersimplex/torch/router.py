"""A router for mixtures of experts that keeps every expert within its capacity."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from hypersimplex import _checks
from hypersimplex.torch._batch import number, whole
from hypersimplex.torch._boundary import is_compiling, is_recorded
from hypersimplex.torch._projection import check_entries
from hypersimplex.torch._ranks import members
from hypersimplex.torch._state import KeepsDigits
from hypersimplex.torch._tracking import is_recomputed
from hypersimplex.torch.assignment import Share, assign
from hypersimplex.torch.functional import binary_argmax, soft_binary_argmax

_MOMENTUM = 0.1  # weight of the latest batch once ten have been seen; until then the plain average


class BalancedRouter(KeepsDigits):
    """Route every token to k experts and keep every expert within its capacity.

    The result has one weight per token and expert. The weights of a token sum to k, those of an expert to at most its
    capacity. In training mode the module solves `soft_assignment` for the tokens of the batch, starting from the biases
    so far, and moves `bias` toward the batch's biases. A batch without gradients (`torch.no_grad()`) leaves it alone.
    In `eval()` mode it routes every token by itself, by its scores minus `bias`, so a token's experts do not depend on
    the other tokens; `balance_in_eval=True` solves the batch at hand there too. `state_dict` saves `bias`.

    Args:
        num_experts: the size of the last dim of the scores.
        k: how many experts a token has.
        capacity_factor: an expert's capacity as a multiple of its equal share, tokens * k / num_experts; 1 or more.
        tau: temperature. A smaller one brings the weights closer to 0 and 1.
        hard: return exactly k ones per token, at the largest scores minus bias, and keep the gradient of the weights.
            Then an expert may exceed its capacity by a few tokens.
        group: process group, or True for the default one, if the tokens are spread over ranks.
        balance_in_eval: keep every expert within its capacity in `eval()` mode too, by the assignment of the batch at
            hand. `bias` is where the search starts, and stays as it is. A token's experts then depend on the other
            tokens of its batch, and with a group every rank must call the module equally often.

    >>> router = BalancedRouter(num_experts=2, k=1)
    >>> scores = torch.tensor([[2.0, 1.0], [3.0, 0.5], [1.5, 1.0], [0.5, 1.0]])
    >>> router(scores).sum(0)
    tensor([2., 2.])
    >>> router.bias
    tensor([0.7500, 0.0000])
    >>> router.eval()(scores[:1])
    tensor([[0.6250, 0.3750]])
    """

    bias: Tensor
    batches: Tensor

    def __init__(
        self,
        num_experts: int,
        k: float,
        capacity_factor: float = 1.0,
        tau: float = 1.0,
        hard: bool = False,
        *,
        group: Any = None,
        balance_in_eval: bool = False,
    ) -> None:
        super().__init__()
        num_experts = whole("num_experts", num_experts)
        if num_experts < 1:
            raise ValueError(f"num_experts must be at least 1, got {num_experts}")
        number("capacity_factor", capacity_factor)
        _checks.check_numbers(number("k", k), number("tau", tau), num_experts, "experts")
        if not capacity_factor >= 1:
            raise ValueError(f"capacity_factor must be at least 1, got {capacity_factor}")
        if hard and k != int(k):
            raise _checks.not_whole(k)
        self.num_experts, self.k, self.capacity_factor = num_experts, k, capacity_factor
        self.tau, self.hard, self.group, self.balance_in_eval = tau, hard, group, balance_in_eval
        with torch.inference_mode(False):  # training must be able to go on with them
            self.register_buffer("bias", torch.zeros(num_experts))
            self.register_buffer("batches", torch.zeros(()))

    def forward(self, input: Tensor) -> Tensor:
        """Return the weights of every token, in the input's shape. The last dim of the input holds a token's scores."""
        balances = self.training or self.balance_in_eval
        ranks = members(self.group, input) if balances and self.group is not None else None
        read = partial(self._scores, input)
        if ranks is not None or (balances and read().shape[0]):  # other ranks may have tokens
            capacity = Share(self.capacity_factor * self.k / self.num_experts)
            y, bias, known = assign(read, self.k, capacity, self.tau, self.bias.clone(), ranks)
            if self.training and torch.is_grad_enabled() and (is_compiling() or not (is_recorded() or is_recomputed())):
                self._track(bias, torch.as_tensor(known, device=bias.device))
            scores = read()
        else:
            scores = read()
            bias = self.bias.to(scores.dtype)
            y = soft_binary_argmax(scores - bias, self.k, self.tau)
        if self.hard:
            chosen = binary_argmax(scores.detach() - bias.to(scores.dtype), self.k)
            y = chosen + (y - y.detach())
        return y.reshape(input.shape)

    def extra_repr(self) -> str:
        return (
            f"num_experts={self.num_experts}, k={self.k}, capacity_factor={self.capacity_factor}, "
            f"tau={self.tau}, hard={self.hard}, balance_in_eval={self.balance_in_eval}"
        )

    def _scores(self, input: Tensor) -> Tensor:
        """A row for each token."""
        check_entries(input)
        if input.dim() == 0 or input.shape[-1] != self.num_experts:
            rule = f"input must have {self.num_experts} experts along its last dim"
            raise ValueError(f"{rule}, got shape {tuple(input.shape)}")
        return input.reshape(-1, self.num_experts)

    @torch.no_grad()
    def _track(self, bias: Tensor, known: Tensor) -> None:
        known = known.to(self.batches.dtype)
        self.batches += known
        rate = (1 / self.batches.clamp(min=1)).clamp(min=_MOMENTUM) * known
        self.bias += rate * (bias.to(self.bias.dtype) - self.bias)
