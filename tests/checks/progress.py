# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does whoever waits see that something happens? weir_watch of cmake/setup.sh, and stages.py's Progress.

Each command here goes on until it was shown. So nothing depends on how long anything takes: a clock that is ahead of time stands in
for 'date', and a 'sleep' that does not sleep.
"""

import io
import os
import pathlib
import pty
import re
import sys
import tempfile
import threading

from stages import Progress, watched
from workshop import ROOT, run, tail

SAID = "Unpacking a package"
COMMAND = f"""for each in 1 2; do
    echo '{SAID}'
    at=$(cat clock)
    while [ $(($(cat clock) - at)) -lt 30 ]; do :; done
done
exit 3"""
TOOLS = {"sleep": "", "date": "at=$(cat clock); echo $((at + 10)) >clock.next; mv clock.next clock; echo $at"}


def of_setup(place, terminal):
    """Complaint about what weir_watch shows, or ''."""
    (place / "clock").write_text("0\n")
    (place / "bin").mkdir()
    for name, line in TOOLS.items():
        (place / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (place / "bin" / name).chmod(0o755)
    script = f". {ROOT}/cmake/setup.sh; weir_watch log sh -c \"$1\"; echo status $?; cat log"
    command = ["sh", "-c", script, "sh", COMMAND]
    env = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
    if terminal:
        ours, theirs = pty.openpty()
        shown = []

        def read():
            try:
                while text := os.read(ours, 4096):
                    shown.append(text.decode(errors="replace"))
            except OSError:  # nobody has the other end any more
                pass
        reader = threading.Thread(target=read)
        reader.start()
        done = run(["sh", "-c", f"exec 2>{os.ttyname(theirs)}; exec \"$@\"", "sh", *command], cwd=place, env=env, timeout=60)
        os.close(theirs)
        reader.join()
        os.close(ours)
        lines = [line for line in "".join(shown).split("\r\033[K") if SAID in line]
        moves = "".join(shown).endswith("\r\033[K") and not any("\n" in line for line in lines)
    else:
        done = run(command, cwd=place, env=env, timeout=60)
        lines = [line for line in done.output.splitlines() if line.startswith("weir: ") and line.endswith(f" s: {SAID}")]
        moves = True
    whole = done.output.endswith(f"status 3\n{SAID}\n{SAID}\n")
    return "" if done.code == 0 and len(lines) > 1 and moves and whole else f"exit {done.code}, shows {lines}:\n{tail(done.output)}"


def of_stages(place):
    """Complaint about what a stage shows, or ''."""
    class Seen(io.StringIO):
        """Notes in a file that the command's words were shown."""

        def write(self, text):
            if "half of it" in text:
                (place / "seen").touch()
            return super().write(text)
    out = Seen()
    program = "import pathlib\nprint('half of it\\n', flush=True)\nwhile not pathlib.Path('seen').exists():\n    pass\nprint('all')\nexit(3)"
    code, _ = watched([sys.executable, "-c", program.replace("'seen'", repr(str(place / "seen")))], place / "log",
                   Progress("a stage", place / "log", out, seconds=0.01))
    shown, log = out.getvalue(), (place / "log").read_text()
    right = code == 3 and re.search(r"^a stage \d+ s: half of it$", shown, flags=re.M) and log == "half of it\n\nall\n"
    return "" if right else f"exit {code}, shows:\n{tail(shown)}\nlog:\n{log}"


def has_terminals():
    """Whether there are any: not in a bare chroot."""
    try:
        for each in pty.openpty():
            os.close(each)
        return True
    except OSError:
        return False


def results():
    """(name, complaint) of everything here."""
    found = []
    for name, judge in (("of a command, in a pipe", lambda place: of_setup(place, False)), ("of a stage", of_stages),
                        *([("of a command, on a terminal", lambda place: of_setup(place, True))] if has_terminals() else [])):
        with tempfile.TemporaryDirectory() as place:
            found.append((f"progress: {name}", judge(pathlib.Path(place))))
    return found


if __name__ == "__main__":
    for name, complaint in results():
        print(name, complaint or "ok", sep=": ")
