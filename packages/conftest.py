"""The session of Spark that all tests share."""

from tests.conftest import interpreted, spark

__all__ = ["interpreted", "spark"]
