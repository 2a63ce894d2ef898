# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A browser for tests: Chromium without a window, asked over the pipe of its remote debugging, so that no library is needed.

    with Browser() as browser:
        browser.open(path, width=400)
        browser.ask("document.title")
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

NAMES = ("chromium", "chromium-browser", "google-chrome")


def found():
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One window. What a script of the page throws is in 'errors'."""

    def __init__(self, limit_s=60):
        self.place = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)  # it writes on for a moment when it ends
        to_it, self.write = os.pipe()
        self.read, from_it = os.pipe()
        self.errors, self.number, self.events, self.rest = [], 0, [], b""
        switches = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage",
                    "--disable-background-networking", f"--user-data-dir={self.place.name}", "--remote-debugging-pipe"]
        # It reads from 3 and writes to 4, whatever these are here.
        starts = 'exec "$@" 3<&"$0" 4>&"$WEIR_PIPE"'
        shell = shutil.which("bash") or "sh"  # dash has no file numbers above 9
        self.child = subprocess.Popen(["timeout", str(limit_s), shell, "-c", starts, str(to_it), found(), *switches, "about:blank"],
                                      pass_fds=(to_it, from_it), env={**os.environ, "WEIR_PIPE": str(from_it)},
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_it)
        os.close(from_it)
        self.session = None
        page = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        self.call("Page.enable")
        self.call("Runtime.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session = None
        try:
            self.call("Browser.close")
        except OSError:
            pass
        os.close(self.write)
        os.close(self.read)
        self.child.wait()
        self.place.cleanup()

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.read, 1 << 16)
            if not more:
                raise OSError("the browser has ended")
            self.rest += more
        one, self.rest = self.rest.split(b"\0", 1)
        one = json.loads(one)
        if one.get("method") == "Runtime.exceptionThrown":
            details = one["params"]["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        return one

    def call(self, method, **parameters):
        """A command of the protocol, and its result."""
        self.number += 1
        asked = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            asked["sessionId"] = self.session
        os.write(self.write, json.dumps(asked).encode() + b"\0")
        while True:
            one = self.message()
            if one.get("id") == self.number:
                if "error" in one:
                    raise OSError(f"{method}: {one['error']['message']}")
                return one["result"]
            self.events.append(one.get("method"))

    def open(self, path, width=1200, height=900, dark=False):
        """Shows a file in a window of that size, and waits until it is loaded."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        while "Page.loadEventFired" not in self.events:
            self.events.append(self.message().get("method"))

    def ask(self, script):
        """What an expression of JavaScript is; a promise is awaited."""
        return self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)["result"].get("value")

    def press(self, key):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key if len(key) == 1 else "")
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.frame()

    def point_at(self, selector, x=0.5, y=0.5, click=False):
        """Moves the mouse to a part of an element's width and height."""
        left, top = self.ask(f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
                             f" const b = e.getBoundingClientRect(); return [b.left + b.width * {x}, b.top + b.height * {y}]; }})()")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=left, y=top)
        for kind in ("mousePressed", "mouseReleased") if click else ():
            self.call("Input.dispatchMouseEvent", type=kind, x=left, y=top, button="left", clickCount=1)
        self.frame()

    def frame(self):
        """Until what was asked for is drawn."""
        self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
