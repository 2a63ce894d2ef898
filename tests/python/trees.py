# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A program that torch.compile makes graph trees of: what gpu.py measures with each allocator."""

import torch
import torch.nn as nn

MODES = ("reduce-overhead", "max-autotune")
ROWS = (4096, 1536, 2560)
KINDS = 2 * len(ROWS)  # of steps, which take turns


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


def trained_and_asked(mode, steps, width=512, layers=4):
    """Steps of training and of inference in turn, in three shapes each, by one compiled model: yields the loss, or the mean of
    what came out."""
    torch.manual_seed(9)
    model = nn.Sequential(*(Layer(width) for _ in range(layers))).cuda()
    fast = torch.compile(model, mode=mode, dynamic=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(steps):
        x = torch.randn(ROWS[step // 2 % len(ROWS)], width, device="cuda")
        torch.compiler.cudagraph_mark_step_begin()
        if step % 2:
            with torch.no_grad():
                yield fast(x).mean().clone()
            continue
        loss = fast(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach().clone()
