"""The import rule of the project, checked on the source text: which room may look into which.

Nothing is imported here; every module of our packages is parsed. Used by test_house.py.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx

ERRORS, UNITS, FILES = "testbed.errors", "testbed.units", "testbed.files"
CASSINI, TELEMETRY, NET = "controllers.cassini", "testbed.telemetry", "testbed.net"
NETSTORM, PLACEMENT = "controllers.netstorm", "controllers.placement"
SDN, WORKLOADS, ENGINE, REPORT = "controllers.sdn", "workloads", "testbed.engine", "testbed.report"
SCENARIO, SCENARIO_FILE, RESULTS = "testbed.scenario", "testbed.scenario_file", "testbed.results"
PART, EVENT_KEYS, EVENTS = "testbed.part", "testbed.event_keys", "testbed.events"
CAPTURE_KEYS = "testbed.capture_keys"
EVENT_CHECKS, CONTROLLER = "testbed.event_checks", "testbed.controller"
SCHEMA, JOBS = "testbed.schema", "testbed.jobs"
EXPERIMENT, FIDELITY, DECIDE = "testbed.experiment", "testbed.fidelity", "testbed.decide"
ARM, CAMPAIGN = "testbed.arm", "testbed.campaign"
PROGRAMS, GEO, GEO_ARM = "testbed.programs", "testbed.geo", "testbed.geo.arm"
CLUSTER, CLUSTER_CAMPAIGN = "testbed.cluster", "testbed.cluster_campaign"
TIMELINE, TIMELINE_CHECKS = "testbed.timeline", "testbed.timeline_checks"
PROFILING = "testbed.profiling"
FLUID, FLUID_CAMPAIGN = "testbed.fluid", "testbed.fluid.campaign"
MACHINE_CHECKS, NATIVE_CAMPAIGN = "testbed.machine_checks", "testbed.native_campaign"
STUDY, LOOPS = "testbed.study", "testbed.loops"
PROGRESS, SHOW, CLI = "testbed.progress", "testbed.show", "testbed.cli"
COMMANDS, LIVE = "testbed.commands", "testbed.live"
PLUGINS = "testbed.plugins"
PAGE = "testbed.page"
INIT = "testbed.engine.guest.init"
VERSIONS, FINGERPRINT = "testbed.versions", "testbed.fingerprint"

# Every room, and the rooms it may import from beside itself. A name stands for all modules below it.
ROOMS: dict[str, set[str]] = {
    ERRORS: set(),
    UNITS: set(),
    FILES: {ERRORS},
    CASSINI: set(),
    NETSTORM: set(),
    PLACEMENT: {CASSINI, ERRORS, FILES},
    TELEMETRY: {ERRORS},
    NET: {ERRORS, FILES, UNITS, TELEMETRY},
    SDN: {ERRORS, NET, TELEMETRY},
    WORKLOADS: {ERRORS, FILES, NETSTORM, NET, TELEMETRY},
    ENGINE: {ERRORS},
    REPORT: {ERRORS, UNITS, CASSINI, NETSTORM, PLACEMENT, "testbed.telemetry.tables"},
    PAGE: {ERRORS, UNITS, REPORT, NET, "testbed.telemetry.tables", "workloads.paramsync.records"},
    PART: set(),
    EVENT_KEYS: {PART, UNITS},
    CAPTURE_KEYS: {PART, UNITS},
    SCENARIO_FILE: {ERRORS, FILES},
    SCENARIO: {PART, EVENT_KEYS, CAPTURE_KEYS, SCENARIO_FILE, UNITS},
    SCHEMA: {PART, UNITS, SCENARIO},
    EVENTS: {ERRORS, EVENT_KEYS, NET, TELEMETRY},
    EVENT_CHECKS: {FIDELITY, EVENTS, TELEMETRY},
    CONTROLLER: {PROGRAMS, SDN},
    JOBS: {ERRORS, SCENARIO, WORKLOADS, NET},
    RESULTS: {ERRORS},
    EXPERIMENT: {ERRORS, EVENTS, SCENARIO, JOBS, SDN, WORKLOADS, NET},
    FIDELITY: {ERRORS, EVENTS, NET, TELEMETRY},
    PLUGINS: {ERRORS, PLACEMENT},
    CLUSTER: {ERRORS, PLUGINS, SCENARIO, JOBS, EXPERIMENT, DECIDE, CASSINI, PLACEMENT, WORKLOADS, TELEMETRY},
    LOOPS: {CASSINI},
    DECIDE: {LOOPS, ERRORS, EXPERIMENT, CASSINI, NETSTORM, PLACEMENT, SDN, TELEMETRY},
    TIMELINE: {ERRORS, PLUGINS, ARM, PROGRAMS, CASSINI, PLACEMENT, SDN, WORKLOADS, NET, TELEMETRY},
    ARM: {ERRORS, EVENTS, CONTROLLER, PROGRAMS, SDN, WORKLOADS, NET, TELEMETRY},
    CAMPAIGN: {LIVE, ERRORS, VERSIONS, SCENARIO, RESULTS, EXPERIMENT, EVENT_CHECKS, FIDELITY, DECIDE, REPORT, PAGE,
               ENGINE},
    TIMELINE_CHECKS: {ERRORS, FIDELITY, TELEMETRY},
    CLUSTER_CAMPAIGN: {ERRORS, PLUGINS, SCENARIO, CAMPAIGN, CLUSTER, FIDELITY, TIMELINE_CHECKS, PLACEMENT, REPORT,
                       PAGE},
    MACHINE_CHECKS: {FIDELITY, TELEMETRY},
    NATIVE_CAMPAIGN: {CAMPAIGN, ENGINE, FIDELITY, MACHINE_CHECKS},
    PROGRAMS: {ERRORS},
    FLUID: {ERRORS, FIDELITY, REPORT, TIMELINE, CASSINI, PLACEMENT, SDN, WORKLOADS, NET, TELEMETRY},
    FLUID_CAMPAIGN: {ERRORS, VERSIONS, FLUID, TIMELINE_CHECKS, FIDELITY, CAMPAIGN, CLUSTER, CLUSTER_CAMPAIGN, REPORT,
                     PAGE},
    "testbed.geo.records": {TELEMETRY},
    "testbed.geo.scheduled": {"testbed.geo.records", WORKLOADS, NET, TELEMETRY},
    GEO_ARM: {ERRORS, "testbed.geo.records", "testbed.geo.scheduled", PROGRAMS, SDN, WORKLOADS, NET, TELEMETRY},
    GEO: {ERRORS, UNITS, VERSIONS, SCENARIO_FILE, PART, CAPTURE_KEYS, RESULTS, "testbed.geo.records", NETSTORM,
          WORKLOADS, NET, TELEMETRY, ENGINE, CAMPAIGN, LIVE, REPORT, PAGE},
    PROFILING: {ERRORS, CASSINI, REPORT},
    PROGRESS: set(),
    VERSIONS: set(),
    FINGERPRINT: {ERRORS, SCENARIO, SCENARIO_FILE, LIVE, STUDY, PAGE, ENGINE},
    LIVE: {NET},
    STUDY: {FLUID_CAMPAIGN, NATIVE_CAMPAIGN, LIVE, ERRORS, SCENARIO, SCENARIO_FILE, PART, JOBS, EXPERIMENT, FIDELITY,
            CLUSTER, CAMPAIGN, CLUSTER_CAMPAIGN, GEO, PLUGINS, REPORT, PAGE, ENGINE},
    SHOW: {PROFILING, STUDY, GEO, UNITS, CAMPAIGN, CLUSTER, EXPERIMENT, FIDELITY, REPORT, ENGINE},
    CLI: {PROFILING, ERRORS, UNITS, SCENARIO, SCENARIO_FILE, SCHEMA, RESULTS, EXPERIMENT, CAMPAIGN, CLUSTER,
          CLUSTER_CAMPAIGN, STUDY, PROGRESS, SHOW, COMMANDS, REPORT, ENGINE, NET, GEO},
    COMMANDS: {VERSIONS, FINGERPRINT, PROFILING, ERRORS, UNITS, SCENARIO, SCENARIO_FILE, SCHEMA, RESULTS, EXPERIMENT,
               CAMPAIGN, CLUSTER, CLUSTER_CAMPAIGN, STUDY, PROGRESS, SHOW, REPORT, PAGE, ENGINE, NET, GEO, TELEMETRY,
               LIVE},
    "testbed.__main__": {CLI, INIT},
}  # fmt: skip
# Measures the others from outside: it may look anywhere, and nobody looks at it.
ROOMS["benchmarks"] = set(ROOMS)
# Packages that only hold rooms: their own __init__ imports nothing of ours.
HALLS = ("testbed", "controllers")

# Whose files run in the guest, where importing is slow and not everything is installed.
GUEST_PROGRAMS = (
    GEO_ARM,
    ARM,
    TIMELINE,
    "controllers.sdn.launcher",
    "controllers.sdn.learning",
    "workloads.training.agent",
    "workloads.training.spawn",
    "workloads.paramsync.spawn",
    "testbed.telemetry.sampler",
)
NOT_IN_A_GUEST = ("pydantic", "typer", "rich", "matplotlib")
FRAMEWORK, FRAMEWORKS = "controllers.sdn.framework", ("ryu", "os_ken")
COMPUTED = ("import_module", "__import__", "run_module")
# Rooms that may use nothing but the standard library, and what beside it.
ABSTINENT = {
    CASSINI: {"numpy", "networkx"},
    NETSTORM: {"numpy", "networkx", "scipy"},
    PLACEMENT: {"numpy", "networkx", "scipy", CASSINI, ERRORS, FILES},
    ERRORS: set(),
    INIT: set(),
}


@dataclass(frozen=True)
class Import:
    """One imported module, as named in `module` on `line`; `typing_only` if it is never executed."""

    module: str
    target: str
    line: int
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def modules(root: Path) -> dict[str, Path]:
    """Every module of every package in the folder `root`, tests apart."""
    packages = sorted(path.parent for path in root.glob("*/__init__.py") if path.parent.name != "tests")
    files = [file for package in packages for file in sorted(package.rglob("*.py"))]
    return {_name(file.relative_to(root)): file for file in files}


def _name(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(module: str, file: Path, known: dict[str, Path]) -> list[Import]:
    """All imports of a module, also those inside functions; of a package's names those that are modules."""
    nodes = _nodes(file.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in nodes
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module, file)
            below = [f"{base}.{alias.name}" for alias in node.names]
            targets = [name for name in below if name in known]
            if len(targets) < len(below):
                targets.append(base)
        else:
            continue
        found += [Import(module, target, node.lineno, id(node) in typing_only) for target in targets]
    return found


@cache
def _nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


def _absolute(node: ast.ImportFrom, module: str, file: Path) -> str:
    if not node.level:
        return node.module or ""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def room(module: str) -> str | None:
    """The room a module belongs to: the longest name in ROOMS that it lies below."""
    inside = [name for name in ROOMS if within(module, name)]
    return max(inside, key=len, default=None)


def within(module: str, name: str) -> bool:
    """Whether a module is `name` or lies below it."""
    return module == name or module.startswith(name + ".")


def violations(root: Path) -> list[str]:
    """Everything in the packages of `root` that breaks the rule, one line each; empty when the house stands."""
    known = modules(root)
    everything = {module: imports(module, file, known) for module, file in known.items()}
    return [
        *_homeless(known),
        *_upwards(everything),
        *_indulgent(everything),
        *_framework(known, everything),
        *_in_a_guest(everything),
        *_cycles(everything),
    ]


def _homeless(known: dict[str, Path]) -> list[str]:
    return [f"{module} belongs to no room" for module in known if room(module) is None and module not in HALLS]


def _upwards(everything: dict[str, list[Import]]) -> list[str]:
    found = []
    for module, made in everything.items():
        own = room(module)
        allowed = ROOMS[own] | {own} if own else set()
        found += [
            f"{one}, which {own or 'a hall'} may not"
            for one in made
            if one.target in everything and not any(within(one.target, name) for name in allowed)
        ]
    return found


def _indulgent(everything: dict[str, list[Import]]) -> list[str]:
    found = []
    for module, made in everything.items():
        for place, beside in ABSTINENT.items():
            if not within(module, place):
                continue
            for one in made:
                fine = one.target.partition(".")[0] in sys.stdlib_module_names
                if not fine and not any(within(one.target, name) for name in (place, *beside)):
                    found.append(f"{one}, but {place} uses the standard library{_and(beside)} alone")
    return found


def _and(beside: set[str]) -> str:
    return "".join(f" and {name}" for name in sorted(beside))


def _framework(known: dict[str, Path], everything: dict[str, list[Import]]) -> list[str]:
    """Ryu and os-ken are imported by name nowhere, and modules by a computed name in one place only."""
    found = [
        f"{one}: only {FRAMEWORK} does, and not by name"
        for made in everything.values()
        for one in made
        if one.target.partition(".")[0] in FRAMEWORKS
    ]
    for module, file in known.items():
        if module != FRAMEWORK:
            found += [
                f"{module}:{node.lineno} imports by a computed name: only {FRAMEWORK} may"
                for node in _nodes(file.read_text(encoding="utf-8"))
                if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in COMPUTED
            ]
    return found


def _in_a_guest(everything: dict[str, list[Import]]) -> list[str]:
    """Whatever the guest's programs import, through however many modules of ours."""
    found = [
        f"{program}, a program of the guest, is not there" for program in GUEST_PROGRAMS if program not in everything
    ]
    reason = {program: program for program in GUEST_PROGRAMS}
    waiting = [program for program in GUEST_PROGRAMS if program in everything]
    while waiting:
        module = waiting.pop()
        parents = [module.rsplit(".", cut)[0] for cut in range(1, module.count(".") + 1)]
        executed = [one for one in everything[module] if not one.typing_only]
        found += [
            f"{one}, which a guest must not ({reason[module]} needs it)"
            for one in executed
            if one.target.partition(".")[0] in NOT_IN_A_GUEST
        ]
        for target in [*parents, *(one.target for one in executed)]:
            if target in everything and target not in reason:
                reason[target] = reason[module]
                waiting.append(target)
    return found


def _cycles(everything: dict[str, list[Import]]) -> list[str]:
    graph = nx.DiGraph()
    for module, made in everything.items():
        graph.add_edges_from((module, one.target) for one in made if one.target in everything and not one.typing_only)
    rings = [sorted(ring) for ring in nx.strongly_connected_components(graph) if len(ring) > 1]
    rings += [[module] for module in sorted(nx.nodes_with_selfloops(graph))]
    return [f"these import each other: {', '.join(ring)}" for ring in sorted(rings)]
