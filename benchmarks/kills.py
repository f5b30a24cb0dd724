"""Kill something at a random moment of a run, again and again, and look what becomes of it:

    python -m benchmarks.kills [--runs 100] [--seed 1] [--kinds agent,controller] [--log FILE]

Kinds: the launcher and the guest (at wall-clock moments), or a process inside (virtual ones, benchmarks/killing.py).
After every kill: no process, memory file, interface or run in progress is left, the earlier results are the same bytes,
and the run has said that it is not valid, and why. After every EVERY kills the next run has to be valid. Prints a line
for each and the counts; with --log it goes on where it was stopped. Exit code 1 when anything was wrong.

Wall-clock moments are drawn from a run's own length, as it is met on this machine now.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from benchmarks.killing import VICTIMS
from testbed import campaign, experiment, scenario, scenario_file
from testbed.engine.commands import PROJECT_IN_GUEST, RESULTS_IN_GUEST, program_job, ready_kernel
from testbed.engine.launch import Guest, Machine
from testbed.errors import exit_code, failure

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = ('measure.arms=["together"]', "measure.iterations=3", "measure.trials.together=1")
OUTSIDE = ("launcher", "guest")
KINDS = (*OUTSIDE, *VICTIMS)
EVERY = 25
HANGS_S = 900
GONE_WITHIN_S = 20
LONGEST_VIRTUAL_S = 4.5
"""Moments of kills inside are drawn from this, about as long as an arm is from its begin on."""


@dataclass(frozen=True)
class Kill:
    """What is killed, and when: wall-clock seconds for what is outside the guest, virtual ones inside."""

    kind: str
    at_s: float


class Silent:
    """A watcher that remembers which stages were reached."""

    def arm(self, arm: str, iterations: int) -> None:
        """Nothing to show."""

    def message(self, _: str, message: dict[str, Any]) -> None:
        """Say aloud that somebody was killed."""
        if str(message.get("stage", "")).startswith("killed"):
            print(message["stage"], flush=True)

    def stage(self, text: str) -> None:
        """Nothing to show."""


class KillingCampaign(campaign.Campaign):
    """A campaign whose arms run beside somebody who kills."""

    def _run_guest(self, folder: Path, arm: str, plan: dict[str, Any], iterations: int, *_: object) -> dict[str, float]:
        kind, _, at_s = self.source.rpartition("\n# ")[2].partition(" ")
        self._begin(folder, arm, plan, iterations, {})
        said: list[bytes] = []
        arguments = ("-m", "benchmarks.killing", kind, at_s, RESULTS_IN_GUEST)
        guest = Guest(program_job(arguments, PROJECT_IN_GUEST, write=folder, tree=True), Machine(), self.kernel)
        self.guests.append(guest)
        code = guest.run(said.append, said.append, lambda message: self.watcher.message(arm, message))
        if code != 0:
            raise failure(f"arm {arm}", said, code)
        return {}


def run_beside_a_killer(kind: str, at_s: float, results: Path) -> int:
    """Run the scenario once, with a process of that kind killed inside; return what the command line would."""
    path = scenario_file.find("smoke")
    built = experiment.build(scenario.load("smoke", SETTINGS), "smoke", path.parent)
    source = f"{scenario_file.effective(path, SETTINGS)}\n# {kind} {at_s}"

    def run() -> None:
        outcome = KillingCampaign(built, source, ready_kernel(), results, Silent()).run()
        if not outcome.valid:
            faults = [check for checks in outcome.checks.values() for check in checks if not check.ok]
            raise campaign.NotValid(f"NOT VALID: {faults[0].what}: {faults[0].found}")

    return exit_code(run)


def command(kill: Kill | None, results: Path) -> list[str]:
    """Return the command of a run: a user's, or one with a killer inside."""
    if kill is None or kill.kind in OUTSIDE:
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        return [sys.executable, "-m", "testbed", "run", "smoke", *settings, "--results", str(results)]
    return [sys.executable, "-m", "benchmarks.kills", "--one", kill.kind, str(kill.at_s), str(results)]


def descendants(pid: int) -> set[int]:
    """Return all living processes below one."""
    found: set[int] = set()
    new = {pid}
    while new:
        children: set[int] = set()
        for parent in new:
            for listing in Path("/proc").glob(f"{parent}/task/*/children"):
                try:
                    children |= set(map(int, listing.read_text().split()))
                except OSError:
                    continue
        new = children - found
        found |= new
    return found


def running(pid: int) -> bool:
    """Whether a process lives; one that has ended and was not looked at yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def state(results: Path) -> dict[str, str]:
    """Return the hash of every file of the earlier results."""
    return {
        str(path.relative_to(results)): sha256(path.read_bytes()).hexdigest()
        for path in sorted((results / "smoke").rglob("*"))
        if path.is_file()
    }


def whole(results: Path) -> bool:
    """Return whether what stands in place of the earlier results is a valid run to its last file."""
    try:
        verdict = json.loads((results / "smoke" / "manifest.json").read_text())["valid"]
        return bool(verdict) and (results / "smoke" / "report.html").read_text().rstrip().endswith("</html>")
    except (OSError, ValueError, KeyError):
        return False


def interfaces() -> set[str]:
    """Return the names of the host's network interfaces."""
    return {path.name for path in Path("/sys/class/net").iterdir()}


def one(kill: Kill, results: Path) -> tuple[str, str]:
    """Kill once; return what became of it, in a word, and what the run said last."""
    before, links = state(results), interfaces()
    process = subprocess.Popen(
        command(kill, results), cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    family: set[int] = set()
    if kill.kind in OUTSIDE:
        time.sleep(kill.at_s)
        family = descendants(process.pid)
        kernel = str(ready_kernel().path).encode()
        guests = [pid for pid in sorted(family) if _program(pid) == kernel]
        victim = process.pid if kill.kind == "launcher" else next(iter(guests), None)
        if process.poll() is not None or victim is None:
            victim = None
        else:
            subprocess.run(["kill", "-KILL", str(victim)], check=False)
    try:
        said, _ = process.communicate(timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        family |= descendants(process.pid)
        process.kill()
        said, _ = process.communicate()
        return "WRONG: it hangs", said[-300:]
    lines = said.strip().splitlines()
    met = victim is not None if kill.kind in OUTSIDE else any(line.startswith("killed ") for line in lines)
    last = next((line for line in reversed(lines) if not line.startswith(("killed ", "  mend", " "))), "")
    return _judged(kill, process.returncode, met, said, family, links, before, results), last


def _judged(
    kill: Kill,
    code: int,
    met: bool,
    said: str,
    family: set[int],
    links: set[str],
    before: dict[str, str],
    results: Path,
) -> str:
    end_s = time.monotonic() + GONE_WITHIN_S
    while any(map(running, family)) and time.monotonic() < end_s:
        time.sleep(0.05)
    if any(map(running, family)):
        return "WRONG: processes are left"
    if interfaces() != links:
        return "WRONG: interfaces are left"
    if "Traceback" in said and kill.kind != "arm":
        return "WRONG: a traceback"
    if code == 0:
        return "valid: killed after the last reading" if met else "valid: ended before"
    if state(results) != before:
        if kill.kind == "launcher" and "\nresults: " in said and whole(results):
            return "valid: killed after its results were kept"
        return "WRONG: earlier results changed"
    if kill.kind == "launcher":
        return "nothing left" if code == -signal.SIGKILL else f"WRONG: exit code {code}"
    if [path for path in results.iterdir() if path.name.startswith(".smoke.")]:
        return "WRONG: a run in progress is left"
    if code not in (1, 3) or not said.strip():
        return f"WRONG: exit code {code}"
    return "reported as not valid"


def _program(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return b""


def undisturbed(results: Path) -> tuple[bool, float]:
    """Return whether a run that nobody interferes with is valid, and how many seconds of wall time it takes."""
    begun_s = time.monotonic()
    ended = subprocess.run(command(None, results), cwd=ROOT, capture_output=True, check=False)
    return ended.returncode == 0, time.monotonic() - begun_s


Counts = Counter[tuple[str, str]]


def campaign_of_kills(runs: int, seed: int, kinds: tuple[str, ...], log: Path | None = None) -> Counts:
    """Kill so often, kinds in turn, and print what becomes of each; return the counts by (kind, what became).

    What became of each is a line of `log`, from which a campaign that was stopped goes on.
    """
    lines = log.read_text().splitlines() if log and log.exists() else []
    done = [json.loads(line) for line in lines]
    counts: Counts = Counter((row["kind"], row["became"]) for row in done)
    first = sum(row["kind"] != "no kill" for row in done)

    def note(kind: str, became: str, **more: object) -> None:
        counts[kind, became] += 1
        if log:
            with log.open("a") as file:
                file.write(json.dumps({"kind": kind, "became": became} | more) + "\n")

    with tempfile.TemporaryDirectory(prefix="orrery-kills-") as name:
        results = Path(name)
        well, longest_s = undisturbed(results)
        note("no kill", "valid" if well else "WRONG: not valid")
        for number in range(first, runs):
            draw, kind = random.Random(f"{seed} {number}"), kinds[number % len(kinds)]
            kill = Kill(kind, round(draw.uniform(0, longest_s if kind in OUTSIDE else LONGEST_VIRTUAL_S), 3))
            became, said = one(kill, results)
            note(kind, became, number=number, at_s=kill.at_s, said=said[:300])
            print(f"{number:4} {kind:<13} at {kill.at_s:6.3f} s: {became}; {said[:150]}", flush=True)
            if number % EVERY == EVERY - 1 or number == runs - 1:
                well, longest_s = undisturbed(results)
                note("no kill", "valid" if well else "WRONG: not valid")
                print(told(counts), flush=True)
    return counts


def told(counts: Counts) -> str:
    """Return one line: how many were killed, and what became of them."""
    kills = Counter({key: count for key, count in counts.items() if key[0] != "no kill"})
    wrong = sum(count for (_, became), count in counts.items() if "WRONG" in became)
    late = sum(count for (_, became), count in kills.items() if became.startswith("valid"))
    return (
        f"{kills.total()} kills: {kills.total() - late - wrong} ended their runs, {late} came too late, {wrong} wrong; "
        f"{counts['no kill', 'valid']} runs between them valid"
    )


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code."""
    if arguments[:1] == ["--one"]:
        return run_beside_a_killer(arguments[1], float(arguments[2]), Path(arguments[3]))
    parser = argparse.ArgumentParser(description="kill something in a run, again and again")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--log", type=Path, help="where each kill is kept, a line each, to go on from")
    wanted = parser.parse_args(arguments)
    counts = campaign_of_kills(wanted.runs, wanted.seed, tuple(wanted.kinds.split(",")), wanted.log)
    for (kind, became), count in sorted(counts.items()):
        print(f"{count:5}  {kind:<13} {became}")
    print(told(counts))
    return int(any("WRONG" in became for _, became in counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
