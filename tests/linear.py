"""A model whose answer is a sum over its tokens: what each is worth is known by thought."""

import torch
from torch import nn

from attnkit.model import TinyTransformer


class Uniform(nn.Module):
    """A layer that changes nothing and attends uniformly."""

    def forward(self, x, mask=None):
        B, T, _ = x.shape
        return x, torch.full((B, 2, T, T), 1 / T, dtype=x.dtype)


def linear_model(worth):
    """A model whose margin is the mean of what each token is worth: +worth/2 to one logit, −worth/2 to the other."""
    model = TinyTransformer(len(worth), 4, 2, 3, 1, 11).double().eval().requires_grad_(False)
    model.layers = nn.ModuleList([Uniform()])
    model.embed.weight.zero_()[:, 0] = torch.tensor(worth)
    model.pos.pe[:, 0] = 0  # positions stay in the other columns, which nobody reads
    model.head.weight.zero_()[:, 0] = torch.tensor([0.5, -0.5])
    model.head.bias.zero_()
    return model
