"""How long names may be: of a task, a queue, a label; of a key; of a place in nested expands."""

from __future__ import annotations

NAME_LENGTH = 200
KEY_LENGTH = 255
PATH_LENGTH = 255
