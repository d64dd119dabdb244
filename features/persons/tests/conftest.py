"""The command line for tests of the commands about persons."""

from tests.cli.conftest import cli, home

__all__ = ["cli", "home"]
