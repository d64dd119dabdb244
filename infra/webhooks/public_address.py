"""Finds the address of a receiver of webhooks, which is none of our own network unless a setting allows it."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from twofold.infra.errors import BadSetting

Network = IPv4Network | IPv6Network
_SETTING = "TWOFOLD_WEBHOOK_NETWORKS"
_TRANSLATED = ip_network("64:ff9b::/96")
"""Addresses whose last 32 bits are the IPv4 address that a gateway connects to."""
_SITE_LOCAL = ip_network("fec0::/10")


def allowed_networks(setting: str) -> Sequence[Network]:
    """Reads the networks of the setting `webhook_networks`.

    Raises:
        BadSetting: shows the part that is no network.
    """
    found = []
    for part in filter(None, map(str.strip, setting.split(","))):
        try:
            found.append(ip_network(part))
        except ValueError as error:
            raise BadSetting(
                f"{_SETTING}: {error}.", hint="Write networks such as 127.0.0.0/8, 10.1.0.0/16, with commas."
            ) from None
    return found


def checked_address(host: str, port: int, allowed: Sequence[Network], *, is_secure: bool) -> str:
    """Resolves a host to an address that may be connected to; only that very address has been checked.

    Args:
        allowed: networks in which addresses need not be public, nor the connection secure.

    Raises:
        BadSetting: all addresses of the host are in our own networks, or the connection is not secure.
        OSError: the host has no address.
    """
    addresses = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for text in addresses:
        address = _reached(text)
        if any(address in network for network in allowed) or (is_secure and _is_public(address)):
            return text
    listed = ", ".join(dict.fromkeys(addresses))
    why = "is no public address" if is_secure else "is called without TLS"
    raise BadSetting(
        f"{host} is at {listed}, which {why} and is in no network of {_SETTING}.",
        hint=f"Use a receiver at a public address by https://, or add its network to {_SETTING}.",
    )


def _reached(text: str) -> IPv4Address | IPv6Address:
    """Returns the address that a connection reaches: IPv6 can hold one of IPv4."""
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address in _TRANSLATED:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
        return address.ipv4_mapped or address.sixtofour or address
    return address


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    return address.is_global and not address.is_multicast and address not in _SITE_LOCAL
