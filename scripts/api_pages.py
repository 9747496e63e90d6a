"""Pages of the reference, made from signatures and docstrings of the public classes and functions."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import penstock
from penstock import errors, testing
from penstock.context import CurrentJob
from penstock.job import Job
from penstock.pipelines.define import graph
from penstock.pipelines.define.fluent import FlowBlueprint
from penstock.pipelines.pipeline import Pipeline
from penstock.pipelines.run import Run
from penstock.reconcile.item import Item
from penstock.run_context import RunContext
from penstock.schedules.schedule import Schedule, Schedules
from penstock.task import Task
from penstock.values import option_types

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"
"""The methods that it lists are public; what else a class has is for its own package."""
CLASSES: dict[str, tuple[str, list[tuple[str, type]]]] = {
    "app": ("The app", [("app", penstock.Penstock)]),
    "tasks": ("Tasks and jobs", [("task", Task), ("job", Job), ("current()", CurrentJob)]),
    "pipelines": (
        "Pipelines and runs",
        [("pipeline", Pipeline), ("flow", FlowBlueprint), ("run", Run), ("run.context", RunContext)],
    ),
    "schedules": ("Schedules", [("schedule", Schedule), ("app.schedules", Schedules)]),
    "reconcilers": ("Reconcilers", [("item", Item)]),
}
VERBS = (graph.switch, graph.first, graph.barrier, graph.wait_for)


def api_pages() -> dict[str, str]:
    """Name and text of each page."""
    pages = {name: "".join(_class_page(title, classes)) for name, (title, classes) in CLASSES.items()}
    pages["pipelines"] += "".join(_functions("Verbs of the graph spelling", VERBS))
    pages["testing"] = "".join(_module_page("penstock.testing", testing))
    pages["errors"] = "".join(_error_page())
    return pages


def _class_page(title: str, classes: list[tuple[str, type]]) -> Iterator[str]:
    yield f"# {title}: signatures\n"
    listed = set(re.findall(r"[`., ]([a-z_]+)[`(,]", REFERENCE.read_text()))
    for word, kind in classes:
        yield f"\n## `{word}`\n\n{_text(inspect.getdoc(kind))}\n"
        methods = _methods(kind)
        for name in sorted(methods.keys() & listed):
            if name.endswith("_async") and name.removesuffix("_async") in methods:
                continue
            yield _method(word, name, methods[name], f"{name}_async" in methods)


def _methods(kind: type) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """The public methods and properties that have a docstring, the most special ones first."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for base in [base for base in inspect.getmro(kind) if base.__module__.startswith("penstock")]:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        methods = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for node in methods:
            said = ast.get_docstring(node) or node.name.endswith("_async")
            if said and not node.name.startswith("_") and not _decorated(node, "overload"):
                found.setdefault(node.name, node)
    return found


def _method(word: str, name: str, node: ast.FunctionDef | ast.AsyncFunctionDef, twin: bool) -> str:
    arguments = [text for text in _split(ast.unparse(node.args)) if text not in ("self", "/")]
    arguments = [re.sub(r"^(\*\*\w+): Unpack.*", r"\1", text) for text in arguments]
    call = "" if _decorated(node, "property") else f"({', '.join(arguments)})"
    returned = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    also = f"\n\nFor async callers: `{name}_async`." if twin else ""
    for keywords in re.findall(r"Unpack\[(\w+)\]", ast.unparse(node.args)):
        names = getattr(option_types, keywords).__annotations__
        also += f"\n\nKeyword arguments: {', '.join(f'`{each}`' for each in names)}."
    return f"\n### {name}\n\n```text\n{word}.{name}{call}{returned}\n```\n\n{_text(ast.get_docstring(node))}{also}\n"


def _split(text: str) -> list[str]:
    """The parts between the commas that are not in brackets or quotes."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def _decorated(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> bool:
    return any(name in ast.unparse(decorator) for decorator in node.decorator_list)


def _functions(title: str, functions: Any) -> Iterator[str]:
    yield f"\n## {title}\n"
    for function in functions:
        signature = str(inspect.signature(function)).replace("'", "")
        yield f"\n### {function.__name__}\n\n```text\n{function.__name__}{signature}\n```\n"
        yield f"\n{_text(inspect.getdoc(function))}\n"


def _module_page(name: str, module: ModuleType) -> Iterator[str]:
    yield f"# `{name}`: signatures\n\n{_text(inspect.getdoc(module))}\n"
    public = [getattr(module, each) for each in sorted(module.__all__)]
    yield from _functions("Functions", [each for each in public if inspect.isfunction(each)])
    for kind in [each for each in public if inspect.isclass(each)]:
        yield f"\n### {kind.__name__}\n\n{_text(inspect.getdoc(kind))}\n"


def _error_page() -> Iterator[str]:
    yield "# Errors: what each says\n\nWhen each is raised, and what to do: [errors](../operations/errors.md).\n"
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, Exception)]
    for kind in kinds:
        if kind.__module__ == errors.__name__:
            base = kind.__bases__[0].__name__
            yield f"\n## {kind.__name__}\n\nA `{base}`. {_text(kind.__doc__)}\n"


def _text(docstring: str | None) -> str:
    """A docstring as Markdown: what is drawn or set in is code."""
    lines = textwrap.dedent(docstring or "").strip().splitlines()
    first, rest = "\n".join(lines[:1]), textwrap.dedent("\n".join(lines[1:]))
    return "\n".join([first, rest]).strip().replace("<", "\\<").replace("[", "\\[")
