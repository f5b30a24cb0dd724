"""What a scenario may say: one typed schema, every default visible here. Its file is read by testbed.scenario_file.

A scenario says *what* is emulated (fabric, transport, jobs), *how* it is tried (arms, trials, iterations, seed) and
what is written down (telemetry). Unknown keys, missing units and impossible values are errors that name the key.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from testbed import scenario_file
from testbed.capture_keys import CaptureKeys
from testbed.event_keys import Arm as Arm
from testbed.event_keys import EventKeys
from testbed.part import Name, Part
from testbed.units import Delay, Delays, Rate, Size

ClusterArm = Literal["themis", "themis+cassini", "pollux", "pollux+cassini", "random", "random+cassini", "ideal"]
OwnArm = Annotated[str, Field(pattern=r"^own-[a-z0-9][a-z0-9-]{0,30}(\+cassini)?$")]  # a scheduler of the user's
Probability = Annotated[float, Field(ge=0, le=1)]
MODEL_KEYS = ("batch", "communication", "compute_factor", "sizing", "strategy", "volume", "moe")
MOE = "moe-dispatch-combine"
TRACE_KEYS = ("trace_format", "clock_hz")
MOST_ROWS = 10_000_000
"""Iterations of all workers in one arm: a report has all of them in memory."""


class RedKeys(Part):
    """Marking at switch ports: from `min` on with a probability that rises to `probability` at `max`, then always."""

    min: Size = 80_000
    max: Size = 160_000
    probability: Probability = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> RedKeys:
        if self.min < 1:
            raise ValueError("min must be at least 1 B")
        if self.min > self.max:
            raise ValueError("min must not be above max (equal values make a step)")
        return self


class FabricKeys(Part):
    """The network, unscaled; `scale` divides rates and bytes and multiplies delays (see testbed.net.scale).

    `topology` is a fabric by name, or a TOML file beside the scenario (testbed.net.fabric_file).
    """

    topology: str = "cassini-48"
    rate: Rate = 50 * 10**9
    host_rate: Rate | None = None
    scale: Annotated[float, Field(ge=1, le=1000)] = 1.0
    host_delay: Delay = 2e-6
    fabric_delay: Delay = 0.0
    loss: Annotated[float, Field(ge=0, lt=1)] = 0.0
    queue: Size = 16_000_000
    mtu_bytes: Annotated[int, Field(ge=1280, le=9000)] = 9000
    red: RedKeys = RedKeys()

    @model_validator(mode="after")
    def _possible(self) -> FabricKeys:
        fastest = max(self.rate, self.host_rate or 0)
        if fastest > 100 * 10**9:
            raise ValueError("rates above 100 Gbit/s are not supported")
        if min(self.rate, self.host_rate or self.rate) / self.scale < 10**5:
            raise ValueError("the scaled rate falls below 100 kbit/s: use a smaller scale")
        if self.queue < 2 * (self.mtu_bytes + 14):
            raise ValueError("queue must hold at least two packets")
        if self.queue >= 2**31:
            raise ValueError("queue must be below 2 GiB, the most that the kernel counts")
        if max(self.host_delay, self.fabric_delay) * self.scale >= 3600:
            raise ValueError("a delay must be below an hour once multiplied by the scale")
        if self.red.max > self.queue:
            raise ValueError("red.max must not be above queue, or packets are dropped before they are marked")
        return self


class TransportKeys(Part):
    """What the jobs' sockets use. DCTCP stands in for DCQCN, deep queues for PFC (docs/limits.md).

    With `quick_ack` every packet is acknowledged at once, as RDMA's are; TCP would wait up to 40 ms for a second one,
    and a window of a packet or two stands still meanwhile.
    """

    congestion_control: Literal["dctcp", "cubic", "reno", "bbr"] = "dctcp"
    ecn: bool = True
    rto_min: Delay = 4e-3
    quick_ack: bool = True
    socket_buffer: Annotated[Size, Field(ge=4096, lt=2**31)] = 16_000_000

    @model_validator(mode="after")
    def _dctcp_needs_ecn(self) -> TransportKeys:
        if self.congestion_control == "dctcp" and not self.ecn:
            raise ValueError("dctcp needs ecn = true: without it the connection falls back to Reno")
        return self


class MoeKeys(Part):
    """The workload moe-dispatch-combine (workloads.strategies.experts); unless given, as DeepSeek-V3's layers are.

    The last `expert_workers` of the job's workers (half of them, if not given) have the `experts`, the others compute
    attention for `tokens` each; `attention` and `expert` are the compute of one layer for all of them, assumptions.
    """

    experts: Annotated[int, Field(ge=1, le=100_000)] = 256
    top: Annotated[int, Field(ge=1, le=1000)] = 8
    tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 128
    hidden: Annotated[int, Field(ge=1, le=1_000_000)] = 7168
    layers: Annotated[int, Field(ge=1, le=1000)] = 58
    attention: Delay = 400e-6
    expert: Delay = 300e-6
    expert_workers: Annotated[int, Field(ge=1, le=4096)] | None = None
    microbatches: Annotated[int, Field(ge=1, le=64)] = 1


class JobKeys(Part):
    """One training job: a model of ours, or a trace (a Chakra execution trace, a text workload of ASTRA-sim or AICB).

    `workers` names the hosts in rank order, or says how many there are: they are then the next free hosts, each in
    another rack than the one before. `batch` (samples per worker), `communication` (how long Up lasts on an empty
    network), `compute_factor` (times the compute of the rule), `sizing`, `strategy` and `volume` are of models
    (workloads.models.job_plan), `trace_format` (told by the file's contents if not given) and `clock_hz` (units of time
    in a second) of traces.

    Each for all workers, or one for each in a list: `jitter` is the relative standard deviation of its compute per
    iteration, `slow` a factor on all its compute, `late` how much later than the job it first starts.

    A job does `iterations_factor` times measure.iterations (rounded up), so that one of short iterations is there as
    long as the others.
    """

    name: Name
    workers: Annotated[int, Field(ge=2, le=4096)] | Annotated[tuple[str, ...], Field(min_length=2)]
    model: str | None = None
    trace: str | None = None
    batch: Annotated[int, Field(ge=1)] | None = None
    communication: Delay | None = None
    compute_factor: Annotated[float, Field(gt=0, le=1000)] = 1.0
    sizing: Literal["published-up", "parameters"] | None = None
    strategy: str | None = None
    moe: MoeKeys = MoeKeys()
    volume: Literal["published", "architecture"] = "published"
    trace_format: Literal["chakra", "astra-sim", "aicb"] | None = None
    clock_hz: Annotated[float, Field(gt=0, le=1e15)] | None = None
    jitter: Annotated[float, Field(ge=0, le=0.33)] | tuple[Annotated[float, Field(ge=0, le=0.33)], ...] = 0.0
    slow: Annotated[float, Field(gt=0, le=1000)] | tuple[Annotated[float, Field(gt=0, le=1000)], ...] = 1.0
    late: Delays = 0.0
    iterations_factor: Annotated[float, Field(gt=0, le=1000)] = 1.0

    @model_validator(mode="after")
    def _one_source(self) -> JobKeys:
        if (self.model is None) == (self.trace is None):
            raise ValueError("give either model or trace")
        foreign = TRACE_KEYS if self.model is not None else MODEL_KEYS
        given = [key for key in foreign if getattr(self, key) != type(self).model_fields[key].default]
        if given:
            raise ValueError(f"{given[0]} is a key of {'traces' if foreign is TRACE_KEYS else 'models'}")
        alien = [key for key in MODEL_KEYS if (key == "moe") != (self.model == MOE) and key != "compute_factor"]
        given = [key for key in alien if getattr(self, key) != type(self).model_fields[key].default]
        if self.model is not None and given:
            raise ValueError(f"{given[0]} is no key of {self.model}")
        return self

    @property
    def worker_count(self) -> int:
        """How many workers it has."""
        return self.workers if isinstance(self.workers, int) else len(self.workers)

    @property
    def named_hosts(self) -> tuple[str, ...]:
        """The hosts that `workers` names, none where it is a number."""
        return () if isinstance(self.workers, int) else self.workers


class KindKeys(JobKeys):
    """A kind of jobs that come and go: keys as of [[job]], but `workers` is a number and hosts are the scheduler's.

    Jobs drawn by seed ask for `workers` to `most_workers`; a scheduler that gives fewer or more may give `sizes`.
    `iterations` are in full length, from and to. `count` of a kind are there in a snapshot; in a dynamic trace those
    of kinds that arrive do so later.
    """

    workers: Annotated[int, Field(ge=2, le=4096)]
    most_workers: Annotated[int, Field(ge=2, le=4096)] | None = None
    sizes: tuple[Annotated[int, Field(ge=2, le=4096)], ...] = ()
    iterations: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = (200, 1000)
    count: Annotated[int, Field(ge=1, le=63)] = 1
    arrives: bool = False

    @model_validator(mode="after")
    def _ranges(self) -> KindKeys:
        if self.iterations[0] > self.iterations[1] or self.workers > (self.most_workers or self.workers):
            raise ValueError("ranges go from the lower to the higher number")
        if self.iterations_factor != 1:
            raise ValueError("iterations_factor is for jobs with places of their own; give iterations")
        return self


class ClusterKeys(Part):
    """Jobs that come and go on the fabric's hosts, scheduled live. All lengths are in full and divided by `shortened`.

    `arrivals` is poisson, dynamic, snapshot, or a CSV file (columns: controllers.placement.arrivals) beside the
    scenario whose models are names of kinds. Poisson: `jobs` of them at `load`. Dynamic: kinds that arrive do so at
    `at`. `epoch` is between two rounds of scheduling, `restart` how long a job that is moved stands still. `noise` is
    Pollux's gradient noise scale in batches as asked for. `skipping` and `window` are of the fluid engine: whether it
    plays everything, leaves out what is proven to repeat, or also lets `window` iterations stand for others.
    An arm `own-NAME` has the scheduler of that name out of the file given with --plugin.
    """

    kind: Annotated[tuple[KindKeys, ...], Field(min_length=1, max_length=16)]
    arrivals: str = "poisson"
    load: Annotated[float, Field(gt=0, le=4)] = 0.9
    jobs: Annotated[int, Field(ge=1, le=1000)] = 10
    at: Delay = 60.0
    shortened: Annotated[float, Field(ge=1, le=10_000)] = 1.0
    epoch: Delay = 600.0
    lease: Delay | None = None
    restart: Delay = 30.0
    on_change: bool = True
    accelerators: Annotated[int, Field(ge=1, le=16)] = 1
    arms: Annotated[tuple[ClusterArm | OwnArm, ...], Field(min_length=1)] = ("themis", "themis+cassini", "ideal")
    seeds: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1, max_length=100)] = (1,)
    candidates: Annotated[int, Field(ge=1, le=100)] = 10
    aggregate: Literal["mean", "tail"] = "mean"
    noise: Annotated[float, Field(ge=0)] = 10.0
    profile_iterations: Annotated[int, Field(ge=3, le=1000)] = 6
    watch_interval: Delay = 0.05
    skipping: Literal["none", "periodic", "sampled"] = "sampled"
    window: Annotated[int, Field(ge=4, le=10_000)] = 24

    @model_validator(mode="after")
    def _possible(self) -> ClusterKeys:
        names = [kind.name for kind in self.kind]
        if len(set(names)) != len(names):
            raise ValueError("two kinds have the same name")
        if len(set(self.arms)) != len(self.arms) or len(set(self.seeds)) != len(self.seeds):
            raise ValueError("arms or seeds list one twice")
        if min(self.epoch, self.lease or self.epoch, self.at, self.watch_interval) <= 0:
            raise ValueError("epoch, lease, at and watch_interval must be longer than 0 s")
        if self.arrivals == "dynamic" and len({kind.arrives for kind in self.kind}) == 1:
            raise ValueError("a dynamic trace needs kinds that are there, and kinds with arrives = true")
        return self


class TrialKeys(Part):
    """How many trials each arm has. A trial is one start of all jobs; arms are compared over trials."""

    alone: Annotated[int, Field(ge=1, le=1000)] = 1
    together: Annotated[int, Field(ge=1, le=1000)] = 3
    random: Annotated[int, Field(ge=1, le=1000)] = 5
    priority: Annotated[int, Field(ge=1, le=1000)] = 5
    cassini: Annotated[int, Field(ge=1, le=1000)] = 3
    refined: Annotated[int, Field(ge=1, le=1000)] = 3


class MeasureKeys(Part):
    """How it is tried. `alone` measures the profiles that `cassini` decides from, so it always runs first.

    `refined` moves the time-shifts by what links marked in `cassini`, and runs after it.

    With `hold` the workers of both begin no iteration before its tick on the circle, and wait for the next one when
    they are later than `tolerance` of an iteration; "always" tells so also those that cannot keep it. `loops` in the
    affinity graph are decided jointly, or broken and decided along a tree (testbed.loops).
    """

    arms: Annotated[tuple[Arm, ...], Field(min_length=1)] = ("alone", "together", "random", "cassini")
    iterations: Annotated[int, Field(ge=2, le=100_000)] = 30
    trials: TrialKeys = TrialKeys()
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1
    precision_deg: Annotated[float, Field(ge=0.5, le=180)] = 5.0
    hold: bool | Literal["always"] = True
    loops: Literal["joint", "tree"] = "joint"
    tolerance: Annotated[float, Field(ge=0, le=0.5)] = 0.05

    @model_validator(mode="after")
    def _profiles_first(self) -> MeasureKeys:
        if "cassini" in self.arms and "alone" not in self.arms:
            raise ValueError("the arm cassini needs the arm alone: its decision is made from measured profiles")
        if "refined" in self.arms and not ("cassini" in self.arms and self.hold):
            raise ValueError("the arm refined needs the arm cassini and hold: its shifts are from the marks left there")
        if len(set(self.arms)) != len(self.arms):
            raise ValueError("arms lists an arm twice")
        return self


class TelemetryKeys(Part):
    """How often things are read, in virtual time, and which ports: of links that jobs share, or every worker's.

    With `watch = "workers"` a run measures what every worker sends, job by job alone: profiles and traffic pictures.
    """

    controller_interval: Delay = 0.1
    queue_interval: Delay = 5e-3
    watch: Literal["shared", "workers"] = "shared"
    capture: CaptureKeys = CaptureKeys()

    @model_validator(mode="after")
    def _possible(self) -> TelemetryKeys:
        if self.controller_interval < 1e-3:
            raise ValueError("controller_interval must be at least 1 ms")
        if self.queue_interval < 1e-4:
            raise ValueError("queue_interval must be at least 100 us")
        return self


class RequireKeys(Part):
    """What must hold for the scenario to make sense; it is refused, or its run not valid, where it does not."""

    shared_links: bool = True
    drops: bool = False


class Scenario(Part):
    """A whole experiment, validated. `load` reads one from a file.

    `engine` is a guest in virtual time, packet by packet, the same at flow level (docs/fluid.md), or packets on the
    machine's own kernel in real time (docs/native.md).
    """

    name: Name
    title: str
    engine: Literal["virtual", "fluid", "native"] = "virtual"
    fabric: FabricKeys = FabricKeys()
    transport: TransportKeys = TransportKeys()
    job: Annotated[tuple[JobKeys, ...], Field(max_length=32)] = ()
    cluster: ClusterKeys | None = None
    event: Annotated[tuple[EventKeys, ...], Field(max_length=1000)] = ()
    measure: MeasureKeys = MeasureKeys()
    telemetry: TelemetryKeys = TelemetryKeys()
    require: RequireKeys = RequireKeys()

    @model_validator(mode="after")
    def _together_possible(self) -> Scenario:
        if not 1e-3 <= self.transport.rto_min * self.fabric.scale <= 120:
            raise ValueError("transport.rto_min must be 1 ms to 120 s once multiplied by the scale")
        if self.cluster is not None and self.engine == "native":
            raise ValueError("the native engine runs [[job]]s: a [cluster] would take hours of real time")
        if bool(self.job) == (self.cluster is not None):
            raise ValueError("give [[job]] for jobs with places of their own, or [cluster] for jobs that are scheduled")
        if self.event and self.engine == "fluid":
            raise ValueError("[[event]] needs packets: the fluid engine knows nothing of them")
        if self.fabric.loss and self.engine == "fluid":
            raise ValueError("fabric.loss needs packets: the fluid engine loses none")
        if self.event and not self.job:
            raise ValueError("[[event]] is for [[job]]s: jobs of a [cluster] are not followed through events")
        names = [job.name for job in self.job]
        if len(set(names)) != len(names):
            raise ValueError("two jobs have the same name")
        if self.telemetry.watch == "workers" and (self.measure.arms != ("alone",) or not self.job):
            raise ValueError('telemetry.watch = "workers" measures jobs one by one: give [[job]] and arms = ["alone"]')
        hosts = [host for job in self.job for host in job.named_hosts]
        twice = sorted({host for host in hosts if hosts.count(host) > 1})
        if twice:
            raise ValueError(f"host {', '.join(twice)} is given to two workers; a host has one accelerator")
        rows = self.measure.iterations * sum(job.worker_count * job.iterations_factor for job in self.job)
        if rows * max(getattr(self.measure.trials, arm) for arm in self.measure.arms) > MOST_ROWS:
            raise ValueError(f"workers times iterations times trials is at most {MOST_ROWS}: a report holds them all")
        return self


def load(name_or_path: str, settings: tuple[str, ...] = ()) -> Scenario:
    """Read and validate a scenario; `settings` are overrides such as "fabric.scale=10" with TOML values.

    Raises InputError that names the file, the key and what would be right.
    """
    path = scenario_file.find(name_or_path)
    raw = scenario_file.read(path, settings)
    raw.pop("study", None)  # how a scenario is varied (testbed.study), no part of any one run
    return scenario_file.validated(Scenario, raw, path)
