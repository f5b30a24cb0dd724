"""Packets of chosen links, captured by tcpdump at the egress of a towards b and kept as `capture-<a>-<b>.pcapng`.

A link is directed: what its port sends is kept, after its queue (so with the marks of that queue); what comes back is
the other direction's. Stamps are the guest's virtual time in nanoseconds. Only the first bytes of each packet are kept,
and only so many packets and bytes. In a capture that is whole, CE packets (`ip.dsfield.ecn == 3`) are as many as the
counters of the link have seen.
"""

from __future__ import annotations

import re
import resource
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from testbed.errors import EnvironmentLacks, InputError, NotValid
from testbed.telemetry.pcapng import Converted, convert

STOP_TIMEOUT_S = 10.0
# The kernel hands packets over in blocks, at the latest after a second; what it still holds would be lost.
DRAIN_S = 1.1


@dataclass(frozen=True)
class CaptureSettings:
    """Limits of a capture: bytes kept of each packet, packets, and bytes of the pcapng file; which `direction`.

    Of a loopback interface tcpdump sees nothing go out, only what comes in.
    """

    snaplen_bytes: int = 128
    max_packets: int = 200_000
    max_bytes: int = 32 << 20
    direction: Literal["out", "in"] = "out"


@dataclass(frozen=True)
class Captured:
    """A finished capture; `lost_packets` are those the kernel had no room for."""

    path: Path
    converted: Converted
    lost_packets: int
    whole: bool
    """Whether every packet is there: no limit was met, and none was lost."""

    def told(self) -> dict[str, int | bool]:
        """What a manifest says of it."""
        return {
            "packets": self.converted.packets, "size_bytes": self.converted.size_bytes,
            "lost_packets": self.lost_packets, "whole": self.whole,
        }  # fmt: skip


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
        command = ["tcpdump", "-n", "-i", interface, "-Q", settings.direction, "-s", str(settings.snaplen_bytes)]
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
            # Unbuffered, so that what is read here does not take away what `stop` reads. Signals stay ignored, so that
            # tcpdump, at the largest size its file may have, goes on counting what it cannot write.
            self._process = subprocess.Popen(
                command, bufsize=0, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, restore_signals=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (settings.max_bytes, settings.max_bytes)),
            )  # fmt: skip
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
        full = self._raw.stat().st_size >= self._settings.max_bytes or converted.packets >= self._settings.max_packets
        self._raw.unlink()
        lost_packets = int(lost[1]) if lost else 0
        return Captured(self._path, converted, lost_packets, not (full or converted.truncated or lost_packets))

    def _read_until(self, phrase: bytes) -> bytes:
        assert self._process.stderr is not None
        said = b""
        for line in self._process.stderr:
            said += line
            if phrase in line:
                break
        return said
