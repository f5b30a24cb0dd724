#!/usr/bin/python3 -ISB
"""The first process of a guest: make it habitable, run the job, report its exit code, switch the guest off.

The job comes packed in the environment (ORRERY_JOB, from the kernel's command line). Streams are serial lines:
/dev/ttyS0 standard output, /dev/ttyS1 standard error, /dev/ttyS2 status (JSON lines), /dev/ttyS3 standard input.
"""

import base64
import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import tty
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4
POWER_OFF = 0x4321FEDC
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
COVERED = ("/run", "/tmp", "/var/log", "/var/tmp")
COVERED_HOMES = ("/home", "/root")
"""Where homes lie: hidden from a guest, unless it is to see its user's."""
DISPATCH = {
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4",
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Nehalem",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Environment that makes libm, numpy and OpenBLAS calculate with the same instructions on every x86-64 machine that
numpy runs on, and so give the same last digits."""
OVS_UPTIME_S = 11
"""Open vSwitch counts its cores in the first 10 s of uptime as 0, and would then start no handler threads."""
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/run/home",
    "LANG": "C.UTF-8",
    "USER": "root",
    "LOGNAME": "root",
    "SHELL": "/bin/bash",
    "TERM": "dumb",
    "ORRERY_GUEST": "1",
    "ORRERY_STATUS": "/dev/ttyS2",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    **DISPATCH,
}


def mount(kind: str, target: str, flags: int = 0, options: str = "") -> None:
    if LIBC.mount(b"none", target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode() or None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind} on {target}: {os.strerror(number)}")


def show(host: str, guest: str, flags: int) -> None:
    """Mount a host folder (named by the launcher's descriptor) at a path of the guest."""
    Path(guest).mkdir(parents=True, exist_ok=True)
    mount("hostfs", guest, flags, host)


def cover_homes(job: dict[str, Any]) -> tuple[str, ...]:
    """Hide the folders in which homes lie, and that of the user where it lies elsewhere: its descriptor says where.

    Returns what is hidden.
    """
    if job["home"] is None:
        return ()
    own = []
    with suppress(OSError):  # it lies where homes do
        own = [str(Path(job["home"]).readlink())]  # by the host's own /proc, which is still to be seen
    for folder in (*COVERED_HOMES, *own):
        if Path(folder).is_dir() and not Path(folder).is_symlink():
            mount("tmpfs", folder, MS_NOSUID | MS_NODEV, "mode=755")
    return (*COVERED_HOMES, *own)


def make_file_systems(job: dict[str, Any]) -> None:
    covered = (*COVERED, *cover_homes(job))
    mount("proc", "/proc")
    mount("sysfs", "/sys")
    mount("devtmpfs", "/dev")
    for folder in COVERED:
        if Path(folder).is_dir() and not Path(folder).is_symlink():
            mount("tmpfs", folder, MS_NOSUID | MS_NODEV)
    for folder in ("/dev/pts", "/dev/shm", "/dev/net", "/run/netns", "/run/home", "/run/lock", "/run/openvswitch"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    mount("devpts", "/dev/pts", options="ptmxmode=0666")
    mount("tmpfs", "/dev/shm")
    if not Path("/dev/net/tun").exists():
        os.mknod("/dev/net/tun", 0o20666, os.makedev(10, 200))
    for name, link in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        if not Path("/dev", name).exists():
            Path("/dev", name).symlink_to(link)
    for host, guest in job["mounts"]:
        hidden = any(guest.startswith(folder + "/") for folder in covered)
        if hidden and not (job["write"] and (guest + "/").startswith(job["write"][1] + "/")):
            show(host, guest, MS_RDONLY)
    if job["write"]:  # last, or a folder around it would hide it
        host, guest = job["write"]
        show(host, guest, 0)


def make_memory() -> None:
    """A guest in which the kernel ends some process to make room would go on with wrong results: it ends instead."""
    Path("/proc/sys/vm/panic_on_oom").write_text("1")


def make_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        (flags,) = struct.unpack_from("h", request, 16)
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def make_network() -> None:
    socket.sethostname("guest")
    make_loopback()
    # a congestion control that the initial namespace does not allow is refused in every other one
    available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text()
    Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").write_text(available)


def start_open_vswitch() -> None:
    time.sleep(max(0.0, OVS_UPTIME_S - time.monotonic()))
    database, logs = "/run/openvswitch/conf.db", "/var/log/openvswitch"
    Path(logs).mkdir(parents=True, exist_ok=True)
    commands = (
        ("ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema"),
        ("ovsdb-server", database, "--remote=punix:/run/openvswitch/db.sock", "--pidfile", "--detach",
         "--no-chdir", "-vconsole:off", f"--log-file={logs}/ovsdb-server.log"),
        ("ovs-vswitchd", "--pidfile", "--detach", "--no-chdir", "-vconsole:off", f"--log-file={logs}/ovs-vswitchd.log"),
    )  # fmt: skip
    for command in commands:
        subprocess.run(command, check=True, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def open_line(path: str, flags: int) -> int:
    """Open a serial line that passes bytes as they are."""
    descriptor = os.open(path, flags | os.O_NOCTTY)
    tty.setraw(descriptor, termios.TCSANOW)
    return descriptor


def pump(source: int, sink: int) -> None:
    """Copy until the source ends; a sink nobody reads any more ends it too."""
    try:
        while chunk := os.read(source, 1 << 16):
            view = memoryview(chunk)
            while view:
                view = view[os.write(sink, view) :]
    except OSError:
        pass
    finally:
        os.close(source)


def feed(source: int, sink: int) -> None:
    """Copy pieces, each behind its length, until an empty one: closing a serial line loses what is in it."""
    with os.fdopen(source, "rb") as pieces, os.fdopen(sink, "wb", buffering=0) as command, suppress(BrokenPipeError):
        while size := struct.unpack(">I", pieces.read(4))[0]:
            command.write(pieces.read(size))


def start_on_terminal(job: dict[str, Any]) -> subprocess.Popen[bytes]:
    rows, columns = job["terminal"]
    terminal = os.open("/dev/tty0", os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    return subprocess.Popen(
        job["argv"], cwd=job["cwd"], env=ENVIRONMENT | job["env"],
        stdin=terminal, stdout=terminal, stderr=terminal, preexec_fn=take_terminal,
    )  # fmt: skip


def start_on_lines(job: dict[str, Any], source: int | None) -> tuple[subprocess.Popen[bytes], list[threading.Thread]]:
    process = subprocess.Popen(
        job["argv"], cwd=job["cwd"], env=ENVIRONMENT | job["env"], start_new_session=True,
        stdin=subprocess.PIPE if job["stdin"] else subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    pumps = []
    for pipe, line in ((process.stdout, "/dev/ttyS0"), (process.stderr, "/dev/ttyS1")):
        arguments = (os.dup(pipe.fileno()), open_line(line, os.O_WRONLY))
        pumps.append(threading.Thread(target=pump, args=arguments))
    for thread in pumps:
        thread.start()
    if source is not None and process.stdin is not None:
        sink = os.dup(process.stdin.fileno())
        process.stdin.close()

        threading.Thread(target=feed, args=(source, sink), daemon=True).start()
    return process, pumps


def vswitch_processes() -> dict[int, str]:
    """Return the daemons of Open vSwitch, which are this process's children once they are detached."""
    found = {}
    for name in ("ovsdb-server", "ovs-vswitchd"):
        with suppress(OSError, ValueError):
            found[int(Path(f"/run/openvswitch/{name}.pid").read_text())] = name
    return found


def wait_for(process: subprocess.Popen[bytes]) -> int:
    """Reap whatever ends, as a first process must, until the job's own process has ended; return its exit code.

    A daemon of Open vSwitch that is killed or crashes ends the guest: the other one may then spin, and virtual time
    would stand still for ever.
    """
    daemons = vswitch_processes()
    while True:
        pid, status = os.wait()
        if pid in daemons and os.WIFSIGNALED(status) and os.WTERMSIG(status) != signal.SIGTERM:
            raise ChildProcessError(f"{daemons[pid]} was ended by {signal.Signals(os.WTERMSIG(status)).name}")
        if pid == process.pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def run(job: dict[str, Any], source: int | None) -> int:
    cwd = Path(job["cwd"])
    job["cwd"] = str(cwd) if cwd.is_dir() else "/"
    try:
        if job["terminal"]:
            return wait_for(start_on_terminal(job))
        process, pumps = start_on_lines(job, source)
    except OSError as error:
        line = open_line("/dev/ttyS1", os.O_WRONLY)
        os.write(line, f"{job['argv'][0]}: {error.strerror}\n".encode())
        return 127 if isinstance(error, FileNotFoundError) else 126
    code = wait_for(process)
    for thread in pumps:
        thread.join(timeout=5)  # a daemon of the job's may keep its pipe open for ever
    return code


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job = json.loads(zlib.decompress(base64.b64decode(os.environ["ORRERY_JOB"])))
    try:
        make_file_systems(job)
        make_memory()
        make_network()
        status = open_line("/dev/ttyS2", os.O_WRONLY)
        if job["open_vswitch"]:
            start_open_vswitch()
        source = open_line("/dev/ttyS3", os.O_RDONLY) if job["stdin"] else None
        os.write(status, b'{"stage": "guest up"}\n')
        code = run(job, source)
        os.write(status, b'{"exit": %d}\n' % code)
        for line in ("/dev/ttyS0", "/dev/ttyS1", "/dev/ttyS2"):
            termios.tcdrain(open_line(line, os.O_WRONLY))
    except BaseException as error:
        sys.stderr.write(f"guest init: {error!r}\n")
        sys.stderr.flush()
    finally:
        os.sync()
        with suppress(OSError):  # or the kernel's last word, "Power down", would stand on the user's terminal
            Path("/proc/sys/kernel/printk").write_text("0")
        LIBC.reboot(POWER_OFF)


if __name__ == "__main__":
    main()
