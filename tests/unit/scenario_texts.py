"""A small scenario that is fine, and everything that may be wrong with one. Used by the tests that read scenarios."""

from __future__ import annotations

from dataclasses import dataclass

FINE = """\
name = "tiny"
title = "Two short jobs on a dumbbell"

[fabric]
topology = "dumbbell"
rate = "50 Gbit/s"
scale = 200

[[job]]
name = "first"
model = "vgg16"
workers = ["h1", "h3"]

[[job]]
name = "second"
model = "vgg16"
workers = ["h2", "h4"]

[measure]
arms = ["alone", "together", "cassini"]
iterations = 8
"""


CLUSTER = """\
name = "coming"
title = "Jobs that come and go"

[[cluster.kind]]
name = "vgg"
model = "vgg16"
workers = 2
most_workers = 4
"""


@dataclass(frozen=True)
class Bad:
    """A scenario's text with `old` replaced by `new`, and what the message must name: the key, and the mend."""

    old: str
    new: str
    key: str
    mend: str

    @property
    def text(self) -> str:
        """The whole bad scenario."""
        assert FINE.count(self.old) == 1, self.old
        return FINE.replace(self.old, self.new)


def _more(lines: str, key: str, mend: str) -> Bad:
    """Lines at the end, below [measure], unless they begin a table of their own."""
    return Bad("iterations = 8\n", f"iterations = 8\n{lines}\n", key, mend)


def _job(lines: str, key: str, mend: str) -> Bad:
    """Lines more for the second job."""
    return Bad('workers = ["h2", "h4"]', f'workers = ["h2", "h4"]\n{lines}', key, mend)


ALL_KEYS = "list --keys"
BAD = {
    # keys
    "unknown key": _more("iteratoins = 3", "measure.iteratoins: unknown key", ALL_KEYS),
    "unknown table": _more("[fabrics]\nscale = 3", "fabrics: unknown key", ALL_KEYS),
    "unknown key of a job": Bad('["h2", "h4"]', '["h2", "h4"]\nranks = 2', "job.1.ranks: unknown key", ALL_KEYS),
    "no name": Bad('name = "tiny"\n', "", "name: Field required", ALL_KEYS),
    "no job": Bad(
        FINE[FINE.index("[[job]]") : FINE.index("[measure]")], "", "give [[job]]", ALL_KEYS
    ),
    "a job without workers": Bad('workers = ["h2", "h4"]', "", "job.1.workers: Field required", ALL_KEYS),
    "a trace with a batch": Bad(
        'model = "vgg16"\nworkers = ["h2", "h4"]', 'trace = "x.et"\nbatch = 8\nworkers = ["h2", "h4"]',
        "job.1: batch is a key of models", ALL_KEYS,
    ),
    "a model with a clock": Bad(
        '["h2", "h4"]', '["h2", "h4"]\nclock_hz = 1e9', "job.1: clock_hz is a key of traces", ALL_KEYS
    ),
    "communication without a unit": Bad('["h2", "h4"]', '["h2", "h4"]\ncommunication = 0.1', "communication: ", "2 us"),
    "no compute at all": Bad('["h2", "h4"]', '["h2", "h4"]\ncompute_factor = 0', "job.1.compute_factor: ", "than 0"),
    "compute that may be none at all": Bad('["h2", "h4"]', '["h2", "h4"]\njitter = 0.5', "job.1.jitter", "to 0.33"),
    "slow by no factor": Bad('["h2", "h4"]', '["h2", "h4"]\nslow = [1, 0]', "job.1.slow", "than 0"),
    "late without a unit": Bad('["h2", "h4"]', '["h2", "h4"]\nlate = [1, 2]', "job.1.late: ", "2 us"),
    "slow for a worker too many": Bad(
        '["h2", "h4"]', '["h2", "h4"]\nslow = [1, 2, 3]', "job.second.slow: 3 values for 2 workers", "one for each"
    ),
    "drift beyond half an iteration": _more("tolerance = 0.6", "measure.tolerance: ", "or equal to 0.5"),
    "several faults at once": _more("seed = -1\nprecision_deg = 0", "measure.precision_deg: ", "2 faults"),
    # types and units
    "a rate without unit": Bad('"50 Gbit/s"', "50", "fabric.rate: ", '"50 Gbit/s"'),
    "a rate in bytes": Bad('"50 Gbit/s"', '"50 GB"', "fabric.rate: '50 GB' is not one of the units", "bit/s, kbit/s"),
    "a size in bits": _more('[fabric.red]\nmin = "80 kbit"', "fabric.red.min: '80 kbit' is not", "KiB"),
    "a delay in hertz": _more('[telemetry]\nqueue_interval = "5 Hz"', "telemetry.queue_interval: '5 Hz'", "ns, us"),
    "a negative rate": Bad('"50 Gbit/s"', '"-50 Gbit/s"', "fabric.rate: '-50 Gbit/s' is negative", '"50 Gbit/s"'),
    "a negative delay": Bad("scale = 200", 'scale = 200\nhost_delay = "-2 us"', "fabric.host_delay: ", "negative"),
    "a negative interval": _more('[telemetry]\nqueue_interval = "-1 s"', "telemetry.queue_interval", "negative"),
    "a number for a name": Bad('"tiny"', "7", "name: ", "string"),
    "a name that leaves the folder": Bad('"tiny"', '"../tiny"', "name: ", "pattern"),
    "a name that hides": Bad('"tiny"', '".tiny"', "name: ", "pattern"),
    "text for a number": Bad("scale = 200", 'scale = "a lot"', "fabric.scale: ", "number"),
    # ranges
    "negative iterations": Bad("iterations = 8", "iterations = -8", "measure.iterations: ", "or equal to 2"),
    "no iterations": Bad("iterations = 8", "iterations = 0", "measure.iterations: ", "or equal to 2"),
    "negative seed": _more("seed = -1", "measure.seed: ", "greater than or equal to 0"),
    "no trials": _more("trials = { together = 0 }", "measure.trials.together: ", "greater than or equal to 1"),
    "magnified": Bad("scale = 200", "scale = 0.5", "fabric.scale: ", "greater than or equal to 1"),
    "an infinite scale": Bad("scale = 200", "scale = inf", "fabric.scale: ", "less than or equal to 1000"),
    "no scale at all": Bad("scale = 200", "scale = nan", "fabric.scale: ", "less than or equal to 1000"),
    "too fast": Bad('"50 Gbit/s"', '"101 Gbit/s"', "fabric: ", "100 Gbit/s"),
    "a fast host": Bad("scale = 200", 'scale = 200\nhost_rate = "1000 Gbit/s"', "fabric: ", "100 Gbit/s"),
    "too slow once scaled": Bad('"50 Gbit/s"', '"10 Mbit/s"', "fabric: the scaled rate", "smaller scale"),
    "everything lost": Bad("scale = 200", "scale = 200\nloss = 1.0", "fabric.loss: ", "less than 1"),
    "a packet larger than any": Bad("scale = 200", "scale = 200\nmtu_bytes = 9001", "fabric.mtu_bytes: ", "9000"),
    "no room in the queue": Bad("scale = 200", 'scale = 200\nqueue = "9 kB"', "fabric: queue", "two packets"),
    "room beyond the kernel's": Bad("scale = 200", 'scale = 200\nqueue = "3 GB"', "fabric: queue", "below 2 GiB"),
    "thresholds the wrong way": _more('[fabric.red]\nmin = "161 kB"', "fabric.red: min", "above max"),
    "marks from nothing on": _more('[fabric.red]\nmin = "0 B"', "fabric.red: min", "at least 1 B"),
    "marks above the queue": Bad("scale = 200", 'scale = 200\nqueue = "100 kB"', "fabric: red.max", "above queue"),
    "an unlikely probability": _more("[fabric.red]\nprobability = 1.5", "fabric.red.probability: ", "equal to 1"),
    "a delay of weeks": Bad("scale = 200", 'scale = 200\nfabric_delay = "20 s"', "fabric: a delay", "below an hour"),
    "queues watched too often": _more('[telemetry]\nqueue_interval = "1 us"', "telemetry: queue_interval", "100 us"),
    "asked too often": _more('[telemetry]\ncontroller_interval = "1 us"', "telemetry: controller_interval", "1 ms"),
    "capture of nothing": _more("[telemetry.capture]\nsnap_bytes = 1", "telemetry.capture.snap_bytes: ", "to 64"),
    "workers watched in all arms": _more('[telemetry]\nwatch = "workers"', 'telemetry.watch = "workers"', '["alone"]'),
    # the transport
    "a transport nobody has": _more(
        '[transport]\ncongestion_control = "hpcc"', "transport.congestion_control: ", "'dctcp', 'cubic'"
    ),
    "dctcp without ecn": _more("[transport]\necn = false", "transport: dctcp needs ecn = true", "Reno"),
    "no socket buffer": _more('[transport]\nsocket_buffer = "1 B"', "transport.socket_buffer: ", "4096"),
    "retransmits at once": _more('[transport]\nrto_min = "1 us"', "transport.rto_min", "1 ms to 120 s"),
    # arms
    "an arm nobody knows": Bad('"together"', '"themis"', "measure.arms.1: ", "'cassini'"),
    "no arm": Bad('["alone", "together", "cassini"]', "[]", "measure.arms: ", "at least 1"),
    "cassini without alone": Bad('"alone", ', "", "measure: the arm cassini needs the arm alone", "profiles"),
    "an arm twice": Bad('"together"', '"alone"', "measure: arms", "twice"),
    # jobs and places
    "a fabric nobody knows": Bad('"dumbbell"', '"ring"', "fabric.topology: there is no fabric 'ring'", "leaf-spine(n"),
    "a fabric beyond all addresses": Bad(
        '"dumbbell"', '"leaf-spine(100, 2, 100)"', "fabric.topology: 10000 nodes", "at most 8000"
    ),
    "a host that is not there": Bad('"h4"]', '"h9"]', "job.second.workers: dumbbell has no host 'h9'", "h1 to h4"),
    "a switch as a host": Bad('"h4"]', '"s1"]', "job.second.workers: dumbbell has no host 's1'", "h1 to h4"),
    "larger than the fabric": Bad(
        'workers = ["h2", "h4"]', "workers = 3", "job.second.workers: 3 workers, but only 2 of 4", "larger topology"
    ),
    "much larger": Bad('workers = ["h2", "h4"]', "workers = 5000", "job.1.workers", "4096"),
    "a worker alone": Bad('workers = ["h2", "h4"]', "workers = 1", "job.1.workers", "equal to 2"),
    "a host alone": Bad('["h2", "h4"]', '["h2"]', "job.1.workers", "at least 2"),
    "two jobs on one host": Bad('["h2", "h4"]', '["h2", "h3"]', "host h3 is given to two workers", "one accelerator"),
    "one host twice": Bad('["h2", "h4"]', '["h2", "h2"]', "host h2 is given to two workers", "one accelerator"),
    "two jobs of one name": Bad('"second"', '"first"', "two jobs have the same name", ALL_KEYS),
    "a name with a comma": Bad('"second"', '"a,b"', "job.1.name: ", "pattern"),
    "a model nobody knows": Bad(
        'model = "vgg16"\nworkers = ["h2"', 'model = "vgg61"\nworkers = ["h2"', "job second, model: 'vgg61'", "vgg16"
    ),
    "no model": Bad('model = "vgg16"\nworkers = ["h2"', 'workers = ["h2"', "job.1: give either", "trace"),
    "model and trace": Bad('workers = ["h2"', 'trace = "x.et"\nworkers = ["h2"', "job.1: give either", "trace"),
    "a batch beyond the paper's": _job(
        'batch = 3000\nsizing = "parameters"', "job second, model vgg16, batch: 3000", "512 to 1800"
    ),
    "a batch with a size of its own": _job(
        'batch = 1400\nsizing = "published-up"', "job second, sizing: published-up", '"parameters"'
    ),
    "a sizing nobody knows": _job('sizing = "any"', "job.1.sizing: ", "'parameters'"),
    "a factor without a batch": _job(
        'compute_factor = 0.8\nsizing = "parameters"', "job second, compute_factor: 0.8", "give a batch"
    ),
    "a volume nobody knows": _job('volume = "large"', "job.1.volume: ", "'architecture'"),
    "a format of traces nobody knows": Bad(
        'model = "vgg16"\nworkers = ["h2"', 'trace = "x.et"\ntrace_format = "kineto"\nworkers = ["h2"',
        "job.1.trace_format: ", "'astra-sim'",
    ),
    "a trace that is not there": Bad(
        'model = "vgg16"\nworkers = ["h2"', 'trace = "x"\nworkers = ["h2"', "trace: x is not there", "ORRERY_TRACES"
    ),
    "nothing shared": Bad(
        '"dumbbell"', '"leaf-spine(4, 1, 1)"', "the jobs share no directed link", "require.shared_links = false"
    ),
    "capture of a link that is not there": _more(
        '[telemetry.capture]\nlinks = ["s1->s3"]', "telemetry.capture.links: there is no link 's1->s3'", "tor1->agg1"
    ),
    "capture of a cable without direction": _more(
        '[telemetry.capture]\nlinks = ["s1-s2"]', "telemetry.capture.links: there is no link 's1-s2'", "tor1->agg1"
    ),
}  # fmt: skip

NOT_TOML: dict[str, bytes] = {
    "binary": bytes(range(256)) * 8,
    "an executable": b"\x7fELF\x02\x01\x01" + bytes(64),
    "UTF-16": FINE.encode("utf-16"),
    "Latin-1": 'title = "für"\n'.encode("latin-1"),
    "JSON": b'{"name": "tiny"}',
    "cut short": FINE.encode()[:-30] + b'[["',
    "a key twice": FINE.encode() + b"iterations = 9\n",
}
