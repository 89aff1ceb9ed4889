"""What the kernels give, compared with the reference and with plain torch operations."""

import numpy as np
import torch

from hypersimplex import reference
from hypersimplex.torch.backends import plain
from hypersimplex.torch.backends.triton import loss, project, pullback
from tests.frontends import FLOAT32, to_numpy, to_torch, tolerance

CPU = torch.device("cpu")


def project_array(x, k, tau=1.0, dim=-1, device=CPU):
    k, tau = (torch.as_tensor(np.asarray(value, np.float64)).to(device) for value in (k, tau))
    return project(to_torch(x).to(device), k, tau, dim)


def projects(x, k, tau=1.0, dim=-1, device=CPU):
    """y and mu are the reference's; y is returned."""
    y, mu = project_array(x, k, tau, dim, device)
    want, want_mu = reference.soft_binary_argmax(x, k, tau, axis=dim), reference.threshold(x, k, tau, axis=dim)
    atol = tolerance(x.dtype, np.abs(np.nan_to_num(want_mu, posinf=0, neginf=0)).max(), np.min(tau))
    y = to_numpy(y.cpu())
    np.testing.assert_allclose(np.asarray(y, np.float64), want, rtol=0, atol=atol)
    np.testing.assert_allclose(mu.cpu(), want_mu, rtol=4e-7, atol=4e-7 * np.max(tau))
    return y


def pulls_back(y, v, tau=1.0, dim=-1, device=CPU):
    """The gradients to x, k and tau are the reference's."""
    tau = np.asarray(tau, np.float64)
    got = pullback(to_torch(y).to(device), to_torch(v).to(device), torch.as_tensor(tau).to(device), dim)
    assert to_numpy(got[0].cpu()).dtype == v.dtype
    for g, want in zip(got, reference.vjp(y, v, tau, axis=dim), strict=True):
        atol = 40 * tolerance(v.dtype if g is got[0] else FLOAT32)
        np.testing.assert_allclose(g.double().cpu(), want, rtol=0, atol=atol)


def same(got, want, atol):
    """Two outcomes of a loss are one."""
    torch.testing.assert_close(got.loss.double(), want.loss.double(), rtol=4 * atol, atol=4 * atol)
    torch.testing.assert_close(got.mu_and_k, want.mu_and_k, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(got.gradient.double(), want.gradient.double(), rtol=0, atol=4 * atol)
    assert float(got.samples) == float(want.samples)


def loses(batch, settings, atol):
    """The loss is that of plain torch, with a gradient and without one, which is another kernel."""
    got = loss(batch, settings, True)
    same(got, plain.loss(batch, settings, True), atol)
    alone = loss(batch, settings, False)
    assert alone.gradient is None
    torch.testing.assert_close(alone.loss, got.loss, rtol=4 * atol, atol=4 * atol)
    return got
