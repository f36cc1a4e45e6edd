"""`pilothouse completion`: the script that a shell needs to complete our commands."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes commands and options in SHELL.

    \b
    Examples:
      eval "$(pilothouse completion bash)"             # now, and in ~/.bashrc for ever
      pilothouse completion fish > ~/.config/fish/completions/pilothouse.fish
    """
    from click.shell_completion import get_completion_class

    from pilothouse.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "pilothouse", "_PILOTHOUSE_COMPLETE").source())
