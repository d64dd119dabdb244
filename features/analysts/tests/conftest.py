"""The command line for tests of the commands of people who query."""

from tests.cli.conftest import cli, home, lake

__all__ = ["cli", "home", "lake"]
