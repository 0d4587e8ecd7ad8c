"""The `headgate` command. Its packages are an extra, so none is imported before it is known to be there."""

from __future__ import annotations

import sys

from headgate.cli.extras import missing_package


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from headgate.cli.commands import run  # noqa: PLC0415 (see above)
    except ModuleNotFoundError as error:
        sentence = missing_package(error, "the command line")
        if sentence is None:
            raise
        sys.stderr.write(f"headgate: {sentence}\n")
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
