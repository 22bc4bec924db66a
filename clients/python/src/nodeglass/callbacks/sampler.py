"""Reads GPUs in a thread beside the training."""

import logging
import os
import statistics
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence

from .. import models
from .._visible import visible
from ..client import Client
from ..errors import NodeglassError
from ..units import MiB

log = logging.getLogger("nodeglass")

REQUEST_TIMEOUT_S = 5.0
"""Limit of each request to the relay."""
RETRY_S = 60.0
"""Delay before the relay is asked again after a failure."""
MIN_INTERVAL_S = 1.0
"""Smallest interval of samples; the relay does not take them more often."""
MAX_SAMPLES = 10_000
"""Maximum number of samples until `summary`; further ones replace the last."""

Stats = Dict[str, float]
Choice = Callable[[Client], List[models.Gpu]]


class Metrics:
    """Which readings are logged, with nvitop's names where they are the same."""

    def __init__(
        self, memory_utilization: bool, gpu_utilization: bool, fan_speed: bool, temperature: bool, power: bool
    ) -> None:
        chosen = []
        if memory_utilization:
            chosen += [("utilization.memory (%)", "mem_util_pct", 1), ("memory.used (MiB)", "mem_used_bytes", MiB)]
        if gpu_utilization:
            chosen.append(("utilization.gpu (%)", "util_pct", 1))
        if fan_speed:
            chosen.append(("fan.speed (%)", "fan_pct", 1))
        if temperature:
            chosen.append(("temperature.gpu (C)", "temp_c", 1))
        if power:
            chosen.append(("power.draw (W)", "power_w", 1))
        self._chosen = chosen

    def of(self, gpu: models.Gpu) -> Stats:
        """The readings of a GPU that are known: a missing one is left out, never 0."""
        found = {}
        for name, metric, unit in self._chosen:
            value = getattr(gpu.readings, metric)
            if value is not None and gpu.connection in ("live", "late"):
                found[name] = value / unit
        return found

    def each(self, gpus: Sequence[models.Gpu]) -> Stats:
        """The readings of each GPU, numbered in the order of CUDA."""
        return {
            f"gpu_id: {index}/{name}": value for index, gpu in enumerate(gpus) for name, value in self.of(gpu).items()
        }

    def over(self, gpus: Sequence[models.Gpu]) -> Stats:
        """Minimum, mean and maximum over many GPUs."""
        values: Dict[str, List[float]] = {}
        for gpu in gpus:
            for name, value in self.of(gpu).items():
                values.setdefault(name, []).append(value)
        stats: Stats = {}
        for name, known in values.items():
            stats.update(
                {f"job/{name}/min": min(known), f"job/{name}/mean": statistics.fmean(known), f"job/{name}/max": max(known)}
            )
        return stats


class Sampler:
    """Takes samples from `start` to `stop` in a daemon thread. No method of it waits for the relay or raises."""

    def __init__(self, metrics: Metrics, scope: str, interval: float, client: Optional[Client]) -> None:
        if scope not in ("rank", "job"):
            raise ValueError(f"the scope must be rank or job, not {scope!r}")
        self._metrics = metrics
        self._scope = scope
        self._interval = max(interval, MIN_INTERVAL_S)
        self._client = client
        self._lock = threading.Lock()
        self._stop: Optional[threading.Event] = None
        self._latest: Optional[Stats] = None
        self._samples: List[Stats] = []
        self._has_warned = False

    def __getstate__(self) -> Dict[str, Any]:
        """Without its thread and locks, so that a trainer may pickle or copy its callbacks."""
        kept = ("_metrics", "_scope", "_interval")
        return {name: value for name, value in self.__dict__.items() if name in kept}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(state["_metrics"], state["_scope"], state["_interval"], None)  # type: ignore[misc]

    def start(self) -> None:
        """Begins to take samples; does nothing if it has begun."""
        if self._stop is None:
            self._stop = threading.Event()
            threading.Thread(target=self._run, args=(self._stop,), name="nodeglass-sampler", daemon=True).start()

    def stop(self) -> None:
        """Ends it; does not wait for a request under way."""
        if self._stop is not None:
            self._stop.set()
            self._stop = None

    def take(self) -> Optional[Stats]:
        """The newest sample, once; `None` if there is no new one."""
        with self._lock:
            latest, self._latest = self._latest, None
        return latest

    def summary(self) -> Stats:
        """The mean of each reading since the last call; empty if there was none."""
        with self._lock:
            samples, self._samples = self._samples, []
        values: Dict[str, List[float]] = {}
        for sample in samples:
            for name, value in sample.items():
                values.setdefault(name, []).append(value)
        return {name: statistics.fmean(known) for name, known in values.items()}

    def _run(self, stop: threading.Event) -> None:
        client, delay = self._client, 0.0
        while not stop.wait(delay):
            try:
                client = client or Client(timeout=REQUEST_TIMEOUT_S)
                stats = self._read(client)
                delay = self._interval
            except Exception as error:
                # After the end of the training, nothing is missing.
                if stop.is_set():
                    return
                # Whatever it is, the training goes on.
                self._warn(error)
                delay = RETRY_S
                continue
            if stop.is_set():
                return
            with self._lock:
                self._latest = stats
                del self._samples[MAX_SAMPLES - 1 :]
                self._samples.append(stats)

    def _read(self, client: Client) -> Stats:
        if self._scope == "rank":
            return self._metrics.each(visible(client, os.environ))
        job = os.environ.get("SLURM_JOB_ID", "")
        if not job.isdigit():
            raise NodeglassError("this process belongs to no SLURM job, so the readings of its GPUs are not known")
        return self._metrics.over(client.gpus(job=int(job)))

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning("the readings of the GPUs are not logged for now; the training goes on: %s", error)
