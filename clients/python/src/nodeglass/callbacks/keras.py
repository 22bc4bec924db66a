"""Adds the readings of GPUs to the logs of Keras, where `History`, `CSVLogger` and `TensorBoard` find them."""

from typing import TYPE_CHECKING, Any, Dict, Optional

from ..client import Client
from ..notes import note
from .sampler import Metrics, Sampler

if TYPE_CHECKING:

    class Callback:
        """Keras is not installed where the types are checked."""

else:
    try:
        from keras.callbacks import Callback
    except ImportError:
        from tensorflow.keras.callbacks import Callback


class GpuStatsLogger(Callback):
    """Adds the means of GPU readings over each epoch to its logs. Samples are taken once per `interval` in seconds.

    Place it before `TensorBoard` and `CSVLogger`. An epoch during which the relay was away, or that was shorter than
    the first sample took, has no readings.

    With `scope="rank"` these are the GPUs that this process sees, as `gpu_id: 0/utilization.gpu (%)`; with
    `scope="job"` minimum, mean and maximum over all GPUs of the SLURM job. `epoch_notes=True` notes the end of each epoch
    in the graphs and the report of the job.
    """

    def __init__(
        self,
        memory_utilization: bool = True,
        gpu_utilization: bool = True,
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
        self._epoch_notes = epoch_notes

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Begins to take samples."""
        self._sampler.start()

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        """Adds the means of the epoch to its logs."""
        summary = self._sampler.summary()
        if logs is not None:
            logs.update(summary)
        if self._epoch_notes:
            note(f"epoch {epoch} ended")

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        """Ends the samples."""
        self._sampler.stop()
