"""A lake beside the live one, in which one table is made anew."""

from __future__ import annotations

import shutil
from dataclasses import replace

from infra.settings import Settings
from tables.declaration import Table, Topic
from tables.fingerprint import fingerprint, recorded
from tables.lake import Lake
from tables.registry import Registry
from tables.setup import Platform, ensure_domain


def shadow_settings(settings: Settings, table: Table) -> Settings:
    """The settings under which all that belongs to the table's shadow lies apart: tables, checkpoints, ledgers."""
    home = settings.home / "shadow" / table.full_name
    return replace(settings, home=home, lake="", bootstrap=settings.bootstrap_servers)


def shadow(platform: Platform, table: Table) -> Platform:
    """The table and all that it reads, directly or through others, in a lake of their own, as far as it was filled.

    It shares nothing with the live platform: its streams may run while those of the same names do.
    """
    registry = above(platform.registry, table)
    lake = Lake(shadow_settings(platform.lake.settings, table))
    for domain in registry.domains:
        ensure_domain(lambda: platform.spark, lake, registry, domain)
    return Platform(lambda: platform.spark.newSession(), lake, registry)


def is_stale(shadow: Platform) -> bool:
    """Whether a table of it was filled by another definition than today's."""
    return any(
        recorded(shadow.lake, table) not in (None, fingerprint(table)) for table in shadow.registry.tables.values()
    )


def drop(settings: Settings, table: Table) -> None:
    """Remove the table's shadow, if there is one."""
    shutil.rmtree(shadow_settings(settings, table).home, ignore_errors=True)


def above(registry: Registry, table: Table) -> Registry:
    """The part of the registry that the table's rows are computed from, itself included."""
    topics: dict[str, Topic] = {}
    tables: dict[str, Table] = {table.full_name: table}
    waiting = [table]
    while waiting:
        for source in registry.upstream(waiting.pop()):
            if isinstance(source, Topic):
                topics[source.full_name] = source
            elif source.full_name not in tables:
                tables[source.full_name] = source
                waiting.append(source)
    return Registry(topics, tables)
