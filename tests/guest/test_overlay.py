"""Sites and WireGuard tunnels in a real kernel: what the underlay sees, what the sites see, what is broken is found.

Runs inside a guest as root (`python -m testbed exec -- python -m pytest tests/guest`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controllers.sdn.config import Config
from controllers.sdn.control import Client
from testbed.errors import InputError, NotValid
from testbed.net import probe
from testbed.net.emulation import Emulation
from testbed.net.overlay import Overlay
from testbed.net.readback import FabricMismatch
from testbed.net.reshape import reshape
from testbed.net.topology import Red, Topology, link_id
from testbed.net.transport import Transport
from testbed.net.wan import routing, underlay
from testbed.net.wan.build import Defaults, RawLink, assemble
from testbed.net.wan.model import Site, Wan
from testbed.programs import beside
from testbed.telemetry import netstat

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(os.environ.get("ORRERY_GUEST") != "1", reason="needs a guest: it makes devices and switches"),
]

SCRATCH = Path("/run/orrery")
MTU_BYTES, FRAME_BYTES = 1500, 1514
PAYLOAD_BYTES = MTU_BYTES - 60 - 52
"""What TCP puts into a packet: without the tunnel's 60 bytes, IPv4's 20 and TCP's 32."""
UDP, TCP, ETH_P_ALL, ETH_P_IP = 17, 6, 3, 0x0800
TEXT = b"All happy networks are alike; each unhappy network is unhappy in its own way."


def chain() -> Wan:
    """Three sites in a row, with 20 and 10 Mbit/s, and 5 ms each way between the first two."""
    links = [RawLink("Bern", "Rome", 20e6, 0.005), RawLink("Rome", "Oslo", 10e6, 0.0, 8e6)]
    return assemble("chain", [Site(name) for name in ("Bern", "Rome", "Oslo")], links, Defaults())


@contextlib.contextmanager
def running(wan: Wan, topology: Topology | None = None, tunnels: bool = True) -> Iterator[Overlay]:
    """Underlay, controller and overlay of a network."""
    SCRATCH.mkdir(exist_ok=True)
    topology = topology or underlay.topology(wan, MTU_BYTES)
    Config(topology, {}, SCRATCH, SCRATCH / "sdn.sock", interval_s=1.0).write(SCRATCH / "sdn.json")
    command = ["-m", "controllers.sdn.launcher", "--config", str(SCRATCH / "sdn.json")]
    with (
        Emulation(topology, Transport("cubic", True, 0.2), 6653) as net,
        beside("the controller", command),
        Client(SCRATCH / "sdn.sock") as controller,
    ):
        controller.ready()
        with Overlay(net, wan, seed=1, tunnels=tunnels) as overlay:
            yield overlay


@pytest.fixture
def overlay() -> Iterator[Overlay]:
    with running(chain()) as made:
        yield made


def run(overlay: Overlay, site: str, command: str) -> None:
    with overlay.inside(site):
        subprocess.run(command.split(), check=True, capture_output=True)


@contextlib.contextmanager
def heard(overlay: Overlay) -> Iterator[list[bytes]]:
    """Every packet that enters or leaves a switch's port meanwhile."""
    ports = {i.name for i in overlay.net.interfaces.values() if i.node in overlay.net.topology.switches}
    packets: list[bytes] = []
    ended = threading.Event()

    def listen(everything: socket.socket) -> None:
        while not ended.is_set():
            with contextlib.suppress(TimeoutError):
                packet, (port, *_) = everything.recvfrom(65536)
                if port in ports:
                    packets.append(packet)

    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as everything:
        everything.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 28)
        everything.settimeout(0.5)
        thread = threading.Thread(target=listen, args=(everything,))
        thread.start()
        yield packets
        ended.set()
        thread.join()


def say(overlay: Overlay, a: str, b: str, text: bytes) -> None:
    """A TCP transfer between two sites."""
    with overlay.inside(b):
        listener = socket.create_server((overlay.ip(b), 5555))
    with overlay.inside(a):
        sending = socket.create_connection((overlay.ip(b), 5555))
    with listener, sending, listener.accept()[0] as receiving:
        thread = threading.Thread(target=sending.sendall, args=(text,))
        thread.start()
        buffer = bytearray(len(text))
        assert receiving.recv_into(buffer, len(text), socket.MSG_WAITALL) == len(text)
        thread.join()
        assert bytes(buffer) == text


def protocols(packets: list[bytes]) -> set[int]:
    return {packet[23] for packet in packets if int.from_bytes(packet[12:14], "big") == ETH_P_IP}


def test_it_comes_up_and_reads_back(overlay: Overlay) -> None:
    readings = {reading["name"]: reading for reading in overlay.read_back()}
    assert list(readings) == ["Bern", "Rome", "Oslo"]
    assert list(readings["Rome"]["tunnels"]) == ["Bern", "Oslo"]
    assert readings["Bern"]["tunnels"]["Rome"]["mtu_bytes"] == MTU_BYTES - 60
    assert readings["Bern"]["tunnels"]["Rome"]["endpoint"] == "10.0.0.2:51821"
    overlay.net.read_back()


def test_a_site_has_nothing_but_tunnels(overlay: Overlay) -> None:
    with overlay.inside("Bern"):
        assert sorted(name for _, name in socket.if_nameindex()) == ["home", "lo", "wg2"]
        with socket.socket() as outside, pytest.raises(OSError, match="unreachable") as caught:
            outside.connect(("10.0.0.2", 22))
    assert caught.value.errno == errno.ENETUNREACH


def test_tunnels_are_measured_end_to_end(overlay: Overlay) -> None:
    rates_bps = routing.tunnel_rates_bps(overlay.wan)
    for found in probe.measure(overlay, rates_bps):
        delay_s = 0.005 if "Bern" in (found.a, found.b) else 0.0
        assert 2 * delay_s <= found.rtt_s < 2 * delay_s + 0.001
        rate_bps = rates_bps[found.a, found.b]
        assert found.throughput_bps == pytest.approx(rate_bps * PAYLOAD_BYTES / FRAME_BYTES, rel=0.01)


def test_pairs_without_a_tunnel_are_routed_over_tunnels(overlay: Overlay) -> None:
    assert 0.02 < probe.ping(overlay, "Bern", "Oslo") < 0.021  # the first one waits for keys to be agreed on
    assert 0.01 < probe.ping(overlay, "Bern", "Oslo") < 0.011
    share = PAYLOAD_BYTES / FRAME_BYTES
    assert probe.throughput_bps(overlay, "Bern", "Oslo", 500_000) == pytest.approx(10e6 * share, rel=0.02)


def test_the_underlay_sees_wireguard_and_nothing_else(overlay: Overlay) -> None:
    text = TEXT * 2000
    with heard(overlay) as packets:
        say(overlay, "Bern", "Oslo", text)
    assert sum(map(len, packets)) > 2 * len(text)
    assert protocols(packets) == {UDP}
    ports = {int.from_bytes(packet[36:38], "big") for packet in packets if packet[23] == UDP}
    assert ports <= {51821, 51822, 51823}
    assert {packet[42] for packet in packets} <= {1, 2, 3, 4}  # WireGuard's kinds of messages
    assert not any(TEXT in packet for packet in packets)
    assert max(map(len, packets)) == FRAME_BYTES


def test_without_tunnels_the_underlay_sees_everything() -> None:
    with running(chain(), tunnels=False) as plain:
        assert plain.read_back() == []
        with heard(plain) as packets:
            say(plain, "Bern", "Oslo", TEXT * 100)
    assert protocols(packets) == {TCP}
    assert any(TEXT in packet for packet in packets)


def test_the_largest_packet_fits_and_no_larger_one(overlay: Overlay) -> None:
    with overlay.inside("Bern"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER: never in pieces
        sending.connect((overlay.ip("Rome"), 9))
        assert sending.send(bytes(overlay.mtu_bytes - 28)) == overlay.mtu_bytes - 28
        with pytest.raises(OSError, match="too long"):
            sending.send(bytes(overlay.mtu_bytes - 27))


def test_marks_of_the_underlay_reach_the_site() -> None:
    wan = chain()
    topology = underlay.topology(wan, MTU_BYTES)
    narrow = dataclasses.replace(topology.direction("s2", "s3"), aqm=Red(20_000, 20_000, 1.0, keeps=True))
    links = tuple(dataclasses.replace(k, a_to_b=narrow) if (k.a, k.b) == ("s2", "s3") else k for k in topology.links)
    with running(wan, dataclasses.replace(topology, links=links)) as marking:
        with marking.inside("Oslo"):
            before = netstat.read().ce
        say(marking, "Rome", "Oslo", TEXT * 20_000)
        interface = marking.net.interfaces["s2->s3"]
        queue = marking.net.place("s2").qdiscs.read(interface.ifindex, "3:")
        with marking.inside("Oslo"):
            assert netstat.read().ce - before == queue.marked > 10
        # What cannot be marked waits behind a queue that marks everything, and is not dropped.
        with marking.inside("Oslo"):
            listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            listener.bind((marking.ip("Oslo"), 9))
        with listener, marking.inside("Rome"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for _ in range(60):
                sender.sendto(bytes(1000), (marking.ip("Oslo"), 9))
            listener.settimeout(5.0)
            assert [len(listener.recv(2000)) for _ in range(60)] == [1000] * 60
        after = marking.net.place("s2").qdiscs.read(interface.ifindex, "3:")
        assert (after.drops, after.marked) == (queue.drops, queue.marked)


def test_links_change_while_they_carry_packets(overlay: Overlay) -> None:
    net, link = overlay.net, ("s2", "s3")
    original = net.topology.direction(*link)
    slower = dataclasses.replace(original, rate_bps=2_000_000)
    begin_s = time.time()
    change = threading.Timer(0.5, reshape, (net, {link: slower}))
    change.start()
    say(overlay, "Rome", "Oslo", TEXT * 12_500)
    change.join()
    elapsed_s = time.time() - begin_s
    # Half a second at 10 Mbit/s, the rest at 2.
    share = PAYLOAD_BYTES / FRAME_BYTES
    wanted_s = 0.5 + (len(TEXT) * 12_500 * 8 - 0.5 * 10e6 * share) / (2e6 * share)
    assert elapsed_s == pytest.approx(wanted_s, rel=0.05)
    net.read_back()
    reshape(net, {link: original})
    net.read_back()
    with pytest.raises(InputError, match=r"s2->s3.*would change from tbf\+red to netem\+tbf\+red"):
        reshape(net, {link: dataclasses.replace(original, delay_s=0.1)})


def test_jitter_and_loss_do_what_they_say() -> None:
    links = [RawLink("a", "b", 20e6, 0.02)]
    wan = assemble("jittery", [Site("a"), Site("b")], links, Defaults(jitter_s=0.01))
    with running(wan) as jittery:
        jittery.net.read_back()
        probe.ping(jittery, "a", "b")
        times = [probe.ping(jittery, "a", "b") for _ in range(40)]
        assert 0.02 < min(times) < 0.03
        assert 0.05 < max(times) < 0.0605
        deaf = dataclasses.replace(jittery.net.topology.direction("s1", "s2"), loss=0.999999)
        reshape(jittery.net, {("s1", "s2"): deaf})
        with pytest.raises(NotValid, match="tunnel a->b: no answer to a ping in 30 s"):
            probe.ping(jittery, "a", "b")


BREAKS = {
    "mtu": ("ip link set wg2 mtu 1400", "tunnel Bern->Rome", "mtu_bytes"),
    "down": ("ip link set wg2 down", "Bern", "route to Rome"),
    "another device": ("ip link add more type dummy", "Bern", "devices"),
    "route": ("ip route del 10.64.0.3", "Bern", "route to Oslo"),
    "address": ("ip address flush dev home", "Bern", "address|route"),
    "forwarding": ("sysctl -w net.ipv4.ip_forward=0", "Bern", "ip_forward"),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_what_is_broken_is_found_and_named(kind: str) -> None:
    command, where, setting = BREAKS[kind]
    with running(chain()) as breakable:
        breakable.read_back()
        run(breakable, "Bern", command)
        with pytest.raises(FabricMismatch, match=setting) as caught:
            breakable.read_back()
    assert caught.value.port == where


def test_a_peer_that_is_another_is_found(overlay: Overlay) -> None:
    station = overlay.stations["Oslo"]
    (ifindex,) = (i for (a, _), i in overlay._devices.items() if a == "Oslo")
    before = station.wireguard.read(ifindex)
    assert before.peer is not None
    station.wireguard.set_peer(ifindex, dataclasses.replace(before.peer, port=9))
    with pytest.raises(FabricMismatch, match="tunnel Oslo->Rome: peer"):
        overlay.read_back()
    station.wireguard.set_peer(ifindex, before.peer)
    overlay.read_back()
    assert link_id("a", "b") == "a->b"
