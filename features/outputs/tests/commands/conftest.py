"""The command line for tests of the commands of outputs."""

from tests.cli.conftest import cli, home, lake

__all__ = ["cli", "home", "lake"]
