"""A step of a module of torch, for the benchmarks of single layers."""

import torch


def torch_step(module, x, train):
    """Returns a function that runs the module once on `x`, a tensor, optionally with gradients of weights and input."""
    x = x.detach().requires_grad_(train)

    def forward():
        with torch.inference_mode():
            return module(x)

    def forward_and_backward():
        module.zero_grad(set_to_none=True)
        x.grad = None
        module(x).square().sum().backward()

    return forward_and_backward if train else forward
