"""A run with a key: what it knows of its data and what it learned is readable with the key, and with nothing else."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import edgetrain
from edgetrain.cli import main
from edgetrain.errors import DataError, EdgetrainError, PlanInfeasibleError, UsageError
from edgetrain.files.build_cache import BuildCache
from edgetrain.files.encrypted import is_encrypted
from edgetrain.files.secret_key import SecretKey
from edgetrain.pipeline.fit import fit
from edgetrain.pipeline.job import Job
from edgetrain.pipeline.stages import compile_job
from edgetrain.planner.plan import Budget
from edgetrain.program.process_memory import LOOP_BYTES
from edgetrain.recipes import load_recipe
from edgetrain.report.run_page import write_run_page
from edgetrain.report.run_record import read_run
from edgetrain.run.engines.local import LocalEngine
from edgetrain.run.engines.synthetic import fill_synthetic
from edgetrain.run.files.checkpoint import BEST, NEWEST, PREVIOUS, read_header
from edgetrain.run.files.report import RunReport
from edgetrain.run.files.run_folder import RunFolder
from edgetrain.run.files.trained import open_run, read_reading
from edgetrain.run.files.trained_onnx import trained_onnx
from edgetrain.run.loop.callbacks import Callback, Logs
from edgetrain.targets.profile import Target, load_target
from edgetrain.units import parse_bytes

pytestmark = pytest.mark.compile

KEY = bytes(range(7, 39))
BUDGET, ENCRYPTED_BUDGET = "2.15MB", "2.25MB"  # make the program page activations; the second holds the cipher, too
OVERRIDES = (
    "model.source=zoo:digits-cnn-bn",
    "train.batch=64",
    "train.epochs=2",
    "data.limit=400",
    "data.test_limit=64",
)
ENCRYPTED = {NEWEST, PREVIOUS, BEST, "model.onnx", "learned.json", "report.html", "reading.json", "data.json"}


class StopAfter(Callback):
    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, step: int, logs: Logs) -> None:
        if step == self._step:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True, scope="module")
def key_in_environment() -> None:
    os.environ["EDGETRAIN_TEST_KEY"] = KEY.hex()


def slow_with_fast_disk() -> Target:
    """This machine as the planner would see it if computing again took longer than paging."""
    target = load_target("host")
    device, disk = target.device, target.device.storage
    assert disk is not None
    return target.with_device(
        rates=replace(device.rates, flops_per_s=1e7, memory_bytes_per_s=1e7),
        storage=replace(disk, read_bytes_per_s=1e11, write_bytes_per_s=1e11, latency_s=0.0),
    )


def job(build_cache: BuildCache, *overrides: str) -> Job:
    recipe = load_recipe("digits", (*OVERRIDES, *overrides))
    return Job(
        recipe=recipe,
        target=slow_with_fast_disk(),
        budget=Budget(memory_bytes=parse_bytes(ENCRYPTED_BUDGET if recipe.security.key else BUDGET)),
        cache=build_cache,
        threads=2,
    )


@pytest.fixture(scope="module")
def encrypted_job(build_cache: BuildCache, key_in_environment: None) -> Job:
    return job(build_cache, "security.key=env:EDGETRAIN_TEST_KEY")


@pytest.fixture(scope="module")
def plain(build_cache: BuildCache, tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    return fit(job(build_cache), tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def run(encrypted_job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encrypted") / "run"
    fit(encrypted_job, folder)
    return folder


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def test_what_holds_data_or_weights_is_encrypted(run: Path) -> None:
    assert {path.name for path in run.iterdir() if path.is_file() and is_encrypted(path)} == ENCRYPTED


def test_the_same_parameters_are_trained(run: Path, plain: RunReport) -> None:
    assert open_run(run).program.manifest.encrypts_pages, "the budget makes it page"
    assert edgetrain.open_run(run).report.parameters_sha256 == plain.parameters_sha256


def test_the_key_is_nowhere_in_the_folder(run: Path) -> None:
    forms = (KEY, KEY.hex().encode(), KEY.hex().upper().encode(), base64.b64encode(KEY))
    for path in run.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not any(form in content for form in forms), path
    assert json.loads((run / "recipe.json").read_text())["security"]["key"] == "env:EDGETRAIN_TEST_KEY"


def test_no_trained_weight_is_in_plain_text(run: Path) -> None:
    import onnx
    from onnx import numpy_helper

    model = onnx.load_model_from_string(trained_onnx(RunFolder(run)))
    windows = {numpy_helper.to_array(tensor).tobytes()[:64] for tensor in model.graph.initializer}
    windows = {window for window in windows if len(window) == 64 and any(window)}
    assert windows
    content = b"".join(path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file())
    assert not [window for window in windows if window in content]


def pages_and_arena(used: Job, folder: Path) -> tuple[bytes, bytes]:
    """What is in the page file and in memory after a step, before the file is gone."""
    program = compile_job(used).plan().build().program
    assert program.manifest.page_file_bytes > 0, "the budget makes it page"
    assert program.manifest.encrypts_pages == bool(used.recipe.security.key)
    folder.mkdir()
    with LocalEngine(program, threads=2, page_directory=folder) as engine:
        fill_synthetic(engine, program.graph, loss=used.recipe.train.loss, seed=0)
        engine.call("step")
        files = [link for link in Path("/proc/self/fd").iterdir() if link.exists() and link.readlink().parent == folder]
        return files[0].read_bytes(), bytes(engine._memory.view)


def windows(content: bytes) -> set[bytes]:
    """Of 64 bytes that are not all alike."""
    pieces = (content[at : at + 64] for at in range(0, len(content) - 63, 64))
    return {piece for piece in pieces if len(set(piece)) > 8}


def test_no_window_of_parameters_or_activations_is_in_the_page_file(
    encrypted_job: Job, build_cache: BuildCache, tmp_path: Path
) -> None:
    plain_pages, _ = pages_and_arena(job(build_cache), tmp_path / "plain")
    pages, arena = pages_and_arena(encrypted_job, tmp_path / "encrypted")
    shown = windows(plain_pages) | windows(arena)
    assert len(windows(plain_pages)) > 1000, "a plain page file shows activations"
    assert not [window for window in shown if window in pages]


def test_a_budget_holds_the_cipher_too(run: Path) -> None:
    report = edgetrain.open_run(run).report
    assert report.budget_bytes == parse_bytes(ENCRYPTED_BUDGET)
    assert report.is_within_budget
    assert report.process_peak_bytes is None or report.process_peak_bytes <= report.planned_process_bytes + LOOP_BYTES


def test_no_parameter_is_left_in_storage_where_nobody_may_read_it(build_cache: BuildCache) -> None:
    compiled = compile_job(job(build_cache)), compile_job(job(build_cache, "security.key=env:EDGETRAIN_TEST_KEY"))
    plain, encrypted = (each.smallest_bytes() for each in compiled)
    assert plain < encrypted
    budget = Budget(memory_bytes=encrypted)
    assert compiled[0].asking(budget=Budget(memory_bytes=plain)).plan().plan.stored
    assert not compiled[1].asking(budget=budget).plan().plan.stored
    with pytest.raises(PlanInfeasibleError):
        compiled[1].asking(budget=Budget(memory_bytes=plain)).plan()


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(encrypted_job: Job, plain: RunReport, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fit(encrypted_job, tmp_path / "run", callbacks=(StopAfter(6),))
    first = (tmp_path / "run" / NEWEST).read_bytes()
    resumed = fit(encrypted_job, tmp_path / "run", resume=True)
    assert resumed.parameters_sha256 == plain.parameters_sha256
    assert first[:60] != (tmp_path / "run" / NEWEST).read_bytes()[:60], "written anew with a salt of its own"


def test_an_encrypted_run_is_opened_as_any_other(run: Path, tmp_path: Path) -> None:
    opened = edgetrain.open_run(run)
    assert opened.predict(np.zeros((3, 1, 8, 8), np.float32)).shape == (3, 10)
    assert read_run(run).learned is not None
    page = write_run_page(run, tmp_path / "page.html")
    assert page.read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize("key", ["", "ab" * 32], ids=["no key", "another key"])
def test_without_its_key_nothing_of_a_run_is_read(
    key: str, run: Path, encrypted_job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGETRAIN_TEST_KEY", key)
    error = DataError if key else UsageError
    readers: tuple[Callable[[], object], ...] = (
        lambda: open_run(run),
        lambda: trained_onnx(RunFolder(run)),
        lambda: read_run(run),
        lambda: write_run_page(run),
        lambda: edgetrain.open_run(run),
    )
    for reader in readers:
        with pytest.raises(error, match="another key" if key else "is not set") as caught:
            reader()
        assert caught.value.fix
        assert not key or key not in str(caught.value)


@pytest.mark.parametrize("name", sorted(ENCRYPTED - {"report.html", PREVIOUS}))
def test_a_changed_file_is_noticed(name: str, copied: Path, encrypted_job: Job) -> None:
    path = copied / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    readers: dict[str, Callable[[], object]] = {
        BEST: lambda: read_header(path, key=SecretKey(KEY)),
        "model.onnx": lambda: trained_onnx(RunFolder(copied)),
        "learned.json": lambda: read_run(copied),
        "data.json": lambda: fit(more(encrypted_job), copied, resume=True),
    }
    with pytest.raises(DataError, match="not as it was written"):
        readers.get(name, lambda: open_run(copied))()


def more(encrypted_job: Job) -> Job:
    """One that a finished run goes on with."""
    return job(encrypted_job.cache, "security.key=env:EDGETRAIN_TEST_KEY", "train.epochs=3")


def test_commands_end_with_the_code_of_what_is_wrong_and_export_decrypts(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def code(*words: str) -> int:
        return main([*words])

    out, page = tmp_path / "out.onnx", tmp_path / "page.html"
    assert code("export", str(copied), "--onnx", str(out)) == 0
    assert out.read_bytes() == trained_onnx(RunFolder(copied))
    assert code("report", str(copied), "--out", str(page)) == 0
    assert not is_encrypted(page)
    assert code("report", str(copied), "--open") == 2
    assert "a browser cannot show" in capsys.readouterr().err
    assert code("inspect", str(copied / "model.onnx")) == 5
    assert "is encrypted" in capsys.readouterr().err
    monkeypatch.setenv("EDGETRAIN_TEST_KEY", "ab" * 32)
    assert code("export", str(copied), "--onnx", str(out)) == 5
    monkeypatch.delenv("EDGETRAIN_TEST_KEY")
    assert code("export", str(copied), "--onnx", str(out)) == 2
    assert KEY.hex() not in "".join(capsys.readouterr())


def test_files_that_were_swapped_are_noticed(copied: Path) -> None:
    (copied / "reading.json").write_bytes((copied / "data.json").read_bytes())
    with pytest.raises(DataError, match="another file's"):
        open_run(copied)


def test_a_plain_file_in_the_place_of_an_encrypted_one_is_refused(copied: Path) -> None:
    (copied / "reading.json").write_text("{}")
    with pytest.raises(DataError, match="it is not encrypted"):
        open_run(copied)


def test_a_recipe_without_its_key_does_not_make_files_plain(copied: Path) -> None:
    recipe = json.loads((copied / "recipe.json").read_text())
    del recipe["security"], recipe["sha256"]
    (copied / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(DataError, match="names no key"):
        open_run(copied)


def test_a_run_does_not_become_encrypted_or_plain_on_its_way(
    copied: Path, encrypted_job: Job, build_cache: BuildCache
) -> None:
    before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match=r"is encrypted, and `security\.key` is empty"):
        fit(job(build_cache, "train.epochs=3"), copied, resume=True)
    assert before == {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}


def test_the_key_may_move_to_another_place(copied: Path, build_cache: BuildCache, tmp_path: Path) -> None:
    place = tmp_path / "key"
    place.write_text(KEY.hex())
    place.chmod(0o600)
    fit(job(build_cache, f"security.key=file:{place}", "train.epochs=3"), copied, resume=True)
    assert json.loads((copied / "recipe.json").read_text())["security"]["key"] == f"file:{place}"
    assert read_reading(RunFolder(copied), open_run(copied).key) is not None


def test_a_missing_key_is_found_before_anything_is_compiled(build_cache: BuildCache, tmp_path: Path) -> None:
    with pytest.raises(EdgetrainError, match="is not set"):
        fit(job(build_cache, "security.key=env:EDGETRAIN_TEST_NO_KEY"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
