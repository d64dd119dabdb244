"""The command line for tests of the command about searches."""

from tests.cli.conftest import cli, home

__all__ = ["cli", "home"]
