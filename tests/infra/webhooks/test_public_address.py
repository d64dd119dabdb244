"""Receivers of webhooks in our own network are refused, by whatever name, unless a setting has their network."""

from __future__ import annotations

import socket

import pytest

from twofold.infra.errors import BadSetting
from twofold.infra.webhooks.public_address import allowed_networks, checked_address


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Lets each name have these addresses."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in addresses]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)


OWN = [
    *("127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
    *("255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1", "::ffff:10.0.0.1"),
    *("64:ff9b::10.0.0.1", "2002:a00:1::", "2001:db8::1"),
]


@pytest.mark.parametrize("address", OWN)
def test_an_address_of_ones_own_network_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    resolving(monkeypatch, address)
    with pytest.raises(BadSetting, match=r"receiver\.example is at .*, which is no public address") as refused:
        checked_address("receiver.example", 443, [], is_secure=True)
    assert "TWOFOLD_WEBHOOK_NETWORKS" in str(refused.value)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07::1", "64:ff9b::5db8:d70e"])
def test_a_public_address_needs_tls_alone(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    resolving(monkeypatch, address)
    assert checked_address("receiver.example", 443, [], is_secure=True) == address
    with pytest.raises(BadSetting, match="is called without TLS"):
        checked_address("receiver.example", 80, [], is_secure=False)


def test_addresses_of_a_network_of_the_setting_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = allowed_networks("10.1.0.0/16, ::1/128,")
    for address, is_allowed in (("10.1.255.255", True), ("10.2.0.1", False), ("::1", True), ("::ffff:10.1.0.1", True)):
        resolving(monkeypatch, address)
        for is_secure in (True, False):
            if is_allowed:
                assert checked_address("receiver.example", 443, allowed, is_secure=is_secure) == address
            else:
                with pytest.raises(BadSetting):
                    checked_address("receiver.example", 443, allowed, is_secure=is_secure)


def test_a_name_with_several_addresses_gives_one_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "10.0.0.1", "93.184.215.14")
    assert checked_address("receiver.example", 443, [], is_secure=True) == "93.184.215.14"


def test_a_number_that_is_an_address_is_resolved_before_it_is_checked() -> None:
    """As the system reads it: 2130706433 is 127.0.0.1."""
    for host in ("2130706433", "0x7f.1", "localhost"):
        with pytest.raises(BadSetting, match="no public address"):
            checked_address(host, 443, [], is_secure=True)


@pytest.mark.parametrize("text", ["localhost", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.0/8;127.0.0.0/8"])
def test_what_is_no_network_is_shown(text: str) -> None:
    with pytest.raises(BadSetting, match=r"TWOFOLD_WEBHOOK_NETWORKS: .*1?") as refused:
        allowed_networks(text)
    assert text.split("/")[0] in refused.value.message
