# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ten programs whose memory is measured, with models that are written here: torch.nn alone, no data, no download.

Each is a generator that runs one step at a turn and yields its loss, a tensor on the device. Sizes and values come from
fixed seeds, so that every allocator sees the same requests.
"""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"


def half():
    return torch.autocast(DEVICE, dtype=torch.bfloat16)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, past=None):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, 2))
        if past is not None and past[0] is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        if past is not None:
            past[:] = k, v
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x, past=None):
        x = x + self.attention(self.norm1(x), past)
        return x + self.mlp(self.norm2(x))


class GPT2(nn.Module):
    """GPT-2 small by default, with tied embeddings."""

    def __init__(self, layers=12, width=768, heads=12, vocabulary=50257, most=1024):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(most, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for each in (self.tokens, self.places):
            nn.init.normal_(each.weight, std=0.02)

    def forward(self, ids, past=None, recompute=False):
        begin = past[0][0].shape[2] if past is not None and past[0][0] is not None else 0
        x = self.tokens(ids) + self.places(torch.arange(begin, begin + ids.shape[1], device=ids.device))
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if recompute else block(x, past[i] if past is not None else None)
        return F.linear(self.norm(x), self.tokens.weight)


def gpt2(steps, batch, lengths, recompute=False):
    torch.manual_seed(1)
    draw = random.Random(1)
    model = GPT2().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for _ in range(steps):
        length = draw.randint(*lengths)
        ids = torch.randint(50257, (batch, length + 1), device=DEVICE)
        with half():
            logits = model(ids[:, :-1], recompute=recompute)
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        del logits
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.short = nn.Identity() if stride == 1 and inside == out else nn.Sequential(
            nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x), inplace=True)


def resnet(blocks=(3, 4, 6, 3)):
    """The stages of ResNet-50, for the classifier and the detector."""
    stages = [nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                            nn.MaxPool2d(3, 2, 1))]
    inside = 64
    for i, count in enumerate(blocks):
        width = 64 << i
        stages.append(nn.Sequential(*(Bottleneck(inside if j == 0 else 4 * width, width, 2 if i and j == 0 else 1)
                                      for j in range(count))))
        inside = 4 * width
    return nn.ModuleList(stages)


def resnet50(steps, batch):
    torch.manual_seed(2)
    model = nn.Sequential(*resnet(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        images = torch.randn(batch, 3, 224, 224, device=DEVICE)
        labels = torch.randint(1000, (batch,), device=DEVICE)
        with half():
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()


class Detector(nn.Module):
    """A pyramid on ResNet-50, and one head on each level that says for each cell what is there and where."""

    def __init__(self, classes=80, width=256):
        super().__init__()
        self.stages = resnet()
        self.lateral = nn.ModuleList(nn.Conv2d(inside, width, 1) for inside in (512, 1024, 2048))
        self.head = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Conv2d(width, width, 3, 1, 1), nn.ReLU())),
                                  nn.Conv2d(width, classes + 4, 3, 1, 1))

    def forward(self, x):
        levels = []
        for i, stage in enumerate(self.stages):
            x = stage(x)
            if i > 1:
                levels.append(self.lateral[i - 2](x))
        for i in (1, 0):
            levels[i] = levels[i] + F.interpolate(levels[i + 1], scale_factor=2, mode="nearest")
        return [self.head(level) for level in levels]


def detector(steps, batch):
    torch.manual_seed(3)
    draw = random.Random(3)
    model = Detector().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for _ in range(steps):
        height, width = (32 * draw.randint(14, 34) for _ in range(2))
        images = torch.randn(batch, 3, height, width, device=DEVICE)
        with half():
            loss = 0
            for level in model(images):
                wanted = (torch.rand_like(level[:, :80]) > 0.999).float()
                loss = loss + F.binary_cross_entropy_with_logits(level[:, :80].float(), wanted)
                loss = loss + F.smooth_l1_loss(level[:, 80:].float(), torch.rand_like(level[:, 80:]).float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()


def serving(steps, tokens):
    """Requests of any size, one after the other: a prompt, then a token at a time with a growing cache."""
    torch.manual_seed(4)
    draw = random.Random(4)
    model = GPT2(layers=8).to(DEVICE, torch.bfloat16).eval()
    for _ in range(steps):
        with torch.no_grad():
            batch, length = draw.choice((1, 2, 4, 8)), draw.randint(16, 640)
            ids = torch.randint(50257, (batch, length), device=DEVICE)
            past = [[None, None] for _ in model.blocks]
            for _ in range(tokens):
                logits = model(ids, past)[:, -1]
                ids = logits.argmax(-1, keepdim=True)
            yield logits.float().logsumexp(-1).mean()


def prefetching(steps, most=8192):
    """Batches of varying size come from pinned memory on two streams, which prepare them for the default stream."""
    torch.manual_seed(5)
    draw = random.Random(5)
    model = nn.Sequential(nn.Linear(2048, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 1)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    host = torch.randn(most, 2048).pin_memory()
    main, sides = torch.cuda.current_stream(), [torch.cuda.Stream(), torch.cuda.Stream()]

    def fetch(step):
        rows = draw.randint(most // 8, most)
        with torch.cuda.stream(sides[step % 2]):
            batch = host[:rows].to(DEVICE, non_blocking=True)
            batch = (batch - batch.mean(1, keepdim=True)) / batch.std(1, keepdim=True)
        return batch

    ahead = [fetch(0), fetch(1)]
    for step in range(steps):
        batch = ahead.pop(0)
        main.wait_stream(sides[step % 2])
        batch.record_stream(main)
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del batch
        ahead.append(fetch(step + 2))
        yield loss.detach()


class Adapted(nn.Module):
    """A layer that stays as it is, and two narrow ones beside it that learn (LoRA)."""

    def __init__(self, kept, rank):
        super().__init__()
        self.kept = kept.requires_grad_(False)
        self.down, self.up = nn.Linear(kept.in_features, rank, bias=False), nn.Linear(rank, kept.out_features, bias=False)
        nn.init.normal_(self.up.weight, std=0.02)

    def forward(self, x):
        return self.kept(x) + self.up(self.down(x))


def lora(steps, batch, lengths, rank=8):
    torch.manual_seed(6)
    draw = random.Random(6)
    model = GPT2().requires_grad_(False)
    for each in model.blocks:
        each.attention.qkv = Adapted(each.attention.qkv, rank)
        each.mlp[0] = Adapted(each.mlp[0], rank)
    model.to(DEVICE)
    optimizer = torch.optim.AdamW((each for each in model.parameters() if each.requires_grad), lr=1e-3)
    for _ in range(steps):
        ids = torch.randint(50257, (batch, draw.randint(*lengths) + 1), device=DEVICE)
        with half():
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()


class UNet(nn.Module):
    """Four levels down, four up, with what each level saw beside it."""

    def __init__(self, width=64, levels=4):
        super().__init__()
        def double(inside, out):
            return nn.Sequential(nn.Conv2d(inside, out, 3, 1, 1), nn.GroupNorm(8, out), nn.SiLU(),
                                 nn.Conv2d(out, out, 3, 1, 1), nn.GroupNorm(8, out), nn.SiLU())
        widths = [width << level for level in range(levels)]
        self.down = nn.ModuleList(double(inside, out) for inside, out in zip([3, *widths], widths))
        self.up = nn.ModuleList(double(inside + out, out) for inside, out in zip(widths[:0:-1], widths[-2::-1]))
        self.last = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        seen = []
        for each in self.down:
            x = each(x if not seen else F.avg_pool2d(x, 2))
            seen.append(x)
        for each, beside in zip(self.up, seen[-2::-1]):
            x = each(torch.cat((F.interpolate(x, scale_factor=2.0, mode="nearest"), beside), 1))
        return self.last(x)


def unet(steps, batch):
    torch.manual_seed(7)
    draw = random.Random(7)
    model = UNet().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps):
        height, width = (32 * draw.randint(6, 14) for _ in range(2))
        images = torch.randn(batch, 3, height, width, device=DEVICE)
        with half():
            loss = F.mse_loss(model(images + torch.randn_like(images)), images)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()


def gnn(steps, nodes, edges, width=128):
    """Three rounds of messages along the edges of random subgraphs, whose sizes vary much."""
    torch.manual_seed(8)
    draw = random.Random(8)
    layers = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3)).to(DEVICE)
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-3)
    for _ in range(steps):
        count = draw.randint(*nodes)
        sources, targets = torch.randint(count, (2, draw.randint(*edges)), device=DEVICE)
        x = torch.randn(count, width, device=DEVICE)
        for each in layers:
            messages = torch.zeros_like(x).index_add(0, targets, x[sources])
            x = F.relu(each(torch.cat((x, messages), 1)))
        loss = x.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()


def long_run(steps):
    """Many steps of a small model with two side streams, to see whether anything grows."""
    yield from prefetching(steps, most=256)


# name: (what it is, its steps, fewer steps, the generator)
WORKLOADS = {
    "gpt2_fixed": ("GPT-2, fixed length", 24, 4, lambda steps: gpt2(steps, 12, (1024, 1024))),
    "gpt2_varying": ("GPT-2, varying lengths", 40, 6, lambda steps: gpt2(steps, 12, (96, 1024))),
    "gpt2_checkpoint": ("GPT-2, checkpointing", 16, 4, lambda steps: gpt2(steps, 24, (512, 1024), True)),
    "resnet50": ("ResNet-50", 30, 4, lambda steps: resnet50(steps, 64)),
    "detector": ("detector, varying images", 40, 6, lambda steps: detector(steps, 2)),
    "serving": ("serving loop", 32, 4, lambda steps: serving(steps, 24)),
    "prefetching": ("prefetching, two side streams", 80, 8, lambda steps: prefetching(steps)),
    "lora": ("LoRA, varying lengths", 30, 6, lambda steps: lora(steps, 16, (128, 1024))),
    "unet": ("U-Net, varying images", 40, 6, lambda steps: unet(steps, 8)),
    "gnn": ("GNN, random subgraphs", 40, 6, lambda steps: gnn(steps, (20_000, 200_000), (100_000, 1_500_000))),
}
