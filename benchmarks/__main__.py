"""Measure everything, print it as a table, and keep it in results/bench: `python -m benchmarks [--runs 3]`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import cases, decisions, fluid, guest, loops, native, netstorm, ns3, plots, setup, table
from benchmarks.guest import Moved
from benchmarks.measure import Turns, in_turns
from testbed import results
from testbed.engine.commands import ready_kernel
from testbed.engine.kernel import Kernel
from testbed.errors import OrreryError

PARTS = ("traffic", "setup", "idle", "decisions", "loops", "netstorm", "fluid")
NAME = "bench"
QUIET_LOAD = 0.5
POLLS_S = {"cassini-48, controller every 1 s": 1.0, "cassini-48, controller every 0.1 s": 0.1}


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def _tell_of(case: str, text: str) -> None:
    _tell(f"{case}: {text}")


def traffic(kernel: Kernel, runs: int, short: bool) -> dict[str, Turns[Moved]]:
    """Return what every system moved in every case."""
    cpu = max(os.sched_getaffinity(0))  # the one a guest takes first
    measured = {}
    for case in cases.standard(short):
        systems = {
            table.GUEST: partial(guest.moved, case, kernel),
            table.COPYING: partial(guest.moved, case.with_copies(), kernel),
            table.NS3: partial(ns3.run, case, cpu),
            table.NATIVE: partial(native.run, case.topology.mtu_bytes, 0.2 if short else 2.0, cpu),
        }
        measured[case.name] = in_turns(systems, runs, partial(_tell_of, case.name))
    return measured


def set_up(kernel: Kernel, runs: int, short: bool) -> dict[str, Turns[dict[str, float]]]:
    """Return the stages of a boot, of the fabric, and of a short idle stretch."""
    boots = {f"boot {what} Open vSwitch": partial(setup.boot, kernel, what == "with") for what in ("without", "with")}
    return {"boot": in_turns(boots, runs, _tell), "fabric": idle(kernel, runs, 10.0 if short else setup.IDLE_S)}


def idle(kernel: Kernel, runs: int, idle_s: float) -> Turns[dict[str, float]]:
    """Return the stages of the fabric, and so many virtual seconds in which nothing but polls happens."""
    fabrics = {
        f"{name}, {idle_s:g} s idle": partial(setup.fabric, kernel, interval_s, idle_s)
        for name, interval_s in POLLS_S.items()
    }
    return in_turns(fabrics, runs, _tell)


def decided(runs: int) -> Turns[decisions.Timed]:
    """Return how long decisions for one link take."""
    systems = {f"{count} jobs": partial(decisions.decide_for, count) for count in decisions.JOB_COUNTS}
    return in_turns(systems, runs, _tell)


def decided_for_wans(runs: int) -> Turns[dict[str, float]]:
    """Return how long NETSTORM's decisions take."""
    systems = {f"{count} nodes": partial(netstorm.trees, count) for count in netstorm.NODE_COUNTS}
    return in_turns({**systems, "netstorm-9": netstorm.policy_change}, runs, _tell)


def ranked(runs: int) -> Turns[decisions.Ranked]:
    """Return how long the module takes, and how that grows."""
    name = f"24 servers, {decisions.CANDIDATES} candidates"
    grown = {f"{jobs} jobs, tied by loops": partial(decisions.grown, jobs) for jobs in decisions.GROWTH}
    return in_turns({name: decisions.cluster} | grown, runs, _tell)


def precise(runs: int) -> Turns[decisions.Precise]:
    """Return what decisions lose and take by precision."""
    systems = {f"{degrees}°": partial(decisions.precision, degrees) for degrees in decisions.PRECISIONS_DEG}
    return in_turns(systems, runs, _tell)


def machine(kernel: Kernel) -> dict[str, Any]:
    """Return what the figures depend on."""
    models = {
        line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    }
    return {
        "cpu": sorted(models),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "guest_kernel": kernel.key,
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def _plain(turns: Turns[Any]) -> dict[str, Any]:
    given = {
        name: [one if isinstance(one, dict) else asdict(one) for one in runs] for name, runs in turns.given.items()
    }
    return {"runs": given, "skipped": turns.skipped}


def measure(parts: list[str], runs: int, short: bool, folder: Path) -> tuple[dict[str, Any], str]:
    """Return all figures, as JSON has them, and the table; plots are put into the folder."""
    kernel = ready_kernel()
    figures: dict[str, Any] = {"machine": machine(kernel), "runs": runs, "short": short}
    load = figures["machine"]["load"]
    about = f"{' '.join(figures['machine']['cpu'])}, {figures['machine']['cpus']} CPUs, guest kernel {kernel.key}"
    texts = [f"{about}, {runs} runs, load at the beginning {load:.1f}."]
    if load > QUIET_LOAD:
        texts.append("**The machine was not idle**: all figures are low, only ratios say something.")
    if "traffic" in parts:
        moved = traffic(kernel, runs, short)
        figures["traffic"] = {name: _plain(turns) for name, turns in moved.items()}
        texts.append(table.traffic(moved))
    if "setup" in parts:
        staged = set_up(kernel, runs, short)
        figures["setup"] = {name: _plain(turns) for name, turns in staged.items()}
        texts.append(table.seconds(staged))
    elif "idle" in parts:  # it is in the set-up, too
        waited = idle(kernel, runs, 10.0 if short else setup.IDLE_S)
        figures["idle"] = _plain(waited)
        texts.append(table.seconds({"fabric": waited}))
    if "decisions" in parts:
        taken, module, by_degrees = decided(runs), ranked(runs), precise(runs)
        figures |= {"decisions": _plain(taken), "module": _plain(module), "precision": _plain(by_degrees)}
        many = [decisions.crowded(seed) for seed in range(decisions.CROWDED_LINKS)]
        figures["crowded"] = list(map(asdict, many))
        texts += [table.deciding(taken), table.crowded(many), table.ranking(module), table.precision(by_degrees)]
        plots.precision(by_degrees.given, folder / "precision")
    if "loops" in parts:
        reached = loops.measure()
        figures["loops"] = asdict(reached)
        texts.append(table.loops(reached))
    if "netstorm" in parts:
        wans = decided_for_wans(runs)
        fired = netstorm.under_fire(netstorm.SEEDS // (10 if short else 1))
        compared, dynamic = netstorm.compare_all(short), netstorm.dynamic(short)
        figures["netstorm"] = {
            **_plain(wans), "fire": asdict(fired), "compared": list(map(asdict, compared)), "dynamic": dynamic
        }  # fmt: skip
        texts += [table.seconds({"netstorm": wans}), table.fired(fired), table.compared(netstorm.medians(compared))]
        texts.append(table.dynamic(dynamic))
    if "fluid" in parts:
        whole = fluid.day(100 if short else 1000)
        sizes, lost = (
            fluid.growth((24, 256) if short else tuple(fluid.SIZES)),
            fluid.errors(15 if short else fluid.HOUR_JOBS),
        )
        figures["fluid"] = {
            "day": asdict(whole), "growth": list(map(asdict, sizes)), "errors": list(map(asdict, lost))
        }  # fmt: skip
        texts.append(fluid.table(whole, sizes, lost))
    return figures, "\n".join(text.rstrip("\n") + "\n" for text in texts)


def main(arguments: list[str]) -> int:
    """Run the program; the exit code is the error's."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often each system is measured (3)")
    parser.add_argument("--short", action="store_true", help="a tenth of the traffic: to see that everything works")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS), help="not everything")
    parser.add_argument("--results", type=Path, default=results.DEFAULT, help="where the folder bench/ is put")
    asked = parser.parse_args(arguments)
    if asked.runs < 1:
        parser.error("--runs: at least 1")
    try:
        with results.in_progress(asked.results, NAME) as folder:
            figures, text = measure(asked.only, asked.runs, asked.short, folder)
            (folder / "bench.json").write_text(json.dumps(figures, indent=1) + "\n")
            (folder / "bench.md").write_text(text)
            results.publish(folder, asked.results / NAME)
    except OrreryError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
