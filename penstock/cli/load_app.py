"""Finds the app of a command: `module:attribute`, $PENSTOCK_APP, or just a database."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from penstock.app import Penstock
from penstock.cli.exit_codes import UsageError, debugging, err, one_line
from penstock.values.parse import nearest

VARIABLE = "PENSTOCK_APP"
OURS = Path(__file__).parents[1]
MOST_NAMED = 20

_default: list[Penstock] = []


def use_by_default(app: Penstock) -> None:
    """Set the app for commands that name none; frameworks call this."""
    _default[:] = [app]


def find_app(target: str | None, database: str | None = None) -> Penstock:
    """The app that the command names, or an app without tasks on the database that it names."""
    if _default and not target and not database:
        return _default[0]
    if (target or os.environ.get(VARIABLE)) and not database:
        return load_app(target)
    return Penstock(database)


def names_app(target: str | None, database: str | None) -> bool:
    """True if `find_app` returns a named app, with its tasks."""
    return bool(target or _default or os.environ.get(VARIABLE)) and not database


def load_app(target: str | None) -> Penstock:
    """The app at `module:attribute`; the attribute is "app" if not given."""
    if _default and not target:
        return _default[0]
    if target:
        return _load(target)
    target = os.environ.get(VARIABLE)
    if not target:
        raise UsageError(f"which app? Name it, such as shop:app, or set ${VARIABLE}")
    try:
        return _load(target)
    except UsageError as error:
        raise UsageError(f"{VARIABLE}={target}: {error}") from error


def _load(target: str) -> Penstock:
    name, _, path = target.partition(":")
    if not name or "/" in name or name.endswith(".py"):
        wanted = name.removesuffix(".py").replace("/", ".").strip(".") or "shop"
        raise UsageError(f"{target!r} is not of the form module:attribute; try {wanted}:{path or 'app'}")
    module = load_module(name)
    found = find_attribute(module, path or "app")
    if not isinstance(found, Penstock):
        kind, hint = type(found).__name__, _apps_in(module) or _called(path, found)
        raise UsageError(f"{name}:{path} is not a Penstock app but of type {kind}{hint}")
    return found


def load_module(name: str) -> ModuleType:
    """Import from the current folder and the usual places."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(_no_module(error.name)) from error
        raise _import_failed(name, error) from error
    except SystemExit as error:
        raise UsageError(
            f"importing {name} failed: it ends the program{_where(error)}. What it does when it is run belongs under "
            'if __name__ == "__main__":'
        ) from error
    except Exception as error:
        raise _import_failed(name, error) from error


def find_attribute(module: ModuleType, path: str) -> object:
    found: object = module
    for part in path.split("."):
        if not hasattr(found, part):
            close = get_close_matches(part, [name for name in dir(found) if not name.startswith("_")], 1)
            hint = f"; did you mean {close[0]!r}?" if close else _apps_in(module)
            raise UsageError(f"module {module.__name__!r} has no {path!r}{hint}")
        found = getattr(found, part)
    return found


def others_in(module: ModuleType, kinds: type | tuple[type, ...], wanted: str, words: str) -> str:
    """Advice for a name that leads to something else: the nearest of these kinds in the module, or all of them."""
    found = [name for name, value in vars(module).items() if isinstance(value, kinds)]
    close = nearest(wanted, found, lambda name: f"{module.__name__}:{name}")
    if close or not found:
        return close or f". There are no {words} in {module.__name__}"
    more = ", …" if len(found) > MOST_NAMED else ""
    return f". {words.capitalize()} in it: {', '.join(found[:MOST_NAMED])}{more}"


def _apps_in(module: ModuleType) -> str:
    apps = [name for name, value in vars(module).items() if isinstance(value, Penstock)]
    return f". Apps in it: {', '.join(f'{module.__name__}:{name}' for name in apps)}" if apps else ""


def _called(path: str, found: object) -> str:
    """Advice for a path that names a factory: tasks belong to an app that their module can import by name."""
    return f". If it makes one, give that a name in its module: app = {path}()" if callable(found) else ""


def _no_module(name: str) -> str:
    head, _, last = name.rpartition(".")
    places = [*getattr(sys.modules.get(head), "__path__", ())] if head else [os.getcwd()]
    nearby = [found.name for found in pkgutil.iter_modules(places)]
    close = get_close_matches(last, nearby, 1)
    hint = f"; did you mean {f'{head}.' if head else ''}{close[0]}?" if close else ""
    if hasattr(sys.modules.get(head), last):
        hint = f"; did you mean {head}:{last}?"
    return f"there is no module {name!r} in {Path.cwd()} or on the Python path{hint}"


def _import_failed(name: str, error: Exception) -> UsageError:
    if debugging():
        err.print(traceback.format_exc(), markup=False)
    where = f" ({error.filename}:{error.lineno})" if isinstance(error, SyntaxError) else _where(error)
    return UsageError(f"importing {name} failed: {type(error).__name__}: {one_line(error)}{where}")


def _where(error: BaseException) -> str:
    """The last line of the user's own code in the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not Path(frame.filename).is_relative_to(OURS)] or frames
    return f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""
