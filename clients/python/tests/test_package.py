"""The package as it is installed: types, and the wheel."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]


def run(*command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_sources_are_typed_strictly(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    run("mypy", "--cache-dir", str(tmp_path))


def test_the_wheel_contains_types_and_licenses_and_runs_alone(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    run("pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(tmp_path), ".")
    (wheel,) = tmp_path.glob("nodeglass-*-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "nodeglass/py.typed" in names and "nodeglass/callbacks/keras.py" in names
    assert any(name.endswith("licenses/LICENSE-MIT") for name in names)
    assert not any("test" in name or "tools" in name for name in names)
    # With nothing but the standard library.
    command = "import nodeglass; print(nodeglass.__file__)"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(wheel)!r}); {command}"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert str(wheel) in done.stdout
