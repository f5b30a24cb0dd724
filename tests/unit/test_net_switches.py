"""The one transaction that makes all switches, and the hosts' transport settings."""

from __future__ import annotations

import pytest

from testbed.errors import EnvironmentLacks, InputError
from testbed.net import ovs
from testbed.net.fabrics import build
from testbed.net.scale import Original, Scaling
from testbed.net.transport import Transport

TOPOLOGY = build("cassini-48", Scaling(Original()).settings)


def _commands(words: list[str]) -> list[list[str]]:
    commands: list[list[str]] = []
    for word in words:
        if word == "--":
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def test_every_switch_and_port_has_its_number() -> None:
    commands = _commands(ovs.create(TOPOLOGY, 6653))
    assert [c[1] for c in commands if c[0] == "add-br"] == list(TOPOLOGY.switches)
    ports = {c[2]: c[1] for c in commands if c[0] == "add-port"}
    assert len(ports) == 24 + 12 * 2 + 12 * 2
    requests = {c[2]: int(c[3].split("=")[1]) for c in commands if c[:2] == ["set", "Interface"]}
    for a, b in TOPOLOGY.directed():
        if a in TOPOLOGY.switches:
            assert ports[TOPOLOGY.interface(a, b)] == a
            assert requests[TOPOLOGY.interface(a, b)] == TOPOLOGY.port(a, b)
    bridges = {c[2]: c[3:] for c in commands if c[:2] == ["set", "Bridge"]}
    assert "other-config:datapath-id=000000000000000d" in bridges["core3"]
    assert {"fail_mode=secure", "protocols=OpenFlow13", "other-config:disable-in-band=true"} <= set(bridges["tor1"])


def test_controllers_are_made_only_when_asked_for() -> None:
    with_controller = ovs.create(TOPOLOGY, 6653)
    assert with_controller.count('target="tcp:127.0.0.1:6653"') == 13
    assert with_controller.count("inactivity_probe=0") == 13
    assert not [word for word in ovs.create(TOPOLOGY, None) if "ontroller" in word]


def test_what_is_made_is_taken_away() -> None:
    assert [c[-1] for c in _commands(ovs.delete(TOPOLOGY))] == list(TOPOLOGY.switches)


def test_a_machine_without_open_vswitch_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EnvironmentLacks, match="openvswitch-switch"):
        ovs.vsctl(["show"])


def test_transport_settings() -> None:
    sysctls = Transport(rto_min_s=0.2, socket_buffer_bytes=8_000_000).sysctls()
    assert sysctls["net/ipv4/tcp_congestion_control"] == "dctcp"
    assert sysctls["net/ipv4/tcp_ecn"] == "1"
    assert sysctls["net/ipv4/tcp_rmem"] == sysctls["net/ipv4/tcp_wmem"] == "4096 8000000 8000000"
    assert Transport(ecn=False).sysctls()["net/ipv4/tcp_ecn"] == "0"
    assert [Transport(rto_min_s=s).rto_min_ms for s in (0.2, 4e-3, 0.0041)] == [200, 4, 5]


@pytest.mark.parametrize("change", [{"rto_min_s": 1e-4}, {"rto_min_s": 121.0}, {"socket_buffer_bytes": 100}])
def test_transport_that_no_kernel_takes_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(change))):
        Transport(**change)  # type: ignore[arg-type]
