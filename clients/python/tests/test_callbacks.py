"""Callbacks with the real libraries where they are installed, else with stand-ins of their interfaces."""

import copy
import importlib
import logging
import pickle
import sys
import threading
import time
import types
from typing import Any, Dict, List, Tuple

import pytest

from nodeglass import Client, RelayUnavailableError
from nodeglass.callbacks.sampler import MIN_INTERVAL_S

from conftest import DemoRelay, wait_for

LARGE = "48213"


@pytest.fixture
def job(demo: DemoRelay, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a process of the pretraining job on its first node, with a relay in reach."""
    monkeypatch.setenv("NODEGLASS_URL", demo.link)
    monkeypatch.setenv("SLURM_JOB_ID", LARGE)
    monkeypatch.setenv("SLURMD_NODENAME", "gpu-h01")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")


@pytest.fixture
def lightning(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`nodeglass.callbacks.lightning`, with the real base class or a stand-in."""
    try:
        import lightning.pytorch  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("lightning.pytorch.callbacks")
        stand_in.Callback = type("Callback", (), {})
        for name in ("lightning", "lightning.pytorch"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        monkeypatch.setitem(sys.modules, "lightning.pytorch.callbacks", stand_in)
    return load(monkeypatch, "lightning")


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`nodeglass.callbacks.keras`, likewise."""
    try:
        import keras  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("keras.callbacks")
        stand_in.Callback = type("Callback", (), {})
        monkeypatch.setitem(sys.modules, "keras", types.ModuleType("keras"))
        monkeypatch.setitem(sys.modules, "keras.callbacks", stand_in)
    return load(monkeypatch, "keras")


def load(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    monkeypatch.delitem(sys.modules, f"nodeglass.callbacks.{name}", raising=False)
    return importlib.import_module(f"nodeglass.callbacks.{name}")


class Logger:
    """A logger of Lightning."""

    def __init__(self) -> None:
        self.logged: List[Tuple[int, Dict[str, float]]] = []

    def log_metrics(self, metrics: Dict[str, float], step: int) -> None:
        self.logged.append((step, metrics))


class Trainer:
    """As much of Lightning's trainer as a callback sees."""

    def __init__(self, callback: Any, is_global_zero: bool = True) -> None:
        self.callback = callback
        self.loggers = [Logger()]
        self.is_global_zero = is_global_zero
        self.global_step = 0
        self.current_epoch = 0

    @property
    def logged(self) -> List[Tuple[int, Dict[str, float]]]:
        return self.loggers[0].logged

    def step(self) -> None:
        # As Lightning calls them: positional arguments.
        self.callback.on_train_batch_start(self, None, "batch", self.global_step)
        self.global_step += 1
        self.callback.on_train_batch_end(self, None, "outputs", "batch", self.global_step)

    def step_until(self, condition: Any) -> None:
        def stepped() -> bool:
            self.step()
            return condition()

        wait_for(stepped)

    def __enter__(self) -> "Trainer":
        self.callback.on_train_start(self, None)
        self.callback.on_train_epoch_start(self, None)
        return self

    def __exit__(self, *_: object) -> None:
        self.callback.on_train_epoch_end(self, None)
        self.callback.on_train_end(self, None)


def test_lightning_logs_the_gpus_of_the_rank(lightning: Any, job: None) -> None:
    callback = lightning.GpuStatsLogger(temperature=True, power=True, intra_step_time=True, inter_step_time=True)
    with Trainer(callback) as trainer:
        trainer.step()
        # A GPU that was not sampled yet is left out.
        both = lambda: [entry for entry in trainer.logged if any(name.startswith("gpu_id: 1/") for name in entry[1])]
        trainer.step_until(both)
    step, stats = both()[0]
    assert step >= 1 and {name.partition("/")[0] for name in stats} == {"gpu_id: 0", "gpu_id: 1", "batch_time"}
    assert 0 <= stats["gpu_id: 0/utilization.gpu (%)"] <= 100 and stats["gpu_id: 1/memory.used (MiB)"] > 1000
    assert stats["gpu_id: 0/temperature.gpu (C)"] > 20 and stats["gpu_id: 0/power.draw (W)"] > 50
    assert stats["batch_time/intra_step (ms)"] >= 0


def test_lightning_logs_the_whole_job_at_a_bounded_rate(lightning: Any, job: None) -> None:
    callback = lightning.GpuStatsLogger(scope="job", interval=0.0)
    assert callback._sampler._interval == MIN_INTERVAL_S
    with Trainer(callback) as trainer:
        trainer.step_until(lambda: len(trainer.logged) >= 2)
        for _ in range(100):
            trainer.step()
    # A sample is logged with one step only.
    assert len(trainer.logged) < trainer.global_step / 2
    stats = trainer.logged[0][1]
    low, mean, high = (stats[f"job/utilization.gpu (%)/{name}"] for name in ("min", "mean", "max"))
    assert low <= mean <= high and mean > 50


def test_only_the_first_process_logs(lightning: Any, job: None) -> None:
    callback = lightning.GpuStatsLogger()
    with Trainer(callback, is_global_zero=False) as trainer:
        trainer.step()
        assert callback._sampler._stop is None
    assert trainer.logged == []


def test_a_training_goes_on_without_a_relay_and_is_told_once(
    lightning: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: List[None] = []

    def connect(**options: float) -> Client:
        attempts.append(None)
        return Client(**options)

    monkeypatch.setattr("nodeglass.callbacks.sampler.Client", connect)
    monkeypatch.setattr("nodeglass.callbacks.sampler.RETRY_S", 0.01)
    with caplog.at_level(logging.WARNING, "nodeglass"), Trainer(lightning.GpuStatsLogger()) as trainer:
        trainer.step_until(lambda: len(attempts) > 3)
    assert trainer.logged == [] and len(caplog.records) == 1
    assert "the training goes on: no relay of yours is running" in caplog.text


def test_a_relay_that_does_not_respond_neither_slows_a_training_nor_fails_after_it(
    lightning: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging:
        asked, fails = threading.Event(), threading.Event()

        def nodes(self) -> None:
            self.asked.set()
            self.fails.wait()
            raise RelayUnavailableError("the relay did not respond in time")

    with caplog.at_level(logging.WARNING, "nodeglass"):
        with Trainer(lightning.GpuStatsLogger(client=Hanging())) as trainer:
            assert Hanging.asked.wait(30)
            sampler = next(thread for thread in threading.enumerate() if thread.name == "nodeglass-sampler")
            for _ in range(1000):
                trainer.step()
        # The training has ended, and the request has not.
        Hanging.fails.set()
        sampler.join(30)
    assert not sampler.is_alive() and caplog.records == []


def test_epochs_are_noted_without_a_relay(lightning: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    with Trainer(lightning.GpuStatsLogger(epoch_notes=True)):
        pass
    assert (tmp_path / ".nodeglass-notes" / "7").read_text() == "epoch 0 ended\n"


def test_a_callback_can_be_copied_and_pickled(lightning: Any) -> None:
    callback = lightning.GpuStatsLogger(scope="job", interval=5)
    for same in (copy.deepcopy(callback._sampler), pickle.loads(pickle.dumps(callback._sampler))):
        assert (same._scope, same._interval, same.take()) == ("job", 5, None)
    with pytest.raises(ValueError, match="the scope must be rank or job"):
        lightning.GpuStatsLogger(scope="cluster")


def test_keras_logs_get_the_means_of_the_epoch(keras: Any, job: None) -> None:
    callback = keras.GpuStatsLogger(temperature=True, interval=1)
    callback.on_train_begin()
    wait_for(lambda: callback._sampler._samples)
    logs = {"loss": 1.0}
    callback.on_epoch_end(0, logs)
    assert logs["loss"] == 1.0 and 0 <= logs["gpu_id: 0/utilization.gpu (%)"] <= 100
    # A sample counts for one epoch.
    short: Dict[str, float] = {}
    callback.on_epoch_end(1, short)
    callback.on_epoch_end(2, None)
    callback.on_train_end()
    assert short == {}


def test_a_real_training_of_keras_is_logged(keras: Any, job: None) -> None:
    keras_itself = pytest.importorskip("keras")
    if not hasattr(keras_itself, "Sequential"):
        pytest.skip("keras is not installed")
    numpy = pytest.importorskip("numpy")
    model = keras_itself.Sequential([keras_itself.layers.Dense(1)])
    model.compile(loss="mse", optimizer="sgd")
    slow = keras_itself.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: time.sleep(1.2))
    history = model.fit(
        numpy.ones((8, 2)), numpy.ones((8, 1)), epochs=3, verbose=2,
        callbacks=[keras.GpuStatsLogger(interval=0.5), slow],
    )  # fmt: skip
    assert history.history["loss"] and history.history["gpu_id: 0/utilization.gpu (%)"]


def test_a_real_training_of_lightning_is_logged(lightning: Any, job: None, tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    pl = pytest.importorskip("lightning.pytorch")

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            time.sleep(0.1)
            return self.layer(batch).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    logger = pl.loggers.CSVLogger(str(tmp_path))
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", logger=logger, log_every_n_steps=1, enable_checkpointing=False,
        callbacks=[lightning.GpuStatsLogger(interval=1)],
    )  # fmt: skip
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(30, 2)))
    assert "gpu_id: 0/utilization.gpu (%)" in (tmp_path / "lightning_logs/version_0/metrics.csv").read_text()
