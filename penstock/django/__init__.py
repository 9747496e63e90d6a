"""Penstock in a Django project: `INSTALLED_APPS = [..., "penstock.django"]`.

In order of use: `databases` makes the app's URL from `DATABASES`; `application` is the one app of the project, whose
writes join `atomic()`; `apps` discovers `tasks.py` and connects Django's signals; `connections` keeps Django's own
connections healthy around handlers; `task_backend` is the backend of `django.tasks`; `checks`, `urls`, `models` and
`admin` are for the people who look after it; `management` has `manage.py penstock`.
"""

import typing as _typing

from penstock.values.lazy_import import Lazy as _Lazy

if _typing.TYPE_CHECKING:
    from penstock.django.application import DjangoApp
    from penstock.django.task_backend import TaskBackend

    app: DjangoApp

__all__ = ["TaskBackend", "app"]


def __getattr__(name: str) -> _typing.Any:
    match name:
        case "app":
            return _Lazy("penstock.django.application").the_app()
        case "TaskBackend":
            return _Lazy("penstock.django.task_backend").TaskBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
