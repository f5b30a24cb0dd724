"""Packets of chosen links, captured by tcpdump at the switch's port and kept as `capture-<a>-<b>.pcapng`.

A link's port sees both directions: what it sends after its queue (so with the marks of that queue), and what
it receives. Stamps are the guest's virtual time in nanoseconds. Only the first bytes of each packet are kept,
and only so many packets: a capture is for looking at, not for counting.
"""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from testbed.errors import EnvironmentLacks, InputError, NotValid
from testbed.telemetry.pcapng import Converted, convert

STOP_TIMEOUT_S = 10.0
# The kernel hands packets over in blocks, at the latest after a second; what it still holds would be lost.
DRAIN_S = 1.1


@dataclass(frozen=True)
class CaptureSettings:
    """Limits of a capture: bytes kept of each packet, packets, and bytes of the pcapng file."""

    snaplen_bytes: int = 128
    max_packets: int = 200_000
    max_bytes: int = 32 << 20


@dataclass(frozen=True)
class Captured:
    """A finished capture; `lost_packets` are those the kernel had no room for."""

    path: Path
    converted: Converted
    lost_packets: int


class Capture:
    """One running tcpdump: made when it listens, ended by `stop`."""

    def __init__(self, link: str, interface: str, folder: Path, scratch: Path, settings: CaptureSettings) -> None:
        """Begin to capture `link` ("a->b") at `interface`; tcpdump's own file lies in `scratch` until `stop`.

        Raises EnvironmentLacks without tcpdump, InputError with tcpdump's words when it cannot capture there.
        """
        near, _, far = link.partition("->")
        self._interface, self._settings = interface, settings
        self._raw = scratch / f"{near}-{far}.pcap"
        self._path = folder / f"capture-{near}-{far}.pcapng"
        command = ["tcpdump", "-n", "-i", interface, "-s", str(settings.snaplen_bytes)]
        command += [
            "-c",
            str(settings.max_packets),
            "--time-stamp-precision=nano",
            "-Z",
            "root",
            "-w",
            str(self._raw),
        ]
        try:
            # Unbuffered, so that what is read here does not take away what `stop` reads.
            self._process = subprocess.Popen(command, bufsize=0, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        except FileNotFoundError as error:
            raise EnvironmentLacks("tcpdump is not installed", "apt-get install tcpdump") from error
        said = self._read_until(b"listening on")
        if b"listening on" not in said:
            self._process.wait()
            raise InputError(f"capture of {link}", said.decode().strip())

    def stop(self) -> Captured:
        """Wait until tcpdump has every packet, end it, convert its file to pcapng and remove it.

        Raises NotValid when tcpdump does not end.
        """
        if self._process.poll() is None:
            time.sleep(DRAIN_S)
        self._process.terminate()
        try:
            _, said = self._process.communicate(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise NotValid(f"tcpdump on {self._interface} did not end within {STOP_TIMEOUT_S} s") from error
        lost = re.search(rb"(\d+) packets? dropped by kernel", said)
        converted = convert(self._raw, self._path, self._interface, self._settings.max_bytes)
        self._raw.unlink()
        return Captured(self._path, converted, int(lost[1]) if lost else 0)

    def _read_until(self, phrase: bytes) -> bytes:
        assert self._process.stderr is not None
        said = b""
        for line in self._process.stderr:
            said += line
            if phrase in line:
                break
        return said
