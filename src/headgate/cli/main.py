"""The `headgate` command. Its packages are an extra, so none is imported before it is known to be there."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from headgate.cli.commands import run  # noqa: PLC0415 (see above)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("headgate"):
            raise
        sys.stderr.write(
            f"headgate: the command line needs {error.name}, which is not installed: pip install 'headgate[server]'\n"
        )
        sys.exit(1)
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
