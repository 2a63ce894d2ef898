# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""torch_cases.py with PyTorch's own allocator and with weir's: what both answer, and where they differ. For with_torch.py and
gpu.py."""

import json
import pathlib
import re

from workshop import tail

HERE = pathlib.Path(__file__).resolve().parent
ENDED = "it ended the process"
NAMES = re.findall(r"^def case_(\w+)", (HERE / "torch_cases.py").read_text(), flags=re.M)


def answers(ran, allocator, folder, cases):
    """What the cases answer: a dict; those for which no time was left; and a complaint or ''. ran(words): an interpreter with these
    words, workshop.run's answer. Where a case ends the process, another one goes on behind it."""
    found, left = {}, [name for name in NAMES if not cases or name in cases]
    while left:
        (folder / f"{allocator}.json").write_text("{}")
        done = ran([HERE / "torch_cases.py", allocator, folder / f"{allocator}.json", *left])
        now = json.loads((folder / f"{allocator}.json").read_text())
        if done.code is None:  # what runs now was cut off, and has ended nothing
            found |= {name: each for name, each in now.items() if each.get("failed") != ENDED}
            return found, [name for name in left if name not in found], ""
        found |= now
        last = [name for name, each in now.items() if each.get("failed") == ENDED]
        if not last and done.code != 0:
            return found, [], tail(done.output, 30)
        for name in last:
            found[name]["failed"] += f":\n{tail(done.output, 30)}"
        left = left[left.index(last[0]) + 1:] if last else []
    return found, [], ""


def verdicts(found):
    """(name, complaint) of each case that both answered. Where PyTorch's own allocator ends the process, what weir's answers
    counts."""
    for name in [each for each in found["weir"] if each in found["native"]]:
        ours, theirs = found["weir"][name], found["native"][name]
        ended = (theirs.get("failed") or "").startswith(ENDED)
        failed = ours.get("failed") or (None if ended else theirs.get("failed"))
        differs = not ended and ours.get("answer") != theirs.get("answer")
        yield name, failed or (f"PyTorch's: {theirs['answer']}\nweir's:    {ours['answer']}" if differs else "")
