"""An app whose names, keys, arguments, errors and words are hostile: markup, braces, right-to-left, controls."""

from __future__ import annotations

from typing import Any

from penstock import Penstock, wait_for
from penstock.testing import drain

SECRET = "s3cret-payload"
"""In arguments, results and errors, and nowhere else."""
MARKUP = "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><b>&lt;"
BRACES = "{{7*7}}{%raw%}${7*7}"
ODD = "\u202egnp.exe\u202c \x07\x1b[31m\x9b \ufeff\u2028"
HOSTILE = f"{MARKUP} {BRACES} {ODD} {SECRET}"
NAME = f"{MARKUP}{BRACES}\u202e"
"""As a name may be: without the rest."""


def fill(app: Penstock) -> dict[str, str]:
    """One of everything; ids by what they are of."""

    @app.task(name=f"task {NAME}", retries=0)
    def fails(text: str) -> str:
        raise ValueError(text)

    @app.task(name=f"echo {NAME}")
    def echo(value: Any) -> Any:
        return value

    @app.task(name=f"both {NAME}")
    def both(text: str, answer: Any) -> str:
        return text

    @app.pipeline(name=f"pipe {NAME}")
    def pipe(text: str) -> Any:
        return both(text, wait_for(f"signal {NAME}"))

    @app.pipeline(name=f"halting {NAME}")
    def halting(text: str) -> Any:
        return fails(text)

    with app.acting(by=f"eve {NAME}", why=NAME):
        failed = fails.options(key=f"key {NAME}").enqueue(HOSTILE)
        done = echo.enqueue({HOSTILE: [HOSTILE, None, 1.5]})
        waiting = pipe.options(key=f"key {NAME}").trigger(HOSTILE)
        halted = halting.trigger(HOSTILE)
        schedule = app.schedules.create(echo, "0 9 * * *", name=f"schedule {NAME}", args=(HOSTILE,))
        schedule.pause(why=NAME)
        drain(app)
        pending = echo.options(delay=3600).enqueue(HOSTILE)
        pending.cancel()
    return {"failed": failed.id, "done": done.id, "run": waiting.id, "halted": halted.id}
