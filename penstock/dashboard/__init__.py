"""The dashboard: pages over an app, mounted by `app.dashboard(guard=...)` or served by `penstock dashboard`.

One synchronous handler (`dashboard.py`) answers requests that are plain values (`http.py`); two thin doors lead to it
(`asgi.py`, `wsgi.py`). Who asks is decided in `access.py` and `logins.py`. Nothing here speaks SQL: pages and acts call
functions of `penstock.operate`, whose cost does not grow with history.

To add a page:

1. Write its query in `penstock/operate/`, a function of a transaction.
2. Write `pages/<subject>.py` with a function from a `View` to a `Page(template, title, data)`. `data` is the whole
   truth of the page: mappings, lists, dataclasses, texts, numbers; fields that end in `_at` are microseconds and become
   ISO 8601. The address with `.json` gives exactly this. Read with `view.read(function, ...)`, take fields of the query
   string with `view.text(name)`, `view.id(name)` and `view.whole(name, default, most)`, and pass arguments, results,
   errors and tracebacks through `view.shown(task, kind, text)`, which hides, redacts and cuts them.
3. Add a `Route` to `ROUTES` in `pages/__init__.py`, and an entry to `NAVIGATION` if it is a section. A path holds words
   and `{ids}` only; names that users choose go into the query string.
4. Write `templates/<subject>.html`, which extends `base.html`. Templates have: `page` (the data), `title`, `view`,
   `viewer`, `may("jobs")`, `url("/jobs", task=name)`, `here(before=id)`, `act("retry-jobs")`, `static("penstock.css")`,
   `notice`; the filters `span` (seconds), `number`, `counted("job")`, `short` (an id) and `json`. No inline script and
   no inline style: the content security policy refuses them.

The look is in three files of `static/`: tokens and parts in `penstock.css`, what improves a page in `penstock.js`, an
icon for each status, section and verb in `icons.svg`. Templates build pages from the macros of `macros.html` (badges,
times, ids, fields, menus, empty states) and pictures from `pictures.py` (`graph_picture`, `timeline_picture`,
`bars_picture`, `line_picture`), which draw the page's own data with `drawing/`.

To add an act: write a function of (view, form) that returns `Done(message, data)`, and a `DashboardAct(name, right,
function)` in the `ACTS` of `acts.py`; `further` says which rights a form needs beside. A form that makes a job or a run
has `{{ ui.once_field() }}`, and the job or run takes its id from `id_to_make()`: so it is made once, however often the
form is sent (`request_ids.py`). A page sends it with a plain form:

    <form method="post" action="{{ act('retry-jobs') }}">
      <input type="hidden" name="id" value="{{ job.id }}">
      <input type="hidden" name="back" value="/jobs/{{ job.id }}">
      <button>Retry</button>
    </form>

Programs post the same fields to `/act/retry-jobs.json`. Rights, cross-site requests and the audit trail need no line
of the act's own.
"""

from penstock.dashboard.access import Right, Viewer
from penstock.dashboard.dashboard import Dashboard
from penstock.dashboard.http import Request, Response

__all__ = ["Dashboard", "Request", "Response", "Right", "Viewer"]
