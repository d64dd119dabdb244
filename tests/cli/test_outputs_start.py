"""The database of copies and the process of outputs start only where a table declares one."""

from __future__ import annotations

from dataclasses import replace

from tests.tables.declared import a_table
from twofold import to_postgres
from twofold.cli import outputs_start
from twofold.infra.process.server_ports import server_ports
from twofold.infra.project.settings import Settings
from twofold.tables.declare.outputs.output import Output
from twofold.tables.declare.registry import Registry, load


def declaring(*outputs: Output) -> Registry:
    return Registry({}, {"plant.hours": replace(a_table(), outputs=outputs)})


def test_nothing_is_started_without_an_output(settings: Settings) -> None:
    for registry in (load().restricted_to(["flights"]), declaring()):
        assert not outputs_start.keeps_copies(registry)
        assert outputs_start.copy_programs(settings, registry, []) == []
        assert outputs_start.output_programs(settings, registry) == []
        outputs_start.ensure_copies(settings, registry)
    assert not settings.home.exists()


def test_an_output_with_a_destination_needs_no_database_of_ours(settings: Settings) -> None:
    registry = declaring(to_postgres(destination="reports"))
    assert outputs_start.copy_programs(settings, registry, []) == []
    [program] = outputs_start.output_programs(settings, registry)
    assert (program.name, program.command[-2:]) == ("outputs", ["outputs", "follow"])
    assert not settings.home.exists()


def test_the_shop_has_a_copy_in_our_database() -> None:
    assert outputs_start.keeps_copies(load().restricted_to(["shop"]))


def test_copies_need_the_port_of_the_database_even_if_yours_is_captured(settings: Settings) -> None:
    yours = replace(settings, database="postgresql://me:secret@db/shop")
    ports = [port.setting for port in server_ports(yours, airflow=False, spark=False, captures=True, copies=True)]
    assert ports[2:] == ["TWOFOLD_DATABASE_PORT", "TWOFOLD_CONNECT_PORT"]
