"""The least a command line of click and rich can be: what ``toolpost --help`` is compared with."""

import click
from rich.console import Console


@click.group()
def main() -> None:
    """A program with three commands."""


@main.command("list")
def list_() -> None:
    """List the tools."""
    Console().print("[bold]none[/bold]")


@main.command()
@click.argument("name")
def show(name: str) -> None:
    """Show one tool."""
    Console().print(name)


@main.command()
@click.argument("name")
@click.argument("arguments", nargs=-1)
def call(name: str, arguments: tuple[str, ...]) -> None:
    """Call one tool."""
    Console().print(name, *arguments)


if __name__ == "__main__":
    main()
