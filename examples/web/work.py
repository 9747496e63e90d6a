"""The work of the web examples: one app, which all of them share. `DATABASE_URL` is the application's own URL."""

import asyncio
import os

from penstock import Penstock
from penstock.dashboard import Request, Viewer

app = Penstock(os.environ.get("DATABASE_URL", "sqlite+aiosqlite:///web.db"))


@app.task
async def greet(name: str, pause: float = 0.0) -> str:
    """On the event loop of the web server."""
    await asyncio.sleep(pause)
    return f"hello {name}"


def who(request: Request) -> Viewer | None:
    """The dashboard's guard: a request with the token may do everything. A real one asks the session."""
    return Viewer("ops", "all") if request.headers.get("x-token") == "sesame" else None
