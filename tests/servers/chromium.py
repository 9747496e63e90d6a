"""Chromium for the tests of the dashboard: the system's, else Debian's headless one, unpacked into the cache folder.

`TEST_CHROMIUM` names a program to use instead. The fonts are always the same, so that pictures are too.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Error, sync_playwright

from tests.servers.debian import library_folders, unpacked
from tests.servers.errors import Unavailable

HINT = "Install Chromium, or set TEST_CHROMIUM to its program."
NAMES = ["chromium", "chromium-browser", "chromium-headless-shell", "google-chrome"]
PACKAGES = ["chromium-headless-shell", "chromium-common"]
FONTS = ["fonts-dejavu-core", "fonts-inter", "fonts-jetbrains-mono"]
PROGRAM = "usr/lib/chromium/chromium-headless-shell"
FLAGS = [
    "--no-sandbox",  # root may not use it, and the pages are our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--font-render-hinting=none",
]
FONT_SETTINGS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>{fonts}</dir>
  <cachedir>{cache}</cachedir>
  <alias binding="strong"><family>system-ui</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="strong"><family>sans-serif</family><prefer><family>Inter</family></prefer></alias>
  <alias binding="strong"><family>monospace</family><prefer><family>JetBrains Mono</family></prefer></alias>
</fontconfig>
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser with an empty profile; it ends with the block, and with this process."""
    program, environment = _program()
    fonts = unpacked("fonts", FONTS, [], HINT)
    with TemporaryDirectory(prefix="penstock-browser-") as folder, sync_playwright() as driver:
        settings = Path(folder) / "fonts.conf"
        settings.write_text(FONT_SETTINGS.format(fonts=fonts / "usr/share/fonts", cache=fonts / "cache"))
        environment["FONTCONFIG_FILE"] = str(settings)
        try:
            browser = driver.chromium.launch(
                executable_path=program, args=FLAGS, env={**os.environ, **environment}
            )
        except Error as error:
            raise Unavailable(f"{program} did not start: {error.message[-1000:]} {HINT}") from error
        with browser:
            yield browser


def _program() -> tuple[str, dict[str, str]]:
    found = os.environ.get("TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found, {}
    tree = unpacked("chromium", PACKAGES, [PROGRAM], HINT)
    return str(tree / PROGRAM), {"LD_LIBRARY_PATH": ":".join(library_folders(tree))}
