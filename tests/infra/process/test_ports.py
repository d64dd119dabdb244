"""A taken port is an error that names the port, the setting and the process."""

from __future__ import annotations

import os
import socket

import pytest

from tests.infra.conftest import free_port
from twofold.infra.errors import PortTaken
from twofold.infra.process.ports import is_free, require_free


def test_a_port_that_is_listened_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_a_port_taken_on_all_addresses_is_not_free() -> None:
    with socket.create_server(("", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_a_port_is_free_while_a_connection_is_still_closing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            accepted.close()

    assert is_free(port)


def test_a_free_port_is_not_refused() -> None:
    require_free(free_port(), "TWOFOLD_KAFKA_PORT", "the Kafka broker")


def test_a_taken_port_is_refused_with_port_setting_and_holder() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken) as taken:
            require_free(port, "TWOFOLD_KAFKA_PORT", "the Kafka broker")

    assert f"Port {port} for the Kafka broker is taken" in str(taken.value)
    assert f"(pid {os.getpid()})" in str(taken.value)
    assert "TWOFOLD_KAFKA_PORT=" in str(taken.value)
