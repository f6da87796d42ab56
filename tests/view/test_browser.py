"""What a person sees, in a real browser: Debian's Chromium, headless, driven by Playwright."""

import io
import queue
import shutil
import signal
import subprocess
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from td3robot.processes import start_python
from td3robot.report.html import NEUTRAL, Page, Plot, Section, Table, Verdict, write_page
from td3robot.report.plots import figure, line

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
# Software rendering, and nothing that looks for other computers.
ARGUMENTS = [
    "--no-sandbox",
    "--use-gl=angle",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# The picture's part of the window, without the panel beside it [pixels].
WIDTH, HEIGHT = 760, 400
PAGES = {"viser": (0, 0, 360, HEIGHT), "swift": (200, 40, WIDTH - 200, HEIGHT - 40)}
WAIT_S = 180.0


@contextmanager
def viewer(*arguments):
    """Run ``td3robot view``; give the address that it says."""
    process = start_python(
        ["-m", "td3robot", "view", *arguments, "--no-open"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    lines = queue.Queue()
    threading.Thread(target=lambda: [lines.put(line.decode()) for line in process.stderr], daemon=True).start()
    try:
        yield lines.get(timeout=WAIT_S).split()[1]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30.0) == 0
        process.stderr.close()


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install playwright"
    )
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


def picture(tab, where):
    from PIL import Image

    x, y, width, height = where
    clip = {"x": x, "y": y, "width": width, "height": height}
    return np.asarray(Image.open(io.BytesIO(tab.screenshot(clip=clip, timeout=90_000))).convert("RGB"), np.int16)


def wait_for(found):
    end = time.monotonic() + WAIT_S
    while not (value := found()):
        assert time.monotonic() < end, "waited in vain"
    return value


def shows_an_arm(image):
    """Whether there is something dark, as an arm's joints are, before table, floor and sky; and shaded, not blank."""
    dark = int((image.max(axis=2) < 60).sum())
    return 200 < dark < image[..., 0].size // 2 and len(np.unique(image.reshape(-1, 3), axis=0)) > 100


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_an_arm_that_moves_and_no_error(chromium, page):
    if page == "viser":
        pytest.importorskip("viser", reason="the extra view is not installed: pip install 'td3robot[view]'")
    errors = []
    with viewer("ur5e_reach", "--with", page) as url:
        tab = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        tab.on("console", lambda message: message.type == "error" and errors.append(message.text))
        tab.on("pageerror", lambda error: errors.append(str(error)))
        tab.goto(url)
        tab.wait_for_selector("canvas")
        where = PAGES[page]
        wait_for(lambda: shows_an_arm(picture(tab, where)))
        first = picture(tab, where)
        wait_for(lambda: (np.abs(picture(tab, where) - first).max(axis=2) > 40).sum() > 200)
        wait_for(lambda: "by the policy" in tab.inner_text("body"))
        tab.close()
    assert errors == []


def wide_page(path):
    """Write a report with a plot, and a table that is wider than a phone."""
    steps = np.arange(3.0)
    plot = Plot("A plot", figure([line(steps, steps, name, "--c1") for name in "ab"], "x", "y"))
    table = Table([f"column {number}" for number in range(12)], [["a value"] * 12] * 3)
    section = Section("A section", [plot, table])
    write_page(Page("a page", "A page", Verdict(NEUTRAL, "Page", "A page."), [], [section], "nothing"), path)
    return path.as_uri()


@pytest.mark.thorough
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone_no_bar_covers_a_plot_and_a_wide_table_scrolls_in_a_box_that_shows_it(chromium, tmp_path, theme):
    context = chromium.new_context(
        viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True, color_scheme=theme
    )
    tab = context.new_page()
    tab.goto(wide_page(tmp_path / "report.html"))
    tab.wait_for_selector("html[data-drawn]", timeout=1e3 * WAIT_S)
    assert tab.locator(".modebar-btn").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    box = tab.locator(".scroll")
    assert box.evaluate("box => box.scrollWidth > box.clientWidth")
    place = box.bounding_box()
    edge = place["x"] + place["width"] - 4, place["y"] + 4, 3, place["height"] - 8
    cut = picture(tab, edge).mean()
    box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    assert abs(picture(tab, edge).mean() - cut) > 10.0, "the edge looks the same at the table's end"
    context.close()
