"""`penstock schedules`: lists schedules and their ticks; pause, resume, trigger, backfill, create, delete."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.commands.enqueue import read_arguments
from penstock.cli.exit_codes import BAD, UsageError, out
from penstock.cli.load_app import find_attribute, load_module
from penstock.cli.options import App, AsJson, By, DatabaseUrl, Why, Yes, acting, acting_on, opened
from penstock.cli.output import at, show_json, show_table, span, tell
from penstock.schedules.rows import clock
from penstock.schedules.times import instant_of
from penstock.values.parse import parse_seconds
from penstock.values.plain import counted

if TYPE_CHECKING:
    from penstock.schedules.schedule import Tick

Name = Annotated[str, typer.Argument(metavar="NAME", help="the schedule's name")]

schedules = typer.Typer(
    invoke_without_command=True,
    help="List schedules; show, pause, resume, trigger, backfill, create, delete.",
)


@schedules.callback()
def default(
    ctx: typer.Context,
    prefix: Annotated[str, typer.Option(help="only names with this beginning")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most this many")] = 100,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List schedules; show, pause, resume, trigger, backfill, create, delete."""
    if ctx.invoked_subcommand is not None:
        return
    with opened(app, database) as found:
        listed = [each.described() for each in found.schedules(prefix=prefix, limit=limit)]
    if as_json:
        show_json(listed)
        return
    columns = ["name", "task", "next (UTC)", "state", "when"]
    cells = [
        (each["name"], each["task"], _next(each["next"]), each["state"], each["when"]) for each in listed
    ]
    show_table(columns, cells, empty="no schedules")


@schedules.command("next")
def next_ticks(
    name: Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, help="how many")] = 10,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show when a schedule fires next, in its zone and in UTC."""
    with opened(app, database) as found:
        schedule = found.schedule(name)
        times, words = schedule.next(count), schedule.description
    if as_json:
        show_json([each.astimezone(UTC).isoformat() for each in times])
        return
    out.print(words, markup=False)
    show_table(
        ["there", "UTC"], [(_at(each), _at(each.astimezone(UTC))) for each in times], empty="it has ended"
    )


@schedules.command("ticks")
def ticks(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most this many")] = 50,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what became of the ticks of a schedule, the latest first."""
    with opened(app, database) as found:
        seen = found.schedule(name).ticks(limit)
    if as_json:
        show_json([_tick(each) for each in seen])
        return
    columns = ["nominal", "outcome", "count #", "late #", "job"]
    cells = [
        (_at(each.nominal), each.outcome, each.count, span(each.lateness), _started(each)) for each in seen
    ]
    show_table(columns, cells, empty="no ticks yet")


@schedules.command("pause")
def pause(
    name: Name,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Fire no more until resumed, also over deploys."""
    with acting_on(app, database, by, why) as found:
        done = found.schedule(name).pause(why)
    _answer(f"paused {name}" if done else f"{name} is paused already", name, done, as_json)


@schedules.command("resume")
def resume(
    name: Name,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Go on with the next tick."""
    with acting_on(app, database, by, why) as found:
        done = found.schedule(name).resume()
    _answer(f"resumed {name}" if done else f"{name} is not paused", name, done, as_json)


@schedules.command("trigger")
def trigger(
    name: Name,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Start the job or run now, besides the ticks; print its id."""
    with acting_on(app, database, by, why) as found:
        started = found.schedule(name).trigger().id
    tell(started, {"schedule": name, "started": started}, as_json=as_json)


@schedules.command("backfill")
def backfill(
    name: Name,
    start: Annotated[str, typer.Argument(help="from: an instant in ISO 8601, or how long ago, such as 7d")],
    end: Annotated[str, typer.Argument(help="until")] = "0s",
    overlap: Annotated[
        str, typer.Option(help="allow, skip, queue (one after the other) or cancel")
    ] = "allow",
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have the workers fire the ticks of a time that has passed, as far as they have not fired."""
    with acting_on(app, database, by, why) as found:
        now = instant_of(found.database.read(clock))
        number = found.schedule(name).backfill(_instant(start, now), _instant(end, now), overlap=overlap)
    tell(
        f"{counted(number, 'tick')} will be fired, unless fired before",
        {"schedule": name, "ticks": number},
        as_json=as_json,
    )


@schedules.command("create")
def create(
    target: Annotated[
        str, typer.Argument(metavar="MODULE:TASK", help="a task or a pipeline, such as shop:report")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="values as JSON or plain text; name=value by name")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="its name; default: made from the task and the times")
    ] = None,
    cron: Annotated[str | None, typer.Option(help="five fields, such as '0 3 * * *', or @daily")] = None,
    every: Annotated[str | None, typer.Option(help="an interval, such as 90s or 5m")] = None,
    tz: Annotated[str | None, typer.Option(help="the time zone of --cron; default: UTC")] = None,
    missed: Annotated[str | None, typer.Option(help="skip, latest or all")] = None,
    overlap: Annotated[str | None, typer.Option(help="allow, skip, queue or cancel")] = None,
    jitter: Annotated[float | None, typer.Option(help="seconds, at most, by which jobs are delayed")] = None,
    queue: Annotated[str | None, typer.Option(help="another queue than the task's own")] = None,
    paused: Annotated[bool, typer.Option("--paused", help="do not fire before it is resumed")] = False,
    by: By = None,
    why: Why = None,
    as_json: AsJson = False,
) -> None:
    """Make a schedule for a task or a pipeline, or give the one of that name another definition."""
    module, colon, attribute = target.partition(":")
    if not (module and colon and attribute):
        raise UsageError(f"{target!r} is not of the form module:task, such as shop:report")
    found: Any = find_attribute(load_module(module), attribute)
    if not hasattr(found, "drafted"):
        raise UsageError(f"{target} is neither a task nor a pipeline but of type {type(found).__name__}")
    args, kwargs = read_arguments(arguments or [])
    given = {"name": name, "tz": tz, "missed": missed, "overlap": overlap, "jitter": jitter, "queue": queue}
    chosen: dict[str, Any] = {each: value for each, value in given.items() if value is not None}
    if every is not None:
        chosen["every"] = _seconds(every)
    with acting(by, why):
        made = found.host.schedules.create(found, cron, args=args, kwargs=kwargs, paused=paused, **chosen)
    tell(f"{made.name}: {made.description}", made.described(), as_json=as_json)


@schedules.command("delete")
def delete(
    name: Name,
    yes: Yes = False,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Delete a schedule and the history of its ticks; jobs and runs that it has started go on."""
    with acting_on(app, database, by, why) as found:
        if not yes and not as_json and out.is_terminal:
            typer.confirm(f"delete {name} and the history of its ticks?", abort=True)
        done = found.schedule(name).delete()
    _answer(f"deleted {name}" if done else f"there is no schedule {name}", name, done, as_json)


def _answer(words: str, name: str, done: bool, as_json: bool) -> None:
    tell(words, {"schedule": name, "done": done}, as_json=as_json)
    if not done:
        raise typer.Exit(BAD)


def _tick(tick: Tick) -> dict[str, Any]:
    return {
        "nominal": tick.nominal.astimezone(UTC).isoformat(),
        "outcome": tick.outcome,
        "count": tick.count,
        "lateness": tick.lateness,
        "job": tick.job.id if tick.job is not None else None,
        "run": tick.run.id if tick.run is not None else None,
    }


def _started(tick: Tick) -> str:
    started = tick.job if tick.job is not None else tick.run
    return "" if started is None else str(started.id)


def _next(iso: str | None) -> str:
    return "" if iso is None else at(datetime.fromisoformat(iso))


def _at(instant: datetime | None) -> str:
    return "" if instant is None else f"{instant:%Y-%m-%d %H:%M:%S %Z}"


def _seconds(text: str) -> float:
    try:
        return float(parse_seconds(text))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{text!r}: {error}") from None


def _instant(text: str, now: datetime) -> datetime:
    """Read an instant, or a duration before now."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return now - timedelta(seconds=_seconds(text))
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
