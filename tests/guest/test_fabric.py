"""The emulated network in a real kernel: what is asked for is there, what is broken is found, what is made
goes away.

Runs inside a guest as root (`python -m testbed exec -- python -m pytest tests/guest`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.errors import EnvironmentLacks
from testbed.net import links, ovs, tc
from testbed.net.emulation import Emulation
from testbed.net.fabrics import FabricSettings, build
from testbed.net.namespaces import read_sysctl
from testbed.net.readback import FabricMismatch
from testbed.net.scale import Original, Scaling
from testbed.net.topology import Red, Topology
from testbed.net.transport import BACKLOG, CONGESTION_CONTROL_ALLOWED, Transport
from testbed.telemetry.netlink import RouteSocket
from testbed.telemetry.qdisc import Qdisc, QdiscReader

pytestmark = [
    pytest.mark.guest,
    pytest.mark.skipif(os.environ.get("ORRERY_GUEST") != "1", reason="needs a guest: it makes devices and switches"),
]

SETTINGS = Scaling(Original(), 50).settings
ETH_P_ALL, ETH_P_ARP, ETH_P_IPV6 = 0x0003, 0x0806, 0x86DD
# A program of its own, because it has to live in a host: N bytes to a peer, who says when it has them all.
PEER = """
import socket, sys
role, ip, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
if role == "receive":
    listener = socket.create_server((ip, 5001))
    print("ready", flush=True)
    connection, _ = listener.accept()
    connection.recv_into(bytearray(size), size, socket.MSG_WAITALL)
    connection.sendall(b"k")
    connection.recv(1)
else:
    connection = socket.create_connection((ip, 5001))
    connection.sendall(bytes(size))
    assert connection.recv(1) == b"k"
    name = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    print(name.rstrip(bytes(1)).decode())
"""


def run(*command: str) -> str:
    """A command in the namespace of this process, which must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def net() -> Iterator[Emulation]:
    """A dumbbell whose switches learn addresses by themselves."""
    with Emulation(build("dumbbell", SETTINGS), Transport()) as emulation:
        for switch in emulation.topology.switches:
            run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", switch, "actions=normal")
        yield emulation


def qdisc(net: Emulation, link: str, handle: str = "3:") -> Qdisc:
    """The queue of a directed link."""
    interface = net.interfaces[link]
    return net.place(interface.node).qdiscs.read(interface.ifindex, handle)


def ce_packets(net: Emulation, host: str) -> int:
    """The CE packets a host has received."""
    lines = Path(f"/proc/{net.pid(host)}/net/netstat").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("IpExt:"))
    return int(values[names.index("InCEPkts")])


@contextlib.contextmanager
def listening(net: Emulation, where: str | None, protocol: int) -> Iterator[socket.socket]:
    """A socket that hears every packet of a protocol in one namespace."""
    with net.places[where].namespace.entered():
        heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
    heard.setblocking(False)
    with heard:
        yield heard


def silent(heard: socket.socket) -> bool:
    try:
        heard.recv(64)
    except BlockingIOError:
        return True
    return False


def transfer(net: Emulation, pairs: list[tuple[str, str]], size_bytes: int) -> list[str]:
    """All pairs at once; the congestion control each sender really used."""
    peers: list[subprocess.Popen[str]] = []
    for role in ("receive", "send"):
        for source, destination in pairs:
            command = [sys.executable, "-S", "-c", PEER, role, net.topology.ip(destination), str(size_bytes)]
            with net.inside(destination if role == "receive" else source):
                peers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            if role == "receive":
                assert peers[-1].stdout
                assert peers[-1].stdout.readline() == "ready\n"
    said = [peer.communicate()[0].strip() for peer in peers]
    assert [peer.returncode for peer in peers] == [0] * len(peers)
    return said[len(pairs) :]


def test_the_whole_fabric_comes_up_and_reads_back() -> None:
    topology = build("cassini-48", SETTINGS)
    with Emulation(topology, Transport(), controller_port=6653) as net:
        readings = net.read_back()
        assert [r["of"] for r in readings] == ["machine"] + ["switch"] * 13 + ["host"] * 24 + ["port"] * 96
        assert set(net.interfaces) == {f"{a}->{b}" for a, b in topology.directed()}
        tor = next(r for r in readings if r["name"] == "tor1")
        assert (tor["datapath_id"], tor["controllers"]) == ("0000000000000001", ["tcp:127.0.0.1:6653"])
        marking = [r["name"] for r in readings if r["of"] == "port" and r["qdiscs"][-1]["kind"] == "red"]
        assert len(marking) == 72


@pytest.mark.parametrize(
    "change",
    [
        {"rate_bps": 100_000_000_000, "host_rate_bps": 40_000_000_000},
        {"rate_bps": 1_000_000, "host_delay_s": 0.5, "red": Red(65_000, 65_000, 1.0)},
        {"host_delay_s": 0.0, "red": None},
        {"loss": 0.01, "fabric_delay_s": 0.1326},
        {"mtu_bytes": 1500, "queue_bytes": 300_000, "red": Red(1, 300_000, 0.01)},
    ],
)
def test_every_setting_reads_back(change: dict[str, object]) -> None:
    settings: FabricSettings = dataclasses.replace(SETTINGS, **change)  # type: ignore[arg-type]
    with Emulation(build("dumbbell(1)", settings), Transport(rto_min_s=0.004, congestion_control="cubic")) as net:
        assert len(net.read_back()) == 1 + 2 + 2 + 6


def test_mininet_works_on_top(net: Emulation) -> None:
    h1, s1 = net.mininet.get("h1", "s1")
    assert (h1.IP(), h1.MAC()) == ("10.0.0.1", "00:00:00:00:00:01")
    assert "10.0.0.1/16" in h1.cmd("ip -o -4 address show h1-eth0")
    assert h1.cmd("ls /sys/class/net").split() == ["h1-eth0", "h1-mgmt", "lo"]
    assert "s1-eth3" in s1.cmd("ls /sys/class/net")
    assert [str(link) for link in net.mininet.links][-1] == "s1-eth3<->s2-eth3"
    assert h1.connectionsTo(s1)[0][1].name == "s1-eth1"
    assert h1.pexec("ip -o -4 address show h1-mgmt")[0].split()[3] == "10.255.1.1/16"


def test_a_shell_begins_with_its_first_command_and_shares_the_hosts_namespaces(net: Emulation) -> None:
    h4 = net.mininet.get("h4")
    holder = net.pid("h4")
    assert (h4.shell, Path(f"/proc/{holder}/comm").read_text()) == (None, "cat\n")
    shell = int(h4.cmd("echo $$"))
    assert (h4.shell.pid, net.pid("h4")) == (shell, holder)
    for kind in ("net", "mnt"):
        mine, its = (Path(f"/proc/{pid}/ns/{kind}").readlink() for pid in (holder, shell))
        assert mine == its != Path(f"/proc/self/ns/{kind}").readlink()
    assert h4.popen(["cat", "/sys/class/net/h4-eth0/address"]).communicate()[0].decode().strip() == h4.MAC()


def test_who_makes_flows_runs_before_who_answers_the_controller(net: Emulation) -> None:
    assert net.mininet is not None
    assert (found := ovs.handlers())
    assert {os.sched_getscheduler(thread) for thread in found} == {os.SCHED_FIFO}
    daemon = int(Path("/run/openvswitch/ovs-vswitchd.pid").read_text())
    assert os.sched_getscheduler(daemon) == os.SCHED_OTHER


def test_packets_that_a_switch_loses_while_it_makes_flows_are_counted(net: Emulation) -> None:
    assert transfer(net, [("h1", "h3")], 100_000) == ["dctcp"]
    assert ovs.lost_packets() == 0
    daemon = int(Path("/run/openvswitch/ovs-vswitchd.pid").read_text())
    os.kill(daemon, signal.SIGSTOP)
    try:
        with net.inside("h2"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            for _ in range(1500):
                out.sendto(bytes(8000), (net.topology.ip("h4"), 9))
            time.sleep(5.0)  # of which nobody waits a moment
    finally:
        os.kill(daemon, signal.SIGCONT)
    time.sleep(1.0)
    assert 500 < ovs.lost_packets() < 1500


def test_hosts_need_no_arp_and_speak_no_ipv6(net: Emulation) -> None:
    with listening(net, "h3", ETH_P_ARP) as arp, listening(net, "h3", ETH_P_IPV6) as v6:
        with listening(net, None, ETH_P_IPV6) as root_v6:
            assert transfer(net, [("h1", "h3")], 100_000) == ["dctcp"]
            time.sleep(10)
            assert silent(root_v6)
        assert silent(arp)
        assert silent(v6)


def test_the_management_network_is_beside_the_fabric(net: Emulation) -> None:
    before = qdisc(net, "h1->s1", "1:").packets
    with socket.create_server(("10.255.0.1", 7000)) as server:
        with net.inside("h1"):
            client = socket.create_connection(("10.255.0.1", 7000))
        with client:
            _, (address, _) = server.accept()
    assert address == net.topology.mgmt_ip("h1") == "10.255.1.1"
    assert qdisc(net, "h1->s1", "1:").packets == before


def test_two_flows_are_marked_at_the_bottleneck_and_nowhere_else(net: Emulation) -> None:
    net.read_back()
    before = {link: qdisc(net, link) for link in net.interfaces}
    received = {host: ce_packets(net, host) for host in net.topology.hosts}
    begin = time.time()
    assert transfer(net, [("h1", "h3"), ("h2", "h4")], 10_000_000) == ["dctcp", "dctcp"]
    elapsed_s = time.time() - begin
    after = {link: qdisc(net, link) for link in net.interfaces}
    marked = {link: after[link].marked - before[link].marked for link in after}
    assert marked["s1->s2"] > 100
    assert sum(marked.values()) == marked["s1->s2"]
    # Offloads are off and nothing came in marked: every mark is one packet at a receiver.
    assert sum(ce_packets(net, h) - received[h] for h in ("h3", "h4")) == marked["s1->s2"]
    assert [q.drops for q in after.values()] == [0] * len(after)
    # In virtual time the rate is a property of the link, not of the machine: 20 MB through 1 Gbit/s.
    carried = after["s1->s2"].bytes - before["s1->s2"].bytes
    assert carried * 8 <= SETTINGS.rate_bps * elapsed_s + 8 * SETTINGS.burst_bytes


def test_marking_looks_at_the_instantaneous_queue() -> None:
    """A step at 100 kB: the queue that one burst builds is marked from that packet on, and a burst after it
    has drained begins unmarked again (an average would remember)."""
    settings = dataclasses.replace(SETTINGS, host_rate_bps=10_000_000_000, red=Red(100_000, 100_000, 1.0))
    with Emulation(build("dumbbell(1)", settings), Transport()) as net:
        for switch in net.topology.switches:
            run("ovs-ofctl", "-O", "OpenFlow13", "add-flow", switch, "actions=normal")
        with net.inside("h1"):
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 2)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_000_000)
        counts = []
        for _ in range(3):
            # A queue of 320 kB: a RED that averages still remembers half of it at the next burst.
            for _ in range(40):
                sender.sendto(bytes(8972), ("10.0.0.2", 9))
            time.sleep(0.0035)
            assert qdisc(net, "s1->s2").backlog_bytes == 0
            counts.append(qdisc(net, "s1->s2").marked)
        sender.close()
        assert counts[0] > 0
        assert counts == [counts[0], 2 * counts[0], 3 * counts[0]]


def test_reading_one_qdisc_and_all_agree(net: Emulation) -> None:
    with QdiscReader() as reader:
        everything = {(q.ifindex, q.handle): q for q in reader.dump()}
    interface = net.interfaces["s1->s2"]
    assert dataclasses.replace(qdisc(net, "s1->s2"), parent="2:1") == everything[interface.ifindex, "3:"]


def test_open_vswitch_leaves_the_qdiscs_alone_later(net: Emulation) -> None:
    run("ovs-vsctl", "add-br", "another", "--", "set", "Bridge", "s1", "other-config:forward-bpdu=false")
    run("ovs-vsctl", "del-br", "another")
    net.read_back()


# The command tc rounds a delay to ticks of 64 ns: this one survives it.
BREAKABLE = build("dumbbell(1)", dataclasses.replace(SETTINGS, host_delay_s=128e-6))
LINE = tc.wanted(BREAKABLE.direction("h2", "s2"))[0].options["limit_packets"]
TC_RED = ("limit", "16000000", "min", "80000", "max", "160000", "avpkt", "9000", "burst", "12", "ecn")
RATE = ("burst", "18028", "limit", "16000000")
# What is broken, as a command in a node (none: here), and which port and setting the error must name.
BREAKS = {
    "mtu": ("", "ip link set s1-eth2 mtu 1500", "s1-eth2", "mtu_bytes"),
    "switched off": ("", "ip link set s1-eth2 down", "s1-eth2", "switched on"),
    "carrier": ("", "ip link set s2-eth2 down", "s1-eth2", "operstate"),
    "mac": ("", "ip link set s1-eth1 address 02:00:00:00:00:77", "s1-eth1", "mac"),
    "tso": ("", "ethtool -K s2-eth1 tso on", "s2-eth1", "tso"),
    "gso": ("", "ethtool -K s2-eth1 gso on", "s2-eth1", "gso"),
    "gro": ("h2", "ethtool -K h2-eth0 gro on", "h2-eth0", "gro"),
    "rate": (
        "",
        f"tc qdisc change dev s1-eth2 handle 2: root tbf rate 2gbit {' '.join(RATE)}",
        "s1-eth2",
        "tbf rate",
    ),
    "burst": (
        "",
        "tc qdisc change dev s1-eth2 handle 2: root tbf rate 1gbit burst 40000 limit 16000000",
        "s1-eth2",
        "tbf buffer",
    ),
    "queue": (
        "h1",
        "tc qdisc change dev h1-eth0 handle 3: parent 2:1 bfifo limit 1000000",
        "h1-eth0",
        "bfifo limit",
    ),
    "averaging": (
        "",
        f"tc qdisc change dev s2-eth1 handle 3: parent 2:1 red {' '.join(TC_RED)}",
        "s2-eth1",
        "red wlog",
    ),
    "red removed": ("", "tc qdisc del dev s1-eth2 handle 3: parent 2:1", "s1-eth2", "qdiscs"),
    "all removed": ("", "tc qdisc del dev s1-eth2 root", "s1-eth2", "qdiscs"),
    "delay": (
        "h2",
        f"tc qdisc change dev h2-eth0 handle 1: root netem delay 256us limit {LINE}",
        "h2-eth0",
        "netem latency",
    ),
    "delay line": (
        "h2",
        "tc qdisc change dev h2-eth0 handle 1: root netem delay 128us",
        "h2-eth0",
        "netem limit",
    ),
    "loss": (
        "h2",
        f"tc qdisc change dev h2-eth0 handle 1: root netem delay 128us loss 1% limit {LINE}",
        "h2-eth0",
        "netem loss",
    ),
    "ecn": ("h1", "sysctl -w net.ipv4.tcp_ecn=0", "h1", "tcp_ecn"),
    "congestion control": (
        "h2",
        "sysctl -w net.ipv4.tcp_congestion_control=reno",
        "h2",
        "tcp_congestion_control",
    ),
    "buffers": ("h2", "sysctl -w net.ipv4.tcp_rmem='4096 8192 8192'", "h2", "tcp_rmem"),
    "ipv6": ("h2", "sysctl -w net.ipv6.conf.all.disable_ipv6=0", "h2", "disable_ipv6"),
    "backlog": ("", "sysctl -w net.core.netdev_max_backlog=1000", "this machine", "netdev_max_backlog"),
    "allowed": ("", "sysctl -w net.ipv4.tcp_allowed_congestion_control=reno", "this machine", "tcp_allowed"),
    "rto_min": (
        "h2",
        "ip route change 10.0.0.0/16 dev h2-eth0 proto static scope link",
        "h2-eth0",
        "rto_min",
    ),
    "neighbour": ("h2", "ip neigh del 10.0.0.1 dev h2-eth0", "h2-eth0", "neighbour 10.0.0.1"),
    "wrong neighbour": (
        "h2",
        "ip neigh replace 10.0.0.1 lladdr 00:00:00:00:00:09 nud permanent dev h2-eth0",
        "h2-eth0",
        "neighbour 10.0.0.1",
    ),
    "address": ("h2", "ip address flush dev h2-eth0", "h2-eth0", "address"),
    "management": ("h2", "ip link set h2-mgmt down", "h2-mgmt", "operstate"),
    "fail mode": ("", "ovs-vsctl set Bridge s2 fail_mode=standalone", "s2", "fail_mode"),
    "datapath id": (
        "",
        "ovs-vsctl set Bridge s2 other-config:datapath-id=00000000000000ff",
        "s2",
        "datapath_id",
    ),
    "port number": ("", "ovs-vsctl set Interface s2-eth1 ofport_request=9", "s2-eth1", "OpenFlow port"),
    "port gone": ("", "ovs-vsctl del-port s2-eth1", "s2-eth1", "OpenFlow port"),
    "bridge gone": ("", "ovs-vsctl del-br s2", "s2", "datapath_id"),
    "cable gone": ("", "ip link del s2-eth2", "s1-eth2", "OpenFlow port|device"),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_what_is_broken_is_found_and_named(kind: str) -> None:
    node, command, port, setting = BREAKS[kind]
    with Emulation(BREAKABLE, Transport()) as net:
        net.read_back()
        with net.inside(node) if node else contextlib.nullcontext():
            run("bash", "-c", command)
        with pytest.raises(FabricMismatch, match=setting) as caught:
            net.read_back()
    assert caught.value.port == port
    assert caught.value.wanted != caught.value.found
    assert caught.value.exit_code == 1


def test_a_removed_queue_can_be_put_back(net: Emulation) -> None:
    interface = net.interfaces["s1->s2"]
    run("tc", "qdisc", "del", "dev", interface.name, "root")
    with pytest.raises(FabricMismatch):
        net.read_back()
    with RouteSocket() as kernel:
        kernel.do(tc.requests(interface.ifindex, interface.name, net.topology.direction("s1", "s2")))
    net.read_back()


def _world() -> tuple[set[str], str, str, str]:
    with RouteSocket() as kernel:
        devices = set(links.devices(kernel))
    return devices, run("ovs-vsctl", "list-br"), read_sysctl(BACKLOG), read_sysctl(CONGESTION_CONTROL_ALLOWED)


def _small() -> Topology:
    return build("leaf-spine(1,1,1)", SETTINGS)


def _gone(pid: int) -> bool:
    """Whether a process has ended, or does within a second."""
    file = Path(f"/proc/{pid}")
    for _ in range(10):
        if not file.exists():
            return True
        time.sleep(0.1)
    return False


def test_nothing_is_left_behind() -> None:
    before = _world()
    with Emulation(_small(), Transport(), 6653) as net:
        holder, shell = net.pid("h1"), int(net.mininet.get("h1").cmd("echo $$"))
        assert _world() != before
    assert _world() == before
    assert not Path(f"/proc/{holder}").exists()
    assert _gone(shell)
    net.close()


def test_a_network_that_cannot_be_is_not_left_half_made() -> None:
    before = _world()
    with pytest.raises(EnvironmentLacks, match="no congestion control nonesuch"):
        Emulation(_small(), Transport(congestion_control="nonesuch")).start()
    assert _world() == before


def test_a_second_network_does_not_harm_the_first(net: Emulation) -> None:
    with pytest.raises(EnvironmentLacks, match="already a device"):
        Emulation(net.topology, Transport()).start()
    net.read_back()
