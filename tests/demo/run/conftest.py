"""The command line for tests of the demo."""

from tests.cli.conftest import cli, home

__all__ = ["cli", "home"]
