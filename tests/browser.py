"""Open a page in a headless Chromium, and read back how it looks and what a script in it finds."""

import html
import json
import re
import shutil
import subprocess

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="no Chromium on this machine: the page was not opened in a browser"
)

PROBE = """<script>
window.problems = [];
addEventListener("error", e => problems.push(String(e.message)));
addEventListener("load", () => {
  const found = (() => { %s })();
  const out = { found, width: innerWidth, overflow: document.documentElement.scrollWidth - innerWidth, problems,
    background: getComputedStyle(document.body).backgroundColor, color: getComputedStyle(document.body).color,
    wide: [...document.querySelectorAll("body *")].filter(e => !e.closest(".scroll") && !e.closest("svg")
      && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + "." + e.className).slice(0, 5) };
  parent.postMessage(JSON.stringify(out), "*");
});
</script>"""

# Browsers do not make a window narrower than 500 pixels; a frame can be any width.
FRAME = """<!doctype html><body style="margin: 0"><script>
addEventListener("message", e => {{ const p = document.createElement("pre"); p.id = "probe"; p.textContent = e.data;
  document.body.append(p); }});
</script><iframe src="page.html" style="width: {width}px; height: 900px; border: 0"></iframe>"""


def look_at(page, folder, width=1280, dark=False, script="return null"):
    """How the page, given as text, looks at this width; `found` is what `script`, the body of a function, returns."""
    (folder / "page.html").write_text(page.replace("<head>", "<head>" + PROBE % script, 1), encoding="utf-8")
    frame = folder / "frame.html"
    frame.write_text(FRAME.format(width=width))
    shown = dump(frame.as_uri(), folder, f"--blink-settings=preferredColorScheme={0 if dark else 1}")
    answer = re.search(r'<pre id="probe">(.*?)</pre>', shown, re.DOTALL)
    assert answer, shown
    seen = json.loads(html.unescape(answer.group(1)))
    assert seen["problems"] == []
    assert seen["width"] == width
    return seen


def dump(address, folder, *settings):
    """The page as it stands once its scripts have run, as text."""
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    flags += " --disable-component-update --disable-sync --hide-scrollbars --enable-logging=stderr"
    command = [BROWSER, *flags.split(), *settings, f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000"]
    shown = subprocess.run([*command, "--dump-dom", address], capture_output=True, text=True, timeout=120)
    assert shown.stdout, shown.stderr[-2000:]
    assert "CONSOLE" not in shown.stderr, shown.stderr
    return shown.stdout
