"""Which addresses may be contacted: a pure policy, used when a URL is saved and again when it is opened.

Public unicast addresses may; everything else only where an allowlist says so. No Django, no network.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# What an address is, in the word that a refusal shows; the first that fits counts. Python's own tables
# differ between patch releases, so what matters is written out here.
KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("unspecified", ("0.0.0.0/8", "::/128")),
    ("loopback", ("127.0.0.0/8", "::1/128")),
    # Where clouds tell a machine its secrets. One of these looks public, and others lie in wider blocks below.
    (
        "metadata",
        ("169.254.169.254/32", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::254/128"),
    ),
    ("link-local", ("169.254.0.0/16", "fe80::/10")),
    ("private", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7", "fec0::/10", "64:ff9b:1::/48")),
    ("carrier-grade NAT", ("100.64.0.0/10",)),
    ("multicast", ("224.0.0.0/4", "ff00::/8")),
    (
        "reserved",
        (
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "240.0.0.0/4",
            "100::/64",
            "2001::/23",
            "2001:db8::/32",
            "3fff::/20",
            "5f00::/16",
        ),
    ),
)
_TABLE: tuple[tuple[str, Network], ...] = tuple((word, ip_network(text)) for word, texts in KINDS for text in texts)
# An allowed *name* is not enough for these: whoever runs its DNS could point it there.
NEVER_BY_NAME = {"unspecified", "metadata", "link-local", "multicast", "reserved"}

_NAT64 = ip_network("64:ff9b::/96")
_COMPATIBLE = ip_network("::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)
_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# How browsers tell a number from a name: the last label decides (WHATWG URL, "ends in a number").
_NUMBER = re.compile(r"\d+|0[xX][0-9a-fA-F]*")


def kind_of(address: Address) -> str:
    """Empty for a public address, else what it is: "loopback", "private", ...

    An IPv6 address that carries an IPv4 one (mapped, NAT64, 6to4, ISATAP) is what that one is; Teredo's
    are reserved altogether.
    """
    word = _kind(address)
    if word or isinstance(address, IPv4Address):
        return word
    return next(filter(None, map(_kind, _inner(address))), "")


def _kind(address: Address) -> str:
    for word, network in _TABLE:
        if address.version == network.version and address in network:
            return word
    return "" if address.is_global or _carries_ipv4(address) else "reserved"


def _carries_ipv4(address: Address) -> bool:
    return isinstance(address, IPv6Address) and any(True for _ in _inner(address))


def _inner(address: IPv6Address) -> Iterator[IPv4Address]:
    low = IPv4Address(int(address) & 0xFFFFFFFF)
    if address.ipv4_mapped is not None or address in _NAT64 or address in _COMPATIBLE:
        yield low
    if address.sixtofour is not None:
        yield address.sixtofour
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        yield low


def plain(address: Address) -> Address:
    """An IPv4-mapped IPv6 address as the IPv4 address that it means to the kernel; others unchanged."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def literal(host: str) -> Address | None:
    """The address that `host` is, or None for a name.

    Raises ValueError for odd spellings of numbers (2130706433, 0x7f.1, 127.1, 0177.0.0.1), which
    resolvers read as addresses and people do not.
    """
    text = host.removesuffix(".")
    try:
        return plain(ip_address(text.strip("[]")))
    except ValueError:
        last = text.rpartition(".")[2]
        if _NUMBER.fullmatch(last):
            raise ValueError(f"{host} is an odd spelling of an address") from None
        return None


def is_loopback(url: str) -> bool:
    """Whether this URL means, by its looks, the machine that opens it."""
    host = urlsplit(url).hostname or ""
    try:
        address = literal(host)
    except ValueError:
        return False
    return kind_of(address) == "loopback" if address else host == "localhost" or host.endswith(".localhost")


@dataclass(frozen=True, slots=True)
class Allowlist:
    """Host names and networks that may be contacted although they are not public."""

    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, words: Iterable[str]) -> "Allowlist":
        """From "host.example", "*.example", "10.1.2.3", "10.0.0.0/8", "::1". Raises ValueError."""
        names: set[str] = set()
        suffixes: list[str] = []
        networks: list[Network] = []
        for word in words:
            text = word.strip().lower()
            try:
                networks.append(ip_network(text.strip("[]")))
                continue
            except ValueError:
                if "/" in text or _NUMBER.fullmatch(text.rpartition(".")[2]) or not _NAME.fullmatch(text):
                    raise ValueError(
                        f"{word!r} is neither a host name (host.example, *.example) nor a network (10.0.0.0/8)"
                    ) from None
            if text.startswith("*."):
                suffixes.append(text[1:])
            else:
                names.add(text)
        return cls(frozenset(names), tuple(suffixes), tuple(networks))

    def covers(self, host: str, address: Address) -> bool:
        """Whether this non-public address may be contacted when it was asked for by this name."""
        kind = kind_of(address)
        around = [network for network in self.networks if address.version == network.version and address in network]
        if kind == "metadata":
            # Whoever allows all of 100.64.0.0/10 thinks of their own machines: this takes its own entry.
            return any(network.num_addresses == 1 for network in around)
        name = host.lower().removesuffix(".")
        named = name in self.names or name.endswith(self.suffixes or ("\0",))
        return bool(around) or (named and kind not in NEVER_BY_NAME)


NOTHING = Allowlist()
