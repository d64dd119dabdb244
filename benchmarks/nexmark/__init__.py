"""Nexmark, the benchmark of queries over an online auction: its events, and its queries as tables of a domain."""

from __future__ import annotations

from pathlib import Path

DECLARED = Path(__file__).with_name("declared")
"""The folder of the domain `nexmark`, which is no part of the platform's own declarations."""
