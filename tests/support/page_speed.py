#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long does a page of replay take to open, and a frame of its map while it is panned? By hand: no test reads a clock.

usage: page_speed.py PAGE.html [FRAMES]

In Chromium without a window, on the processor: opening is until the page is loaded and its map drawn; a frame is one key (an arrow,
or plus and minus) until what it changes is drawn.
"""

import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "checks"))
from browser import Browser  # noqa: E402

PAN = """(async count => {
  const canvas = document.querySelector('.map canvas'), frames = [];
  const keys = ['ArrowRight', 'ArrowUp', '+', 'ArrowLeft', '+', 'ArrowRight', 'ArrowDown', '-', 'ArrowLeft', '-'];
  for (let i = 0; i < count; ++i) {
    const begin = performance.now();
    canvas.dispatchEvent(new KeyboardEvent('keydown', {key: keys[i % keys.length]}));
    await new Promise(done => requestAnimationFrame(() => { const late = new MessageChannel();
      late.port1.onmessage = done; late.port2.postMessage(0); }));
    frames.push(performance.now() - begin);
  }
  return frames.sort((a, b) => a - b);
})(%d)"""


def main():
    with Browser(limit_s=300) as browser:
        begin = time.monotonic()
        browser.open(sys.argv[1])
        browser.ask("document.querySelector('.map canvas').scrollIntoView()")
        browser.frame()
        print(f"opened in {time.monotonic() - begin:.2f} s")
        frames = browser.ask(PAN.replace("%d", sys.argv[2] if len(sys.argv) > 2 else "200"))
        print(f"{len(frames)} frames: median {frames[len(frames) // 2]:.1f} ms, 95th of 100 {frames[len(frames) * 95 // 100]:.1f} ms, "
              f"longest {frames[-1]:.1f} ms; {browser.ask('document.querySelector(`.map canvas`).dataset.drawn')} blocks looked at")


if __name__ == "__main__":
    main()
