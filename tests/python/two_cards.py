# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What needs two cards: models in shards, and NCCL that registers memory. gpu.py runs each rank in a process of its own.

Multicast of NVLink stays off: it asks more of a machine than these programs need.
"""

import datetime
import os
import random
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import workloads

os.environ["NCCL_NVLS_ENABLE"] = "0"
os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
RANKS = 2
MIB = 1 << 20


def joined(rank, store):
    """The group of all ranks, which meet in a file."""
    is_cuda = workloads.DEVICE == "cuda"
    if is_cuda:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if is_cuda else "gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS,
                            timeout=datetime.timedelta(seconds=40),
                            device_id=torch.device("cuda", rank) if is_cuda else None)


def in_shards(model, kind):
    if kind == "fsdp2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        return fully_shard(model, mp_policy=policy)
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    return FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({workloads.Block}), use_orig_params=True,
                                    mixed_precision=MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
                                    device_id=torch.cuda.current_device() if workloads.DEVICE == "cuda" else None)


def trained(rank, kind, steps, batch, lengths, **sizes):
    """GPT-2 in shards, with batches of varying length, which differ between the ranks: yields the loss of each step."""
    torch.manual_seed(11)
    draw = random.Random(11 + rank)
    model = in_shards(workloads.GPT2(**sizes).to(workloads.DEVICE), kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    torch.manual_seed(11 + rank)
    for _ in range(steps):
        ids = torch.randint(50257, (batch, draw.randint(*lengths) + 1), device=workloads.DEVICE)
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())
        del logits
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.detach()


def measure(rank, store, kind, steps, held):
    """held(device): the most bytes that were reserved."""
    joined(rank, store)
    losses, times = [], []
    began = time.perf_counter()
    for loss in trained(rank, kind, steps, 8, (128, 1024)):
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
        losses.append(f"{float(loss):.6f}")
        began = time.perf_counter()
    dist.barrier()
    return {"held_mib": held(rank) / MIB, "step_ms": statistics.median(times[len(times) // 3:]), "losses": losses}


def together(of_ranks):
    """One run, of what its ranks measured."""
    return {"held_mib": max(each["held_mib"] for each in of_ranks), "step_ms": max(each["step_ms"] for each in of_ranks),
            "losses": [loss for each in of_ranks for loss in each["losses"]]}


def registered_segments(rank, store):
    """NCCL's hook hears of each segment of the allocator, and registers it. The sums that came out, and that should have."""
    os.environ["TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK"] = "1"
    before = torch.full((1 << 20,), 1.0 + rank, device=f"cuda:{rank}")
    joined(rank, store)
    dist.all_reduce(before)
    for i in range(1, 20):
        last = torch.full((i << 20,), 2.0 + rank, device="cuda")
        dist.all_reduce(last)
        if i < 19:
            del last
            torch.cuda.empty_cache()
    torch.cuda.synchronize()
    found = [before.mean().item(), last.mean().item()]
    dist.destroy_process_group()
    return found, [3.0, 5.0]


def registered_pool(rank, store):
    """The same of a MemPool that is registered as a whole."""
    joined(rank, store)
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cuda", rank))
    dist.all_reduce(torch.ones(1, device="cuda"))
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        last = torch.full((19 << 20,), 2.0 + rank, device="cuda")
    backend.register_mem_pool(pool)
    dist.all_reduce(last)
    torch.cuda.synchronize()
    backend.deregister_mem_pool(pool)
    found = [last.mean().item()]
    dist.destroy_process_group()
    return found, [5.0]


def gathered(rank, store):
    """Collectives on side streams, whose tensors are freed while they run."""
    joined(rank, store)
    side, kept = torch.cuda.Stream(), []
    for i in range(1, 30):
        part = torch.full((i << 16,), float(10 * i + rank), device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            whole = torch.empty(2 * part.numel(), device="cuda")
            work = dist.all_gather_into_tensor(whole, part, async_op=True)
        part.record_stream(side)
        del part
        torch.full((i << 16,), -1.0, device="cuda")  # which may get its memory, once it is read
        work.wait()
        torch.cuda.current_stream().wait_stream(side)
        whole.record_stream(torch.cuda.current_stream())
        kept.append(whole.sum() / (i << 16) - 20 * i)
        del whole
    found = sorted({each.item() for each in kept})
    dist.destroy_process_group()
    return found, [1.0]
