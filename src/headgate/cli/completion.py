"""`headgate completion`: what a shell needs to complete commands and options."""

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

from headgate.cli.output import write_text
from headgate.settings import COMPLETION


class Shell(StrEnum):
    """Shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
) -> None:
    """Write a script that completes commands and options: eval "$(headgate completion bash)"."""
    write_text(get_completion_script(prog_name="headgate", complete_var=COMPLETION, shell=shell.value) + "\n")
