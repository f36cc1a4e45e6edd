"""`pilothouse web`: a run in the browser, while it goes on or afterwards."""

from __future__ import annotations

import click


@click.command("web")
@click.argument("run", metavar="DIR")
@click.option("--port", default=0, metavar="N", help="Where to listen. [default: any free port]", type=click.IntRange(0, 65535))
@click.option("--address", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Which interface to listen on.")
@click.option("--every", default=1.0, show_default=True, metavar="SECONDS", help="How often to look.")
def command(run: str, port: int, address: str, every: float) -> None:
    """Show the run in DIR in a browser, live: the page of `pilothouse report`, with what runs, fails and waits now.

    DIR is the folder of `pilothouse run`, of a QCG service or of disBatch, or what a simulation writes to. The page shows
    running tasks by age, failures with what they wrote, engines and contexts, the rate and the time left. Its buttons cancel
    a task, run a failed one again, drain an engine and add engines.

    It listens on this host alone, and answers only who has the token in the address that is printed. From elsewhere: use
    the ssh command that is printed.

    \b
    Examples:
      pilothouse web tasks.txt.run1
      pilothouse web tasks.txt.run1 --port 8080
      pilothouse watch tasks.txt.run1 --web
    """
    from pilothouse.views.web.server import serve

    serve(run, address=address, port=port, every_s=max(0.1, every), say=click.echo)
