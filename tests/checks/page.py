# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Does a page of replay's work in a real browser: is it read, clicked, zoomed, on a phone, in the dark? For examples.py."""

import json

from browser import Browser

MIB = 1 << 20
NAME = 'a "b"<img src=x onerror="window.ran=1">.py'  # a file's, which has to stay text
BASE = 1 << 40


def snapshot(extra):
    """A recording as PyTorch's, of 8 MiB: four blocks of a MiB, of which two go, and one of 'extra' more."""
    def frames(name):
        return [{"filename": name, "name": "work<T>", "line": 7}]

    def event(action, at, size, ms, name="plain.py", stream=0):
        return {"action": action, "addr": BASE + at, "size": size, "stream": stream, "time_us": 1000 * ms, "frames": frames(name)}

    events = [event("segment_alloc", 0, 8 * MIB, 1)]
    events += [event("alloc", i * MIB, MIB, 2 + i, NAME if i % 2 else "plain.py") for i in range(4)]
    events += [event(action, i * MIB, MIB, 10 + i) for i in (1, 3) for action in ("free_requested", "free_completed")]
    events += [event("alloc", 4 * MIB, extra, 20, stream=5)]
    blocks = [(MIB, 1), (MIB, 0), (MIB, 1), (MIB, 0), (extra, 1), (4 * MIB - extra, 0)]
    return json.dumps({"segments": [{"device": 0, "address": BASE, "total_size": 8 * MIB, "stream": 0, "blocks": [
        {"size": size, "requested_size": size, "state": "active_allocated" if live else "inactive", "frames": frames("plain.py")}
        for size, live in blocks]}], "device_traces": [events]})


def cell(heading, row, column):
    """JavaScript for a figure of a card's table."""
    return ("[...document.querySelectorAll('.card')]"
            f".find(c => c.querySelector('h3')?.textContent.startsWith({json.dumps(heading)}))"
            f"?.querySelectorAll('tbody tr')[{row}]?.querySelector('td[data-name={json.dumps(column)}]')?.textContent")


def looked_at(path):
    """What is wrong with the page of 'snapshot(3 MiB)' beside 'snapshot(2 MiB)': a list of sentences."""
    wrong = []

    def check(what, expected, seen):
        if seen != expected:
            wrong.append(f"{what}: {seen!r}, and not {expected!r}")

    with Browser() as browser:
        ask = browser.ask
        browser.open(path)
        check("the title", "weir: replay of after", ask("document.title"))
        check("the recorded pool's free memory, another stream's", "2.00 MiB",
              ask(cell("Free, but", 0, "PyTorch, as recorded, at its peak")))
        check("who grew", "+1.00 MiB", ask(cell("after beside before", 0, "grew by")))
        check("advice says what it could not try", True, ask("document.querySelector('.advice')?.textContent.includes("
                                                             "'no part of the program has a name')"))
        check("who holds the peak", "5.00 MiB", ask(cell("Who holds", 0, "live then")))
        check("names that are text", True, ask("[...document.querySelectorAll('code')].some(c => c.textContent === "
                                               f"{json.dumps(NAME + ':7, work<T>')})"))
        check("elements made by a name", [0, "undefined"], ask("[document.querySelectorAll('img').length, typeof window.ran]"))
        check("what sticks out of the window", 0, ask("Math.max(0, document.documentElement.scrollWidth - innerWidth)"))

        # The map: its pixels, a hover, keys, and its choice of colours.
        canvas = ".map canvas"
        pixel = f"[...document.querySelector('{canvas}').getContext('2d').getImageData({{}}, {{}}, 1, 1).data].join()"
        wide, high = ask("[document.querySelector('.map canvas').width, document.querySelector('.map canvas').height]")
        inside = pixel.format(wide // 2, int(high * 0.95))  # the first block, in its lowest eighth
        drawn = ask(inside)
        check("the map is drawn", True, drawn.endswith(",255"))
        browser.point_at(canvas, 0.5, 0.95)
        check("a hover names its block", "1.0 MiB from", (ask("document.querySelector('.map .said').textContent") or "")[:12])
        browser.point_at(canvas, 0.5, 0.95, click=True)
        check("a click takes the keyboard there", True, ask("document.activeElement === document.querySelector('.map canvas')"))
        for key in ["ArrowRight"] * 11:
            browser.press(key)
        check("the map is moved out of sight", "0,0,0,0", ask(inside))
        browser.press("Escape")
        check("Escape shows all", drawn, ask(inside))
        before = ask("document.querySelector('.map canvas').toDataURL()")
        browser.press("+")
        check("plus zooms", False, ask("document.querySelector('.map canvas').toDataURL()") == before)
        browser.press("Escape")
        ask("(s => { s.value = 'size'; s.dispatchEvent(new Event('change')); })(document.querySelector('.map select'))")
        browser.frame()
        check("the other colours", False, ask(inside) == drawn)

        # The curves: by events instead of time; a column's figures by the keyboard.
        browser.point_at(".choose-events", click=True)
        check("by events", ["none", True], ask("[getComputedStyle(document.querySelector('.by-time')).display, "
                                               "document.querySelector('.choose-events').checked]"))
        ask("document.querySelector('.over-time').focus()")
        browser.press("ArrowRight")
        check("a column's figures", True, ask("/^event \\d/.test(document.querySelector('.over-time .chart h4 span').textContent)"))

        # In the dark, on a phone.
        light = ask("getComputedStyle(document.body).backgroundColor")
        browser.open(path, width=390, height=800, dark=True)
        check("the dark has a colour of its own", False, ask("getComputedStyle(document.body).backgroundColor") == light)
        check("what sticks out of a phone", 0, ask("Math.max(0, document.documentElement.scrollWidth - innerWidth)"))
        # A cell is seen whole and has its name, or whoever scrolls finds it: then its table is cut in sight.
        check("cells that are cut on a phone", [], ask("""[...document.querySelectorAll('td')].filter(td => {
            const box = td.getBoundingClientRect();
            return box.right > innerWidth + 1 || box.left < 0 || td.scrollWidth > td.clientWidth + 1 || getComputedStyle(td, '::before').content === 'none';
          }).map(td => td.textContent)"""))
        check("scripts that failed", [], browser.errors)
    return wrong
