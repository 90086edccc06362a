"""`tocsin completion`: print a shell's completion script."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ..help import add_command

_SHELL_HELP = "Shell that the script is for: bash, zsh or fish."


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(app, "completion", completion, no_args_is_help=True)


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help=_SHELL_HELP, show_default=False)]) -> None:
    """Print the script that lets a shell complete commands and options of tocsin with the Tab key.

    bash: add the first example to ~/.bashrc. zsh: add the second to ~/.zshrc, after compinit. fish: add the third to
    ~/.config/fish/config.fish.

    Examples:
        eval "$(tocsin completion bash)"
        eval "$(tocsin completion zsh)"
        tocsin completion fish | source
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="tocsin", complete_var="_TOCSIN_COMPLETE", shell=shell))
