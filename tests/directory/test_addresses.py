"""Which addresses count as public, and what an allowlist covers."""

from ipaddress import ip_address

import pytest

from directory.addresses import NOTHING, Allowlist, kind_of, literal, plain

PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]
INSIDE = {
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "::1": "loopback",
    "0.0.0.0": "unspecified",
    "::": "unspecified",
    "10.0.0.1": "private",
    "172.16.0.1": "private",
    "192.168.1.1": "private",
    "fd12::1": "private",
    "fec0::1": "private",
    "100.64.0.1": "carrier-grade NAT",
    "169.254.1.1": "link-local",
    "fe80::1": "link-local",
    "169.254.169.254": "metadata",
    "168.63.129.16": "metadata",
    "100.100.100.200": "metadata",
    "fd00:ec2::254": "metadata",
    "224.0.0.1": "multicast",
    "ff02::1": "multicast",
    "255.255.255.255": "reserved",
    "198.18.0.1": "reserved",
    "2001:db8::1": "reserved",
    "2001:0:7f00:1::1": "reserved",
    # IPv4 inside IPv6: mapped, compatible, NAT64, 6to4, ISATAP.
    "::ffff:127.0.0.1": "loopback",
    "::ffff:169.254.169.254": "metadata",
    "::127.0.0.1": "loopback",
    "64:ff9b::7f00:1": "loopback",
    "64:ff9b::a9fe:a9fe": "metadata",
    "2002:7f00:1::1": "loopback",
    "2002:a00:1::1": "private",
    "2606:4700::5efe:7f00:1": "loopback",
}


@pytest.mark.parametrize("text", PUBLIC)
def test_it_takes_public_addresses(text):
    assert kind_of(plain(ip_address(text))) == ""


@pytest.mark.parametrize(("text", "kind"), INSIDE.items())
def test_it_knows_what_is_not_public(text, kind):
    assert kind_of(plain(ip_address(text))) == kind
    assert not NOTHING.covers(text, plain(ip_address(text)))


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.1.1", "1.2.3.0x4"]
)
def test_it_refuses_odd_spellings(host):
    with pytest.raises(ValueError, match="odd spelling"):
        literal(host)


def test_it_reads_literals_and_names():
    assert str(literal("127.0.0.1.")) == "127.0.0.1"
    assert str(literal("[::ffff:10.0.0.1]")) == "10.0.0.1"
    assert literal("agent7.example") is None


def test_a_network_covers_its_addresses_only():
    allowed = Allowlist.parse(["10.1.0.0/16", "::1"])
    assert allowed.covers("x", ip_address("10.1.2.3"))
    assert allowed.covers("x", ip_address("::1"))
    assert not allowed.covers("x", ip_address("10.2.2.3"))
    assert not allowed.covers("x", ip_address("127.0.0.1"))


def test_a_name_covers_where_it_leads_except_for_what_no_agent_lives_at():
    allowed = Allowlist.parse(["agents.internal", "*.corp.example"])
    assert allowed.covers("Agents.Internal.", ip_address("10.0.0.1"))
    assert allowed.covers("a.b.corp.example", ip_address("127.0.0.1"))
    assert not allowed.covers("corp.example", ip_address("10.0.0.1"))
    assert not allowed.covers("evilcorp.example", ip_address("10.0.0.1"))
    for address in ("169.254.169.254", "169.254.1.1", "0.0.0.0", "224.0.0.1"):
        assert not allowed.covers("agents.internal", ip_address(address))


def test_metadata_services_need_an_entry_of_their_own():
    assert not Allowlist.parse(["100.64.0.0/10", "169.254.0.0/16"]).covers("x", ip_address("100.100.100.200"))
    assert not Allowlist.parse(["169.254.0.0/16"]).covers("x", ip_address("169.254.169.254"))
    assert Allowlist.parse(["169.254.169.254"]).covers("x", ip_address("169.254.169.254"))


@pytest.mark.parametrize("word", ["10.0.0.1/8", "10.0.0.0/99", "http://x", "a b", "127.1", "*", "x/y", "*.*.example"])
def test_it_refuses_entries_that_are_neither(word):
    with pytest.raises(ValueError, match="neither a host name"):
        Allowlist.parse([word])
