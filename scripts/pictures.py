"""Takes pictures of every page of the dashboard, light and dark, for docs/pictures/: `make pictures`.

The application is that of the tests (`tests/browser/shop.py`), filled once in a SQLite file that is thrown away.
`python scripts/pictures.py --to FOLDER --pages jobs,runs --width 360` for other looks.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

THEMES = ("light", "dark")
LEFT_OUT = ("jobs-bulk", "search", "job-waiting", "job-hostile")
"""Pages that have little to show, unless they are asked for."""
WHOLE = ("overview", "run-crashed", "run-halted", "job-failed")
"""Pages whose pictures are as high as they are."""
ON_A_PHONE = ("overview", "run-waiting", "jobs")
PHONE = 360
LEAST, HIGHEST = 600, 1800
"""Pixels of a picture that is as high as its page: what is longer goes on below."""
STILL = "*, *::before, *::after { animation: none !important; transition: none !important; caret-color: transparent; }"


def main() -> None:
    options = _options()
    options.to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["PENSTOCK_DATABASE_URL"] = "sqlite:///shop.db"
        shop = import_module("tests.browser.shop")
        shop.app.migrate()
        filling = import_module("tests.browser.filling")
        filled = filling.fill(shop, rounds=45, elements=60)
        viewer = import_module("penstock.dashboard").Viewer("ann", "all")
        web = import_module("tests.web")
        board = shop.app.dashboard(guard=lambda _: viewer, title="Corner shop", redact=_without_paths)
        url = os.environ["PENSTOCK_DATABASE_URL"]
        with filling.staffed(shop, url, Path(folder)) as process, web.asgi_server(board) as site:
            crashed = filling.crash(shop, url, Path(folder))
            _take(site, _pages(filled, process, crashed, options.pages), options)
        shop.app.close()
    total = sum(file.stat().st_size for file in options.to.glob("*.png"))
    print(f"{len(list(options.to.glob('*.png')))} pictures in {options.to}, {total / 2**20:.1f} MB")


def _without_paths(_task: str, _kind: str, value: object) -> object:
    """Tracebacks name files: the place of this checkout is no part of a picture."""
    return value.replace(str(ROOT), "/srv/shop") if isinstance(value, str) else value


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/pictures.py")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--pages", default="", help="some pages only, with commas between")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=720, help="0: as high as the page is")
    parser.add_argument("--themes", default=",".join(THEMES))
    return parser.parse_args()


def _pages(filled: Any, process: str, crashed: str, chosen: str) -> dict[str, str]:
    """The address of each page by the name of its picture."""
    found: dict[str, str] = {}
    for path in import_module("tests.browser.addresses").every_address(filled, process):
        named = _name(path, filled).replace(f"es/{process}", "").partition("?")[0]
        name = re.sub(r"-{2,}", "-", named.strip("/").replace("/", "-")) or "overview"
        found.setdefault(name, path)
    found["run-step"] = f"/runs/{filled.large_run}?step=pack&path={filled.element}#step"
    found["run-crashed"] = f"/runs/{crashed}"
    wanted = [name for name in chosen.split(",") if name]
    return {
        name: path for name, path in found.items() if (name in wanted if wanted else name not in LEFT_OUT)
    }


def _name(path: str, filled: Any) -> str:
    """An id is written as what it stands for: `/runs/<id>` of the run that waits is `run-waiting`."""
    for field in [name for name in filled.__slots__ if name.endswith(("_run", "_job"))]:
        id = getattr(filled, field)
        if id in path:
            return path.replace(
                f"s/{id}", f"/{field.replace('_run', '').replace('_job', '').replace('_', '-')}"
            )
    return path


def _take(site: str, pages: dict[str, str], options: argparse.Namespace) -> None:
    phone = {name: pages[name] for name in ON_A_PHONE if name in pages and not options.pages}
    with import_module("tests.servers.chromium").chromium() as browser:
        for theme in options.themes.split(","):
            context = browser.new_context(
                color_scheme=theme, timezone_id="Europe/Berlin", reduced_motion="reduce"
            )
            page = context.new_page()
            for name, path in pages.items():
                whole = options.height == 0 or (name in WHOLE and not options.pages)
                _picture(page, site + path, (options.width, 0 if whole else options.height))
                page.screenshot(path=options.to / f"{name}-{theme}.png", style=STILL, animations="disabled")
            for name, path in phone.items():
                _picture(page, site + path, (PHONE, 0))
                page.screenshot(
                    path=options.to / f"{name}-phone-{theme}.png", style=STILL, animations="disabled"
                )
            context.close()


def _picture(page: Any, address: str, size: tuple[int, int]) -> None:
    """Open a page in a window of this width and height; 0: as high as the page is."""
    width, height = size
    page.set_viewport_size({"width": width, "height": height or LEAST})
    page.goto(address)
    if not height:
        high = min(page.evaluate("() => document.documentElement.scrollHeight"), HIGHEST)
        page.set_viewport_size({"width": width, "height": high})


if __name__ == "__main__":
    main()
