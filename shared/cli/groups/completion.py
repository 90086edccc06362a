"""`tocsin completion`: what a shell needs to complete the words of `tocsin`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("completion", no_args_is_help=True)(completion)


def completion(shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Which shell's.", show_default=False)]) -> None:
    """Print a shell's completion script.

    bash: eval "$(tocsin completion bash)" in ~/.bashrc; zsh: the same with zsh, after compinit; fish: tocsin completion fish | source.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    typer.echo(get_completion_script(prog_name="tocsin", complete_var="_TOCSIN_COMPLETE", shell=shell))
