"""Files and functions stay small enough to be read at once."""

from tests.architecture.source import Function, modules

FILE_LINES = 500
FUNCTION_LINES = 40
SHORT_LINES = 20
SHORT_SHARE = 0.9

# "penstock/file.py" or "penstock/file.py:Class.function": why this one is better long.
WAIVERS: dict[str, str] = {}

MODULES = modules()


def test_files_are_short() -> None:
    long = {str(module): lines for module in MODULES if (lines := len(module.text.splitlines())) > FILE_LINES}
    assert not {name: lines for name, lines in long.items() if name not in WAIVERS}


def test_functions_are_short() -> None:
    long = {name: lines for name, lines in _function_lengths().items() if lines > FUNCTION_LINES}
    assert not {name: lines for name, lines in long.items() if name not in WAIVERS}


def test_most_functions_are_very_short() -> None:
    lengths = _function_lengths().values()
    short = sum(lines <= SHORT_LINES for lines in lengths)
    assert short >= SHORT_SHARE * len(lengths)


def test_no_waiver_outlives_its_reason() -> None:
    lengths = _function_lengths() | {str(module): len(module.text.splitlines()) for module in MODULES}
    limits = {name: FUNCTION_LINES if ":" in name else FILE_LINES for name in WAIVERS}
    assert not [name for name, limit in limits.items() if lengths.get(name, 0) <= limit]


def _function_lengths() -> dict[str, int]:
    return {f"{module}:{name}": _lines(node) for module in MODULES for name, node in module.functions}


def _lines(node: Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
