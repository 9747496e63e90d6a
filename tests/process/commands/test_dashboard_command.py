"""cli/commands/dashboard: `penstock dashboard`: a link that works once, on this machine only, and an end at once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from penstock import Penstock

SOURCE = """
from penstock import Penstock

app = Penstock()


@app.task(name="receipt")
def receipt(order: int) -> int:
    return order
"""


@contextmanager
def served(folder: Path, url: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command, and the link that it prints."""
    (folder / "paper_shop.py").write_text(SOURCE)
    command = [sys.executable, "-m", "penstock", "dashboard", "paper_shop:app", *arguments]
    environ = os.environ | {"PENSTOCK_DATABASE_URL": url, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            link = next((line.strip() for line in lines if "http://" in line), "")
            yield process, link
        finally:
            process.kill()


def ask(link: str, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
    connection = HTTPConnection(urlsplit(link).netloc, timeout=60)
    connection.request("GET", path, headers={name.capitalize(): value for name, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


@pytest.mark.process
@pytest.mark.one_database
def test_the_link_opens_it_once_and_ctrl_c_ends_it(app: Penstock, database_url: str, tmp_path: Path) -> None:
    app.prepare()
    with served(tmp_path, database_url, "--port", "0") as (process, link):
        place = urlsplit(link)
        login = f"{place.path}?{place.query}"
        status, headers, _ = ask(link, login)
        assert (status, headers["Location"]) == (303, "/")
        session = headers["Set-Cookie"].partition(";")[0]
        assert "HttpOnly" in headers["Set-Cookie"]
        assert ask(link, "/jobs.json", cookie=session)[0] == 200
        assert ask(link, login)[0] == 401
        assert ask(link, "/jobs.json")[0] == 401
        assert ask(link, "/jobs.json", cookie=session, host="evil.example")[0] == 421
        taken = str(place.port)
        again = [sys.executable, "-m", "penstock", "dashboard", "paper_shop:app", "--port", taken]
        environ = os.environ | {"PENSTOCK_DATABASE_URL": database_url}
        refused = subprocess.run(
            again, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100, check=False
        )
        assert refused.returncode == 2
        assert f"port {taken} is in use" in refused.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.process
@pytest.mark.one_database
def test_the_demo_can_be_watched(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "penstock", "demo", "--orders", "20", "--dashboard"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as play:
        try:
            assert play.stdout is not None
            lines = iter(play.stdout.readline, "")
            link = next(line.partition("http://")[2].strip() for line in lines if "http://" in line)
            place = urlsplit(f"http://{link}")
            _, headers, _ = ask(f"http://{link}", f"{place.path}?{place.query}")
            session = headers["Set-Cookie"].partition(";")[0]
            triggered = next(line for line in lines if "triggered" in line)
            assert "20 orders" in triggered
            status, _, text = ask(f"http://{link}", "/runs.json", cookie=session)
            assert (status, "running" in text) == (200, True)
            assert any("nothing lost, nothing twice" in line for line in lines)
            assert play.wait(60) == 0
        finally:
            play.kill()
