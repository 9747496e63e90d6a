"""Reads the HTML of a page as a browser would: links, forms with their fields, and whatever could run."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"area", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"}
OPTIONAL = {"p", "li", "option", "optgroup", "tr", "td", "th", "thead", "tbody", "dt", "dd"}
"""Elements whose end need not be written."""


@dataclass(slots=True)
class Form:
    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    """Where buttons of it send it instead."""

    @property
    def targets(self) -> list[str]:
        return [self.action, *self.others] if self.action or not self.others else self.others


class Markup(HTMLParser):
    """A page, taken apart; `broken` lists elements that are never closed, or closed without being open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.forms: list[Form] = []
        self.ids: list[str] = []
        self.dangers: list[str] = []
        self.broken: list[str] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.broken += [f"<{tag}> is never closed" for tag in self._open if tag not in OPTIONAL]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag not in VOID:
            self._open.append(tag)
        self._danger(tag, given)
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get").lower()))
        if "formaction" in given and self.forms:
            self.forms[-1].others.append(given["formaction"])
        if tag in ("input", "select", "textarea", "button") and given.get("name") and self.forms:
            self.forms[-1].fields.setdefault(given["name"], given.get("value", ""))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self._open and self._open[-1] == tag:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open[-1] != tag and self._open[-1] in OPTIONAL:
            self._open.pop()
        if not self._open or self._open[-1] != tag:
            self.broken.append(f"</{tag}> at {self.getpos()} inside {self._open[-3:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self.words += data

    def _danger(self, tag: str, given: dict[str, str]) -> None:
        """Whatever a strict policy would refuse: if there is any, something was not escaped."""
        dangerous = [name for name in given if name.startswith("on") or name in ("style", "srcdoc")]
        targets = [given.get(name, "") for name in ("href", "src", "action", "formaction")]
        dangerous += [to for to in targets if to.lower().lstrip().startswith(("javascript:", "data:text"))]
        inline = (tag == "script" and "src" not in given) or tag in (
            "style",
            "iframe",
            "object",
            "embed",
            "base",
        )
        if dangerous or inline:
            self.dangers.append(f"<{tag} {given}>")
