"""Ryu, or os-ken in its place: the one module that imports either, chosen by ORRERY_SDN=ryu|os-ken. The default is
ryu, and os-ken from Python 3.12 on, for which Ryu cannot be installed.

Both are started the way their own manager starts an application, without what this one does not use.
Importing is what costs most in a guest, so the web server (which new versions of eventlet would not let Ryu
import anyway, for want of `eventlet.wsgi.ALREADY_HANDLED`), encryption and eventlet's DNS client stay out:
250 modules instead of 550.

Nothing is monkey-patched: the framework's sockets are green by themselves, and netlink and files need not be.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from controllers.sdn.openflow import VERSION
from testbed.errors import EnvironmentLacks, InputError

PACKAGES = {"ryu": "ryu", "os-ken": "os_ken"}
NAME = os.environ.get("ORRERY_SDN") or ("ryu" if sys.version_info < (3, 12) else "os-ken")

Handler = Callable[[Any, Any], None]


def _stand_in(name: str, **content: object) -> None:
    """Let imports of module `name` find an almost empty one."""
    module = types.ModuleType(name)
    module.__dict__.update(content)
    sys.modules.setdefault(name, module)


@contextmanager
def _stand_in_for_now(name: str) -> Iterator[None]:
    """Let imports inside the block find an almost empty module `name`, and those after it the real one."""
    if name in sys.modules:
        yield
        return
    _stand_in(name)
    try:
        yield
    finally:
        del sys.modules[name]


def _leave_out(package: str) -> None:
    """Keep modules out that the framework imports and this application does not use."""
    os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")
    os.environ.setdefault("OSKEN_HUB_TYPE", "eventlet")
    _stand_in(f"{package}.app.wsgi", start_service=lambda _manager: None)
    _stand_in("eventlet.wsgi")
    _stand_in("eventlet.websocket", WebSocketWSGI=None)
    # Decoders of packets that a switch sends up to its controller: none are, here.
    packets = Path(importlib.import_module(f"{package}.lib").__path__[0]) / "packet"
    _stand_in(f"{package}.lib.packet", __path__=[str(packets)], packet=None)
    for version in ("1_0", "1_2", "1_4", "1_5"):
        _stand_in(f"{package}.ofproto.ofproto_v{version}_parser")
    _stand_in("rfc3986")  # for options that are URIs
    _stand_in("stevedore", ExtensionManager=None)  # for options that do not come from files
    # None makes an import fail: eventlet then goes on without encryption.
    sys.modules.setdefault("OpenSSL", cast(types.ModuleType, None))
    if sys.version_info < (3, 12) and (shim := sys.modules.get("_distutils_hack")):
        shim.__dict__["remove_shim"]()  # distutils from the library, not all of setuptools


def _load() -> Callable[[str], Any]:
    """A function that imports a module of the chosen framework."""
    if NAME not in PACKAGES:
        raise InputError("ORRERY_SDN", f"{NAME!r} is no SDN framework", f"one of {', '.join(PACKAGES)}")
    package = PACKAGES[NAME]
    _leave_out(package)
    warnings.filterwarnings("ignore", message="\nEventlet is deprecated")
    try:
        with _stand_in_for_now("asyncio"):  # eventlet looks at it only to patch it
            importlib.import_module(f"{package}.base.app_manager")
    except ModuleNotFoundError as error:
        raise EnvironmentLacks(f"{NAME} cannot be imported: {error}", "make setup") from error
    return lambda module: importlib.import_module(f"{package}.{module}")


_module = _load()
_manager, _hub, _controller = (
    _module("base.app_manager"),
    _module("lib.hub"),
    _module("controller.controller"),
)
_events, _dispatch = _module("controller.ofp_event"), _module("controller.handler")
_protocol, _parser = _module("ofproto.ofproto_v1_3"), _module("ofproto.ofproto_v1_3_parser")
_hubs = importlib.import_module("eventlet.hubs")
# The hub keeps what it is about to call in a set: without this, in the order of addresses in memory.
importlib.import_module("eventlet.hubs.hub").FdListener.__hash__ = lambda one: hash((one.fileno, one.evtype))
# A switch greets in the newest version it speaks; a greeting looks the same in all, and 1.3 is what both then speak.
for _version in (1, 3, 5, 6):
    _module("ofproto.ofproto_parser").register_msg_parser(_version)(_parser.msg_parser)

Application: Any = _manager.RyuApp if NAME == "ryu" else _manager.OSKenApp
Event: Any = _hub.Event
Lock: Any = _hub.BoundedSemaphore
sleep: Callable[[float], None] = _hub.sleep
spawn: Callable[..., Any] = _hub.spawn

OPENFLOW_VERSIONS = [VERSION]
CONNECTED, GONE = _dispatch.MAIN_DISPATCHER, _dispatch.DEAD_DISPATCHER
PORT_DELETED: int = _protocol.OFPPR_DELETE
MORE: int = _protocol.OFPMPF_REPLY_MORE


def handles(event: str, *states: str) -> Callable[[Handler], Handler]:
    """Mark a method of the application as the handler of `event` ("PortStatus", ...) in these states (all if
    none)."""
    mark = _dispatch.set_ev_cls(getattr(_events, f"EventOFP{event}"), list(states))
    return lambda handler: cast(Handler, mark(handler))


def port_is_down(port: Any) -> bool:
    """Whether a port's description says that nothing can leave by it."""
    return bool(port.config & _protocol.OFPPC_PORT_DOWN or port.state & _protocol.OFPPS_LINK_DOWN)


def serve_unix(path: str, handle: Callable[[socket.socket], None]) -> None:
    """Answer every connection to a socket at `path`, each in a green thread of its own. Does not return."""
    _hub.StreamServer((path,), lambda connection, _address: handle(connection)).serve_forever()


class RawStats:
    """The body of a statistics reply, unparsed: in `data`."""

    def __init__(self, data: bytes) -> None:
        self.data, self.length = data, len(data)

    @classmethod
    def parser(cls, buffer: bytes, offset: int) -> RawStats:
        """Called by the framework once per reply, where its own classes are called once per entry."""
        return cls(bytes(buffer[offset:]))


def run(application: type, settings: object, listen: str, port: int) -> None:
    """Start the framework with `application(settings)` and serve until SIGTERM or SIGINT, then call its
    `finish`.

    Raises EnvironmentLacks when the framework stops by itself: the address could not be listened on.
    """
    for kind in ("OFPFlowStatsReply", "OFPPortStatsReply", "OFPTableStatsReply"):
        getattr(_parser, kind).cls_stats_body_cls = RawStats
    options = _controller.CONF
    options(args=[], project="orrery", default_config_files=[], default_config_dirs=[])
    options.set_override("ofp_listen_host", listen)
    options.set_override("ofp_tcp_listen_port", port)
    manager = _manager.AppManager.get_instance()
    running = manager.instantiate(application, settings)
    manager.load_apps([f"{PACKAGES[NAME]}.controller.ofp_handler"])
    reader, writer = _signals_as_pipe()
    services = manager.instantiate_apps()
    for service in services:
        service.link(lambda _service: os.write(writer, b"\0"))
    try:
        _hubs.trampoline(reader, read=True)
        if any(service.dead for service in services):
            raise EnvironmentLacks(f"{NAME} could not serve {listen}:{port}", "free the port, or set another one")
    finally:
        running.finish()


def _signals_as_pipe() -> tuple[int, int]:
    """A pipe that becomes readable with SIGTERM or SIGINT, so that no handler runs inside the event loop."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(writer)
    return reader, writer
