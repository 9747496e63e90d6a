"""Where test databases lie: in memory, where there is plenty of it.

Every database waits for the disk at a commit or when a table is made, as it should. No test takes the power away, so
all that waiting proves nothing; on a busy disk it is most of the suite's time.
"""

import os
import shutil

FOLDER = "/dev/shm"
PLENTY = 4 * 1024**3
"""In containers this folder often has a few megabytes only."""


def in_memory() -> str | None:
    """A folder in memory with room for databases, or None."""
    roomy = os.access(FOLDER, os.W_OK) and shutil.disk_usage(FOLDER).free >= PLENTY
    return FOLDER if roomy else None
