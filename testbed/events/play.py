"""Makes the events of a trial happen inside the guest, each at its virtual time, and notes what was read back.

A thread of its own sleeps from one event to the next, so that nothing the arm does meanwhile delays them. After the
trial everything is put back as it was: cables, settings, frozen hosts, the controller.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from testbed.errors import NotValid
from testbed.events.plan import ATTRIBUTES, CONTROLLER, Event, changed, partition
from testbed.net import links, tc
from testbed.net.emulation import Emulation
from testbed.net.readback import expect_qdiscs
from testbed.net.reshape import reshape
from testbed.net.topology import Topology, link_id
from testbed.telemetry.netlink import RouteSocket
from testbed.telemetry.qdisc import QdiscReader
from testbed.telemetry.tables import Writer

NEAR_S = 1e-3
"""So long before an event the thread only sleeps: waiting for the trial's end at the same time is less exact."""
SETTLE_S, SETTLE_TRIES = 1e-4, 100
TIMER_SLACK = Path("/proc/self/timerslack_ns")


class Crew(Protocol):
    """The programs on the hosts; signals go to those of one host and return how many there are."""

    def send_signal(self, host: str, number: signal.Signals) -> int: ...


class Restartable(Protocol):
    """The controller as a program."""

    @property
    def running(self) -> bool: ...
    def crash(self) -> None: ...
    def restart(self) -> None: ...


class Player:
    """Plays the events of an arm in one trial after another, and writes events.csv.

    `epoch_s` is where times of the file count from, as time.time().
    """

    def __init__(
        self,
        net: Emulation,
        events: Sequence[Event],
        crew: Crew,
        controller: Restartable,
        writer: Writer,
        epoch_s: float,
    ) -> None:
        self._net, self._events, self._crew, self._controller = net, events, crew, controller
        self._writer, self._epoch_s = writer, epoch_s
        self._before: Topology = net.topology
        self._down: dict[tuple[str, str], str] = {}
        self._frozen: dict[str, None] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._trial = ""
        with contextlib.suppress(OSError):  # a timer may otherwise ring up to 50 µs late; threads inherit it
            TIMER_SLACK.write_text("1")

    def begin(self, trial: str, zero_s: float) -> None:
        """Let the events of a trial happen from now on; `zero_s` is its zero as time.time()."""
        self._trial = trial
        self._over.clear()
        self._thread = threading.Thread(target=self._play, args=(zero_s,), name="events")
        self._thread.start()

    def end(self) -> None:
        """End a trial: what has not happened does not, and everything is put back. Raises what went wrong."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            raise self._error
        self._put_back()

    def note(self, t_s: float, kind: str, target: str, found: str) -> None:
        """Write down what nobody asked for; `t_s` is time.time()."""
        self._writer.row(self._trial, None, t_s - self._epoch_s, kind, target, None, _one_value(found))

    def _play(self, zero_s: float) -> None:
        try:
            for event in self._events:
                at_s = zero_s + event.at_s
                happens = self._wait_until(at_s)
                found, done_s = ("the trial had ended", None)
                if happens:
                    found = self._do(event)
                    done_s = self._done_s - self._epoch_s
                self._writer.row(
                    self._trial, at_s - self._epoch_s, done_s, event.kind, event.target, event.value, _one_value(found)
                )
        except BaseException as error:  # it is raised in the thread that waits for this one
            self._error = error

    def _wait_until(self, at_s: float) -> bool:
        """Sleep until then; False when the trial ended before."""
        if self._over.wait(max(0.0, at_s - NEAR_S - time.time())):
            return False
        time.sleep(max(0.0, at_s - time.time()))
        return True

    def _do(self, event: Event) -> str:
        """Make an event happen; what was read back. `_done_s` is then when it had happened."""
        if event.kind in ATTRIBUTES:
            return self._reshape(event)
        if event.kind in ("link-down", "link-up"):
            a, _, b = partition(event.target)
            return self._cable(event.target, a, b, event.kind == "link-up")
        if event.kind == "controller-crash":
            return self._then(self._controller.crash, "the program is killed; the switches keep their rules")
        if event.kind == "controller-restart":
            return self._then(self._controller.restart, "the program is started")
        host = event.target
        if event.kind == "host-kill":
            cut = self._cable(link_name(host, self._before.uplink(host)), host, self._before.uplink(host), False)
            return f"{self._signal(host, signal.SIGKILL)}; {cut}"
        if event.kind == "host-freeze":
            self._frozen[host] = None
            return self._signal(host, signal.SIGSTOP)
        del self._frozen[host]
        return self._signal(host, signal.SIGCONT)

    def _then(self, act: Callable[[], None], said: str) -> str:
        act()
        self._done_s = time.time()
        return said

    def _signal(self, host: str, number: signal.Signals) -> str:
        count = self._crew.send_signal(host, number)
        self._done_s = time.time()
        return f"{number.name} to {count} programs"

    def _reshape(self, event: Event) -> str:
        t = self._net.topology
        wanted = {way: changed(t.direction(*way), event) for way in event.directions}
        reshape(self._net, wanted)
        self._done_s = time.time()
        return "; ".join(self._read_back(a, b) for a, b in wanted)

    def _read_back(self, a: str, b: str) -> str:
        """The settings of an egress as the kernel has them, which must be the network's. Raises FabricMismatch."""
        interface, direction = self._net.interfaces[link_id(a, b)], self._net.topology.direction(a, b)
        with self._net.inside(interface.node):
            reader = QdiscReader()
        try:
            tree = sorted((q for q in reader.dump() if q.ifindex == interface.ifindex), key=lambda q: q.handle)
        finally:
            reader.close()
        expect_qdiscs(interface.name, tc.wanted(direction), tree)
        shown = {name: value for q in tree for name, value in q.options.items() if name in _SHOWN}
        return f"{interface.name} " + " ".join(f"{name} {value}" for name, value in shown.items())

    def _cable(self, name: str, a: str, b: str, up: bool) -> str:
        """Cut or mend a cable at a switch: a host's own device, switched off, would forget its routes."""
        hosts = self._net.topology.hosts
        a, b = sorted((a, b), key=lambda end: (end in hosts, end))  # the same end, however the cable is written
        near, far = self._net.interfaces[link_id(a, b)], self._net.interfaces[link_id(b, a)]
        with links_socket(self._net, near.node) as kernel:
            kernel.do([(links.set_up if up else links.set_down)(near.ifindex, near.name)])
            self._done_s = time.time()
            if up:
                self._down.pop((a, b), None)
            else:
                self._down[a, b] = name
            with links_socket(self._net, far.node) as there:
                for _ in range(SETTLE_TRIES):
                    states = [
                        links.devices(socket)[end.name].operstate for socket, end in ((kernel, near), (there, far))
                    ]
                    if (states == ["up", "up"]) == up:
                        break
                    time.sleep(SETTLE_S)  # the kernel tells the other end a little later
                else:
                    found = f"{near.name} is {states[0]}, {far.name} is {states[1]}"
                    raise NotValid(f"{name} did not go {'up' if up else 'down'}: {found}")
        return f"{near.name} {states[0]}; {far.name} {states[1]}"

    def _put_back(self) -> None:
        for host in list(self._frozen):
            self.note(time.time(), "host-thaw", host, self._signal(host, signal.SIGCONT))
        self._frozen.clear()
        for (a, b), name in list(self._down.items()):
            found = self._cable(name, a, b, True)
            self.note(self._done_s, "link-up", name, found)
        self._mend(self._before)
        if not self._controller.running:
            self.note(time.time(), "controller-restart", CONTROLLER, self._then(self._controller.restart, "started"))

    def _mend(self, before: Topology) -> None:
        """Give every direction the settings it had."""
        now = self._net.topology
        ways = [way for way in before.directed() if now.direction(*way) != before.direction(*way)]
        if not ways:
            return
        were = {way: now.direction(*way) for way in ways}
        reshape(self._net, {way: before.direction(*way) for way in ways})
        done_s = time.time()
        for way in ways:
            old, found = before.direction(*way), self._read_back(*way)
            for kind, key in ATTRIBUTES.items():
                value = getattr(old, key)
                if value != getattr(were[way], key):
                    self._writer.row(
                        self._trial, None, done_s - self._epoch_s, kind, link_id(*way), value, _one_value(found)
                    )

    _done_s = 0.0


_SHOWN = ("rate_bytes_per_s", "latency_ns", "loss_2e32")


def link_name(a: str, b: str) -> str:
    """The name of a cable."""
    return f"{a}<->{b}"


@contextlib.contextmanager
def links_socket(net: Emulation, node: str) -> Iterator[RouteSocket]:
    """A socket of this thread's own to the kernel, in the namespace of a node."""
    with net.inside(node):
        kernel = RouteSocket()
    try:
        yield kernel
    finally:
        kernel.close()


def _one_value(text: str) -> str:
    """The text as a value of a CSV file."""
    return text.replace(",", ";").replace('"', "'").replace("\n", " ")
