# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What every remedy for running out of memory does: catch the error, take a smaller batch, go on. gpu.py runs it with each
allocator, by the functions of accelerate and Lightning where they are here."""

import gc
import importlib
import importlib.util

import torch
import torch.nn.functional as F

from workloads import GPT2, half

LENGTH = 128
FIRST = 256


def rule_of_lightning():
    """Its test for an out-of-memory error, or the words that most users look for; and which it is."""
    for module in ("lightning.pytorch.utilities.memory", "pytorch_lightning.utilities.memory"):
        if importlib.util.find_spec(module.split(".")[0]):
            return importlib.import_module(module).is_oom_error, module.split(".")[0]
    return lambda error: "CUDA out of memory" in str(error), "the words"


def largest_batches():
    """The batch that accelerate settles on, and the largest that fits at all, found by Lightning's rule."""
    torch.manual_seed(10)
    model = GPT2(layers=6).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(batch):
        optimizer.zero_grad(set_to_none=True)
        ids = torch.randint(50257, (batch, LENGTH + 1), device="cuda")
        with half():
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        torch.cuda.synchronize()
        return batch

    is_known, name = rule_of_lightning()

    def fits(batch):
        try:
            step(batch)
            return True
        except RuntimeError as error:
            if not is_known(error):
                raise
        optimizer.zero_grad(set_to_none=True)
        gc.collect()
        torch.cuda.empty_cache()
        return False

    step(1)  # the optimizer's own tensors are there
    found = {"rule": name, "accelerate": None}
    if importlib.util.find_spec("accelerate"):
        from accelerate.utils import find_executable_batch_size
        found["accelerate"] = find_executable_batch_size(step, starting_batch_size=FIRST)()
    batch = found["accelerate"] or FIRST
    found["largest"] = next(each for each in range(2 * batch, 0, -1) if fits(each))
    return {**found, "again": fits(found["largest"]) and fits(1)}
