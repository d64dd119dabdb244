"""Settings are read from the environment; a mistake in one is reported at once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from twofold.infra.errors import BadSetting
from twofold.infra.project.settings import Settings


def test_an_empty_environment_gives_the_defaults() -> None:
    settings = Settings.from_environment({"HOME": "/somewhere"})

    assert settings == Settings()
    assert settings.bootstrap_servers == "127.0.0.1:19092"
    assert settings.supervises_broker


def test_a_child_process_gets_the_same_settings(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, kafka_port=1234, engine="spark", airflow_password="secret")

    assert Settings.from_environment(settings.environment()) == settings


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("TWOFOLD_KAFKA_PORT", "ninety", "a port from 1 to 65535"),
        ("TWOFOLD_KAFKA_PORT", "70000", "a port from 1 to 65535"),
        ("TWOFOLD_SMALL_ROWS", "-1", "0 or more"),
        ("TWOFOLD_SPARK", "http://cluster", "sc://host:port"),
        ("TWOFOLD_SLOT_FAILOVER", "yes", "off, on"),
        ("TWOFOLD_ENGINE", "flink", "auto, spark, delta-rs"),
        ("TWOFOLD_KAFKA_PROT", "9092", "TWOFOLD_KAFKA_PORT"),
        ("TWOFOLD_HOME", "/srv/a [b]", r"none of % [ ] \ ^"),
        ("TWOFOLD_LAKE", "/srv/50%", "with % in its name"),
        ("TWOFOLD_AIRFLOW_URL", "data.example.org/airflow", "http:// or https://"),
        ("TWOFOLD_AIRFLOW_URL", "https:///airflow", "a host"),
        ("TWOFOLD_AIRFLOW_URL", "https://data.example.org/?x", "a path or none"),
        ("TWOFOLD_AIRFLOW_USERS", "ada", "name:role"),
        ("TWOFOLD_AIRFLOW_USERS", "ada:owner", "a role of viewer, user, op, admin"),
        ("TWOFOLD_AIRFLOW_USERS", "ada:Viewer", "a role of viewer, user, op, admin"),
        ("TWOFOLD_AIRFLOW_USERS", "ada:viewer:team", "a role of viewer, user, op, admin"),
        ("TWOFOLD_AIRFLOW_USERS", "../ada:viewer", "of letters, digits"),
        ("TWOFOLD_AIRFLOW_USERS", ":viewer", "of letters, digits"),
        ("TWOFOLD_AIRFLOW_USERS", "ada:viewer, bob:op, ada:op", "each name once"),
        ("TWOFOLD_AIRFLOW_USERS", "admin:viewer", "each name once"),
    ],
)
def test_a_bad_value_is_refused_with_its_name_and_what_was_expected(variable: str, value: str, said: str) -> None:
    with pytest.raises(BadSetting) as refused:
        Settings.from_environment({variable: value})

    assert variable in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("", {"admin": "admin"}),
        ("ada:viewer", {"admin": "admin", "ada": "viewer"}),
        (" ada.l-1:user,,bob_2:admin ", {"admin": "admin", "ada.l-1": "user", "bob_2": "admin"}),
    ],
)
def test_the_administrator_is_always_a_user_of_airflow(text: str, roles: dict[str, str]) -> None:
    assert Settings.from_environment({"TWOFOLD_AIRFLOW_USERS": text}).roles == roles


def test_every_setting_is_documented() -> None:
    assert [field.name for field in dataclasses.fields(Settings) if not field.metadata.get("doc")] == []


def test_a_secret_is_not_shown() -> None:
    assert Settings(airflow_password="hunter2").shown()["airflow_password"] == "***"
    assert Settings(spark="sc://cluster/;token=hunter2").shown()["spark"] == "***"
