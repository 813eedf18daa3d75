"""`python -m erd` is `erd`."""

from erd.cli import command

command()
