"""The operator as a module: it stores its arguments and calls the function."""

from torch import Tensor, nn

from hypersimplex.torch.functional import Number, soft_binary_argmax


class SoftBinaryArgmax(nn.Module):
    """Soft-Binary-Argmax@k along dim; see `soft_binary_argmax`.

    >>> import torch
    >>> SoftBinaryArgmax(k=1)(torch.tensor([0.1, 1.6, 1.0]))
    tensor([0.0000, 0.8000, 0.2000])
    """

    def __init__(self, k: Number, tau: Number = 1.0, dim: int = -1) -> None:
        super().__init__()
        self.k = k
        self.tau = tau
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return soft_binary_argmax(input, self.k, self.tau, self.dim)

    def extra_repr(self) -> str:
        return f"k={self.k}, tau={self.tau}, dim={self.dim}"
