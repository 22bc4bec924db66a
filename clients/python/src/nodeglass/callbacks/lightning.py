"""Logs the readings of GPUs with the loggers of PyTorch Lightning."""

import time
from typing import TYPE_CHECKING, Any, Optional

from ..client import Client
from ..notes import note
from .sampler import Metrics, Sampler, Stats

if TYPE_CHECKING:

    class Callback:
        """Lightning is not installed where the types are checked."""

else:
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback


class GpuStatsLogger(Callback):
    """Logs GPU readings at the ends of steps, at most once per `interval` in seconds.

    With `scope="rank"` (as in nvitop's callback of this name) these are the GPUs that this process sees, as
    `gpu_id: 0/utilization.gpu (%)`; with `scope="job"` minimum, mean and maximum over all GPUs of the SLURM job, as
    `job/utilization.gpu (%)/mean`. The first process of a training does it, since Lightning's loggers write only there.

    `epoch_notes=True` notes the end of each epoch in the graphs and the report of the job.
    """

    def __init__(
        self,
        memory_utilization: bool = True,
        gpu_utilization: bool = True,
        intra_step_time: bool = False,
        inter_step_time: bool = False,
        fan_speed: bool = False,
        temperature: bool = False,
        *,
        power: bool = False,
        scope: str = "rank",
        interval: float = 10.0,
        epoch_notes: bool = False,
        client: Optional[Client] = None,
    ) -> None:
        super().__init__()
        metrics = Metrics(memory_utilization, gpu_utilization, fan_speed, temperature, power)
        self._sampler = Sampler(metrics, scope, interval, client)
        self._intra_step_time = intra_step_time
        self._inter_step_time = inter_step_time
        self._epoch_notes = epoch_notes
        self._began: Optional[float] = None
        self._ended: Optional[float] = None
        self._between_ms: Optional[float] = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Begins to take samples."""
        if trainer.is_global_zero and trainer.loggers:
            self._sampler.start()

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Time between epochs is not time between steps."""
        self._ended = self._between_ms = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        """Measures the time since the last step."""
        self._began = time.monotonic()
        self._between_ms = None if self._ended is None else 1000.0 * (self._began - self._ended)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        """Logs a sample, if there is a new one."""
        self._ended = time.monotonic()
        stats = self._sampler.take()
        if stats is None:
            return
        stats.update(self._times(self._ended))
        for logger in trainer.loggers:
            logger.log_metrics(stats, step=trainer.global_step)

    def _times(self, now: float) -> Stats:
        times: Stats = {}
        if self._intra_step_time and self._began is not None:
            times["batch_time/intra_step (ms)"] = 1000.0 * (now - self._began)
        if self._inter_step_time and self._between_ms is not None:
            times["batch_time/inter_step (ms)"] = self._between_ms
        return times

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Notes the end of the epoch, if wanted."""
        if self._epoch_notes and trainer.is_global_zero:
            note(f"epoch {trainer.current_epoch} ended")

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Ends the samples."""
        self._sampler.stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Ends the samples."""
        self._sampler.stop()
