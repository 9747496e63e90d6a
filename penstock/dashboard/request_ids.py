"""Answers a form that was sent twice: the second request finds the job or run that the first one has made.

A form that makes something has a field `once`, an id, and the new job or run gets this very id (`values/ids.py`). A
double click, or a form that is sent again after a lost answer, so makes one thing, whatever else the form says. Each
page that is sent has ids of its own: templates are rendered with a mark in their place, since HTML is shared between
requests.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import TYPE_CHECKING

from penstock.dashboard.acts import Done, Form, WrongForm, id_of, optional_text
from penstock.operate.jobs import made_under
from penstock.values.ids import new_id

if TYPE_CHECKING:
    from penstock.dashboard.views import View

ONCE = "once"
MARK = f"once-{secrets.token_hex(12)}"
"""A placeholder for an id in HTML that was rendered and not yet sent; no stored text can contain it."""
OLDEST_FORM = 7 * 86_400.0
"""Seconds for which a form is good. Jobs are listed by their ids, which begin with a time: an id from last month would
hide its job."""
_MARKS = re.compile(MARK.encode())
_VERSION_7 = "7"


def with_ids(html: bytes) -> bytes:
    """Fill in the page: each form that makes something gets an id of its own."""
    return _MARKS.sub(lambda _: new_id().encode(), html)


def once_of(form: Form) -> str | None:
    """The id for the job or run of this form; None: any id will do."""
    if optional_text(form, ONCE) is None:
        return None
    id = id_of(form, ONCE)
    age = time.time() - int(id[:8] + id[9:13], 16) / 1000
    if id[14] != _VERSION_7 or abs(age) > OLDEST_FORM:
        raise WrongForm("this form is too old to be sent: load its page again, and send it from there")
    return id


def sent_before(view: View, once: str | None) -> Done | None:
    """The answer to a form that was sent before and has made something; None if it has not."""
    kind = None if once is None else view.read(made_under, once)
    if kind is None:
        return None
    words = f"This form was sent before, and this is the {kind} that it made. To make another, load its page again."
    name = {"job": "id", "run": "run"}[kind]
    return Done(words, {name: once, "started": once, "again": True}, to=f"/{kind}s/{once}")
