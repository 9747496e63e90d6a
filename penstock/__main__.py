"""The command `penstock`, also as `python -m penstock`."""

import sys

from penstock.values.lazy_import import Lazy

INTERRUPTED = 130

command_line = Lazy("penstock.cli.main")


def main() -> None:
    """Run the command line. Ctrl-C ends it also while Python imports its modules."""
    try:
        command_line.main()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
