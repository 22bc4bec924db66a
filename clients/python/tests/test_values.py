"""Dataclasses, `NA`, units, the GPUs that a process sees, and notes."""

import copy
import dataclasses
import importlib.util
import math
import pickle
from datetime import datetime, timezone
from pathlib import Path
from typing import Dict, List, Optional

import pytest

from nodeglass import NA, Device, NodeglassError, ProtocolError, bytes2human, human2bytes, models, note, timedelta2human
from nodeglass._decode import decode, timestamp
from nodeglass._visible import visible

from conftest import REPOSITORY


def test_the_dataclasses_follow_from_the_description_of_the_api() -> None:
    if not (REPOSITORY / "docs/openapi.json").exists():
        pytest.skip("not in the repository")
    path = REPOSITORY / "clients/python/tools/generate_models.py"
    spec = importlib.util.spec_from_file_location("generate_models", path)
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    for name, text in generator.generate().items():
        written = Path(models.__file__).with_name(name).read_text()
        assert written == text, f"models/{name} is out of date: run python3 {path.relative_to(REPOSITORY)}"


def test_unknown_fields_are_ignored_and_missing_ones_are_named() -> None:
    job = decode(models.GpuJob, {"job": 7, "evidence": "process", "new": [1]})
    assert job == models.GpuJob(evidence="process", job=7)
    with pytest.raises(ProtocolError, match=r"GpuJob\.job is missing"):
        decode(models.GpuJob, {"evidence": "process"})
    with pytest.raises(ProtocolError, match=r"GpuJob\.job is no int"):
        decode(models.GpuJob, {"job": "7", "evidence": "process"})
    readings = decode(models.GpuReadings, {"util_pct": 0, "magic": 1})
    assert readings.util_pct == 0 and readings.power_w is None
    assert timestamp("2026-11-25T06:07:25.500Z") == datetime(2026, 11, 25, 6, 7, 25, 500_000, timezone.utc)
    with pytest.raises(ProtocolError):
        timestamp("yesterday")


def test_na_is_text_and_nan_as_in_nvitop() -> None:
    assert NA == "N/A" and not NA and f"{NA:>5}|{NA:.1f}|{NA:6.2f}" == "  N/A|N/A|   N/A" and NA + "!" == "N/A!"
    for value in (NA + 1, 1 + NA, NA - NA, 2 * NA, NA / 2, NA // 1, -NA, abs(NA), round(NA, 1), float(NA), NA % 2):
        assert math.isnan(value)
    assert not NA > 80 and not NA < 80 and not 80 >= NA
    assert int(NA) == 0 == round(NA)
    assert copy.deepcopy(NA) is NA and pickle.loads(pickle.dumps(NA)) is NA


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0B"), (1023, "1023B"), (1 << 10, "1KiB"), (5 << 20, "5.00MiB"), (500 << 20, "500.0MiB"),
        (7885 << 20, "7885MiB"), (24 << 30, "24.00GiB"), (140 << 30, "140.0GiB"), (3 << 40, "3.00TiB"), (NA, "N/A"),
    ],
)  # fmt: skip
def test_bytes_are_written_as_nvitop_does(number: int, text: str) -> None:
    assert bytes2human(number) == text


def test_sizes_and_durations() -> None:
    assert human2bytes("8GiB") == 8 << 30 and human2bytes("1.5 kb") == 1500 and human2bytes(7) == 7
    with pytest.raises(ValueError):
        human2bytes("much")
    assert [timedelta2human(one) for one in (65, 3661, 5 * 86400, NA)] == ["1:05", "1:01:01", "5.0 days", "N/A"]


def gpu(index: int, minor: Optional[int] = None, job: Optional[int] = None, uuid: str = "") -> models.Gpu:
    return models.Gpu(
        connection="live", health=models.Health(pcie=models.PcieLink()), index=index, label=f"GPU {index}",
        limits=models.Limits(), may_have_job=False, node="here", processes=0, readings=models.GpuReadings(),
        unified_memory=False, uuid=uuid or f"GPU-{index}", vendor="nvidia", minor=index if minor is None else minor,
        jobs=[] if job is None else [models.GpuJob(evidence="process", job=job)],
    )  # fmt: skip


class Fleet:
    """A client of a relay that watches one node."""

    def __init__(self, gpus: List[models.Gpu]) -> None:
        self._gpus = gpus

    def nodes(self) -> List[object]:
        return [dataclasses.make_dataclass("Node", ["name"])("here")]

    def gpus(self, node: str) -> List[models.Gpu]:
        return self._gpus


FLEET = Fleet([gpu(0), gpu(1, job=7, uuid="GPU-ab1"), gpu(2, job=7, uuid="GPU-ab2"), gpu(3)])


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, [0, 1, 2, 3]),
        ({"SLURM_JOB_ID": "7"}, [1, 2]),
        ({"CUDA_VISIBLE_DEVICES": ""}, []),
        ({"CUDA_VISIBLE_DEVICES": "3,1"}, [3, 1]),
        ({"CUDA_VISIBLE_DEVICES": "1,9,2"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "1,-1,2"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-ab2,GPU-ab1"}, [2, 1]),
        # A beginning that several GPUs have is none that CUDA accepts.
        ({"CUDA_VISIBLE_DEVICES": "GPU-ab"}, []),
        # SLURM confines the job to its GPUs, so that CUDA counts from 0.
        ({"CUDA_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2,3"}, [2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "1", "SLURM_STEP_GPUS": "0,3"}, [3]),
        # It does not, so that CUDA counts all GPUs of the node.
        ({"CUDA_VISIBLE_DEVICES": "2,3", "SLURM_JOB_GPUS": "2,3"}, [2, 3]),
    ],
)
def test_the_gpus_of_a_process_follow_from_its_environment(environment: Dict[str, str], expected: List[int]) -> None:
    assert [one.index for one in visible(FLEET, environment)] == expected


def test_an_ambiguous_numbering_is_an_error_not_a_guess() -> None:
    with pytest.raises(NodeglassError, match="state their UUIDs"):
        visible(FLEET, {"CUDA_VISIBLE_DEVICES": "1", "SLURM_JOB_GPUS": "1,2"})


def test_slurms_indices_are_device_files(tmp_path: Path) -> None:
    fleet = Fleet([gpu(0, minor=1), gpu(1, minor=0)])
    environment = {"CUDA_VISIBLE_DEVICES": "0", "SLURM_JOB_GPUS": "1"}
    assert [one.index for one in visible(fleet, environment)] == [0]


def test_a_job_notes_lines_in_a_file_of_its_rank(tmp_path: Path) -> None:
    job = {"HOME": str(tmp_path), "SLURM_JOB_ID": "7", "SLURM_PROCID": "3"}
    assert note("epoch 1\nended", environment=job) and note("epoch 2", environment=job)
    file = tmp_path / ".nodeglass-notes" / "7.3"
    assert file.read_text() == "epoch 1 ended\nepoch 2\n"
    assert file.parent.stat().st_mode & 0o777 == 0o700
    # The first rank has the file of the job, as with `relay note`.
    assert note("epoch 3", environment={**job, "SLURM_PROCID": "0"})
    assert (tmp_path / ".nodeglass-notes" / "7").read_text() == "epoch 3\n"
    # A training does not fail for a text that has no encoding, and an empty one is no note.
    assert note("run \udce4", environment=job) and file.read_text().endswith("run ?\n")
    assert not note(" \n", environment=job) and file.read_text().count("\n") == 3
    assert not note("x", environment={"HOME": str(tmp_path)})
    assert not note("x", environment={"HOME": "/proc/nowhere", "SLURM_JOB_ID": "7"})
    assert not note("x", environment={"HOME": str(tmp_path), "SLURM_JOB_ID": "../7"})
    file.write_bytes(b"x" * 256 * 1024)
    assert not note("x", environment=job)


@pytest.mark.parametrize(
    ("reserved", "why", "free"), [(2, None, 5), (None, "unsupported", 7), (None, "failed", NA), (None, None, NA)]
)
def test_an_unknown_reserved_amount_is_not_zero(
    monkeypatch: pytest.MonkeyPatch, reserved: Optional[int], why: Optional[str], free: object
) -> None:
    readings = models.GpuReadings(mem_total_bytes=10, mem_used_bytes=3, mem_reserved_bytes=reserved)
    current = dataclasses.replace(gpu(0), readings=readings, absent={"mem_reserved_bytes": why} if why else {})
    monkeypatch.setattr(Device, "_current", lambda self: current)
    assert Device.memory_free(object.__new__(Device)) == free
