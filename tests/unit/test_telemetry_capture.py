"""Captures: pcapng that other programs open, the same bytes for the same packets, and no more of them than
allowed."""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import EnvironmentLacks, InputError
from testbed.telemetry.capture import Capture, CaptureSettings
from testbed.telemetry.pcapng import Converted, convert

ETHERNET = 1
NO_CAP = 1 << 30
CLONE_NEWNET = 0x40000000
Packets = list[tuple[int, bytes, int]]

needs_tshark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not installed")
needs_tcpdump = pytest.mark.skipif(
    not shutil.which("tcpdump") or os.geteuid() != 0,
    reason="tcpdump is not installed, or may not capture here",
)


def pcap(packets: Packets, order: str = "<", magic: int = 0xA1B23C4D) -> bytes:
    """A classic capture; packets are (nanoseconds, bytes kept, length on the wire)."""
    unit = 1 if magic == 0xA1B23C4D else 1000
    data = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 128, ETHERNET)
    for stamp_ns, kept, length in packets:
        seconds, rest = divmod(stamp_ns, 10**9)
        data += struct.pack(order + "IIII", seconds, rest // unit, len(kept), length) + kept
    return data


@pytest.fixture
def loopback() -> Iterator[str]:
    """The loopback interface of a network namespace of our own: on the machine's, other programs send, too."""
    system = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as before:
        if system.unshare(CLONE_NEWNET):
            pytest.skip(f"no network namespace of its own: {os.strerror(ctypes.get_errno())}")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield "lo"
        finally:
            assert system.setns(before.fileno(), CLONE_NEWNET) == 0


def frame(number: int, size: int = 60) -> bytes:
    """An Ethernet frame that carries an ECN-marked IPv4 packet."""
    head = bytes.fromhex("000000000002000000000001" + "0800")
    address = (socket.inet_aton("10.0.0.1"), socket.inet_aton("10.0.0.2"))
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0x2B, size - 14, number, 0, 64, 253, 0, *address)
    return (head + ip).ljust(size, b"\0")


def read(data: bytes) -> tuple[str, Packets]:
    """Interface name and packets of a pcapng file, read apart from the code under test."""
    name, packets = "", []
    while data:
        kind, length = struct.unpack_from("<II", data)
        assert length % 4 == 0
        assert struct.unpack_from("<I", data, length - 4) == (length,)
        if kind == 1:
            code, size = struct.unpack_from("<HH", data, 16)
            assert code == 2
            name = data[20 : 20 + size].decode()
        elif kind == 6:
            _, high, low, kept, original = struct.unpack_from("<IIIII", data, 8)
            packets.append((high << 32 | low, data[28 : 28 + kept], original))
        data = data[length:]
    return name, packets


@given(st.lists(st.tuples(st.integers(0, 2**32 * 10**9 - 1), st.binary(max_size=128), st.integers(0, 65535))))
def test_packets_survive(tmp_path_factory: pytest.TempPathFactory, packets: Packets) -> None:
    folder = tmp_path_factory.mktemp("pcap")
    outputs = []
    for order in "<>":
        (folder / "in").write_bytes(pcap(packets, order))
        done = convert(folder / "in", folder / "out", "tor1-eth5", NO_CAP)
        outputs.append((folder / "out").read_bytes())
        assert done == Converted(len(packets), len(outputs[-1]), truncated=False)
    assert read(outputs[0]) == ("tor1-eth5", packets)
    assert outputs[0] == outputs[1]


def test_microseconds_become_nanoseconds(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(pcap([(1_000_002_000, b"x", 1)], magic=0xA1B2C3D4))
    convert(tmp_path / "in", tmp_path / "out", "e", NO_CAP)
    assert read((tmp_path / "out").read_bytes())[1] == [(1_000_002_000, b"x", 1)]


def test_a_torn_end_keeps_the_whole_packets(tmp_path: Path) -> None:
    whole = pcap([(1, b"abcd", 4)])
    both = pcap([(1, b"abcd", 4), (2, b"efgh", 4)])
    for length in range(len(whole) + 1, len(both)):
        (tmp_path / "in").write_bytes(both[:length])
        done = convert(tmp_path / "in", tmp_path / "out", "e", NO_CAP)
        assert (done.packets, done.truncated) == (1, True)
        assert read((tmp_path / "out").read_bytes())[1] == [(1, b"abcd", 4)]


def test_the_file_is_no_larger_than_allowed(tmp_path: Path) -> None:
    packets = [(n, frame(n), 9014) for n in range(10)]
    (tmp_path / "in").write_bytes(pcap(packets))
    for cap in range(200, 1200, 7):
        done = convert(tmp_path / "in", tmp_path / "out", "e", cap)
        size = (tmp_path / "out").stat().st_size
        assert size == done.size_bytes <= cap
        assert done.truncated == (done.packets < 10)
        assert read((tmp_path / "out").read_bytes())[1] == packets[: done.packets]
        assert done.packets == 10 or size + 100 > cap, "room for one more was left"


@pytest.mark.parametrize("data", [b"", b"\n\r\r\n" + bytes(30), pcap([])[:23], b"PK\3\4" + bytes(40)])
def test_a_foreign_file_is_named_with_the_byte(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "in").write_bytes(data)
    with pytest.raises(InputError, match=r"in: byte 0: .* is not the begin of a pcap file"):
        convert(tmp_path / "in", tmp_path / "out", "e", NO_CAP)


def test_an_impossible_length_is_named_with_the_byte(tmp_path: Path) -> None:
    good = pcap([(1, b"abcd", 4)])
    (tmp_path / "in").write_bytes(good + struct.pack("<IIII", 0, 0, 1 << 31, 4) + bytes(99))
    with pytest.raises(InputError, match=f"byte {len(good)}: no packet has 2147483648 bytes"):
        convert(tmp_path / "in", tmp_path / "out", "e", NO_CAP)


@needs_tshark
def test_wireshark_opens_it(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(pcap([(1_700_000_000_123_456_789, frame(7), 9014)]))
    convert(tmp_path / "in", tmp_path / "out.pcapng", "tor1-eth5", NO_CAP)
    fields = (
        "frame.interface_name",
        "frame.time_epoch",
        "frame.len",
        "frame.cap_len",
        "ip.dsfield.ecn",
        "ip.id",
    )
    command = ["tshark", "-r", str(tmp_path / "out.pcapng"), "-T", "fields", "-E", "separator=,"]
    command += [word for field in fields for word in ("-e", field)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "tor1-eth5,1700000000.123456789,9014,60,3,0x0007"


@needs_tcpdump
def test_packets_of_an_interface_are_captured(tmp_path: Path, loopback: str) -> None:
    settings = CaptureSettings(snaplen_bytes=100, max_packets=1000, direction="in")
    capture = Capture("a->b", loopback, tmp_path, tmp_path, settings)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(5):
            sender.sendto(b"orrery" * 50, ("127.0.0.1", 9))
    done = capture.stop()
    assert done.path == tmp_path / "capture-a-b.pcapng"
    assert (done.lost_packets, done.whole) == (0, True)
    name, packets = read(done.path.read_bytes())
    assert name == "lo"
    ours = [kept for _, kept, original in packets if original == 14 + 20 + 8 + 300 and b"orrery" in kept]
    assert [len(kept) for kept in ours] == [100] * 5
    assert [path.name for path in tmp_path.iterdir()] == ["capture-a-b.pcapng"]


@needs_tcpdump
def test_a_capture_stops_at_its_packets(tmp_path: Path, loopback: str) -> None:
    capture = Capture("a->b", loopback, tmp_path, tmp_path, CaptureSettings(max_packets=3, direction="in"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(50):
            sender.sendto(b"x", ("127.0.0.1", 9))
    done = capture.stop()
    assert (done.converted.packets, done.whole) == (3, False)


@needs_tcpdump
def test_neither_file_becomes_larger_than_allowed(tmp_path: Path, loopback: str) -> None:
    capture = Capture(
        "a->b", loopback, tmp_path, tmp_path, CaptureSettings(snaplen_bytes=1000, max_bytes=8192, direction="in")
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(100):
            sender.sendto(b"x" * 900, ("127.0.0.1", 9))
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert max(sizes) <= 8192
    done = capture.stop()
    assert done.path.stat().st_size <= 8192
    assert (done.converted.packets > 0, done.whole) == (True, False)


@needs_tcpdump
def test_an_interface_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"capture of a->b: .*absent0"):
        Capture("a->b", "absent0", tmp_path, tmp_path, CaptureSettings())


def test_a_machine_without_tcpdump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentLacks, match="tcpdump is not installed"):
        Capture("a->b", "lo", tmp_path, tmp_path, CaptureSettings())
