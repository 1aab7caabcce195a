"""`slotgate keys`: make API keys."""

from __future__ import annotations

import secrets

import typer

from slotgate.config import key_digest

app = typer.Typer(
    name="keys",
    help="Make API keys.",
    no_args_is_help=True,
    add_completion=False,
)

# Lets people and secret scanners see what a stray text is.
PREFIX = "sg_"
RANDOM_BYTES = 32


@app.callback()
def _group() -> None:
    """Make API keys."""


@app.command()
def new() -> None:
    """Make a key of 256 random bits.  It is shown once and kept nowhere."""
    key = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    typer.echo(key)
    typer.echo("The key above is shown once; give it to whom it is for.", err=True)
    typer.echo("The line for the configuration, below tenants (or admin_key_sha256):", err=True)
    typer.echo(f"key_sha256: {key_digest(key).hex()}")
