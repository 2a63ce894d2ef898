# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Work in processes of their own, each with a time limit: what one does, no other sees, and none keeps the rest waiting.

They are forked, so that each has the modules of this process; this process may use no thread and no CUDA before.
"""

import contextlib
import faulthandler
import json
import os
import pathlib
import signal
import sys
import tempfile
import time
import traceback


class Clock:
    """How much time is left for what runs now."""

    def __init__(self):
        self.began = time.monotonic()
        self.ends = self.began

    def allow(self, minutes):
        """So much more, beside what was not used."""
        self.ends += 60 * minutes

    def left(self, at_most=float("inf")):
        return min(at_most, self.ends - time.monotonic())

    def passed(self):
        return time.monotonic() - self.began


class SubRun:
    """work() in a process of its own, which has begun. What it prints is shown only if it fails."""

    def __init__(self, work, limit_s):
        self.limit_s, self.began = max(2.0, limit_s), time.monotonic()
        self.seconds = None
        self.folder = tempfile.TemporaryDirectory()
        place = pathlib.Path(self.folder.name)
        self.answer, self.printed = place / "answer", place / "printed"
        sys.stdout.flush()
        self.child = os.fork()
        if self.child == 0:
            self._do(work)

    def _do(self, work):
        try:
            os.setsid()
            for stream in (1, 2):
                os.dup2(os.open(self.printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
            faulthandler.dump_traceback_later(self.limit_s, exit=True)
            try:
                answer = {"result": work()}
            except BaseException as error:
                answer = {"error": "".join(traceback.format_exception_only(type(error), error)) + traceback.format_exc(limit=-3)}
            self.answer.write_text(json.dumps(answer))
            sys.stdout.flush()
        finally:
            os._exit(0)

    def is_over(self):
        """It has ended, or is to be ended."""
        passed = time.monotonic() - self.began
        done = os.waitid(os.P_PID, self.child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if self.seconds is None and (done is not None or passed > self.limit_s + 5):
            self.seconds = passed
        return self.seconds is not None

    def finish(self):
        """(what it returned, None), or (None, what went wrong). What it started ends with it."""
        while not self.is_over():
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child, signal.SIGKILL)
        status = os.waitpid(self.child, 0)[1]
        said = self.printed.read_text(errors="replace")[-3000:] if self.printed.exists() else ""
        answer = {}
        with contextlib.suppress(OSError, ValueError):
            answer = json.loads(self.answer.read_text())
        self.folder.cleanup()
        if "result" in answer:
            return answer["result"], None
        return None, answer.get("error", f"no answer within {self.limit_s:.0f} s; exit status {status}\n") + said


def forked(work, limit_s=120):
    """The same, when it is over."""
    return SubRun(work, limit_s).finish()
