"""The shipped folder: the same bytes every time, and nothing believed when it is read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgetrain.errors import DataError, InternalError, UsageError
from edgetrain.graph.ir import Role, to_json
from edgetrain.program.artifact import Artifact, load_artifact, write_artifact
from edgetrain.program.manifest import Manifest, TensorRecord, manifest_from_json, manifest_to_json
from tests.edgetrain.processors import processor
from tests.edgetrain.program.tiny_program import (
    ARENA_BYTES,
    PERSISTENT,
    STEP_PLANS,
    initial_values,
    keep,
    tiny_artifact,
    tiny_graph,
    tiny_plan,
)

FILES = {
    *("libedgetrain_model.so", "driver.c", "edgetrain.h", "edgetrain_model.h"),
    *("graph.json", "plan.json", "parameters.bin"),
}


def write(directory: Path, **changes: Any) -> Artifact:
    """An artifact whose library is any bytes: this file is about the folder."""
    library = directory.parent / "libedgetrain_model.so"
    library.write_bytes(b"machine code")
    arguments: dict[str, Any] = {
        "graph": tiny_graph(),
        "plan": tiny_plan(keep()),
        "library": library,
        "driver_c": "int x;\n",
        "parameters": initial_values(),
        "target_name": "pi",
        "codegen": processor("aarch64-linux-gnu", "cortex-a72"),
        "versions": {"tvm": "0.27", "compiler": "zig"},
        "plan_json": "{}\n",
    }
    return write_artifact(directory, **(arguments | changes))


def bytes_below(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_what_was_written_is_what_is_loaded(tmp_path: Path) -> None:
    written = write(tmp_path / "program")
    loaded = load_artifact(tmp_path / "program")
    assert loaded == written
    assert loaded.identity == written.identity
    assert set(loaded.manifest.files) == FILES
    assert loaded.library.read_bytes() == b"machine code"
    assert to_json(loaded.graph) == to_json(tiny_graph())
    assert loaded.manifest.arena_bytes == loaded.manifest.planned_peak_bytes == ARENA_BYTES
    assert loaded.manifest.saved_bytes == 6016 + 6000
    assert loaded.manifest.planned_seconds == 0.25
    assert loaded.manifest.planned_joules == 0.5
    assert loaded.manifest.functions == ("step", "evaluate")
    assert loaded.manifest.tensors["x"] == TensorRecord(offset=12096, shape=(3, 500), dtype="float32", role=Role.INPUT)


def test_parameters_lie_at_their_offsets_with_zeros_between(tmp_path: Path) -> None:
    content = bytearray(write(tmp_path / "program").parameters.read_bytes())
    assert len(content) == 12032 + 4  # up to the end of the constant
    for name, value in initial_values().items():
        start = PERSISTENT[name]
        assert content[start : start + value.nbytes] == value.tobytes()
        content[start : start + value.nbytes] = bytes(value.nbytes)
    assert not any(content)


def test_the_same_inputs_give_the_same_folder_anywhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    first = write(tmp_path / "one")
    second = write(tmp_path / "elsewhere" / "two", versions={"compiler": "zig", "tvm": "0.27"})
    assert bytes_below(first.directory) == bytes_below(second.directory)
    assert first.identity == second.identity
    assert not [name for name, data in bytes_below(first.directory).items() if str(tmp_path).encode() in data]


def test_another_plan_has_another_identity(tmp_path: Path) -> None:
    paged = write(tmp_path / "two", plan=tiny_plan(STEP_PLANS["page"]))
    assert write(tmp_path / "one").identity != paged.identity
    assert paged.manifest.page_file_bytes == 8192


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_in_any_file_is_noticed(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("flip") / "program"
    write(directory)
    path = directory / data.draw(st.sampled_from(sorted(FILES)))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(DataError, match=path.name):
        load_artifact(directory)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_missing_file_is_noticed(name: str, tmp_path: Path) -> None:
    (write(tmp_path / "program").directory / name).unlink()
    with pytest.raises(DataError, match="cannot be read") as caught:
        load_artifact(tmp_path / "program")
    assert name in caught.value.what


def test_a_folder_that_is_not_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a compiled program"):
        load_artifact(tmp_path)


def _edit(directory: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = directory / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_another_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    write(tmp_path / "program")
    _edit(tmp_path / "program", lambda data: data.update(format="edgetrain.program/2"))
    with pytest.raises(DataError, match=r"`edgetrain\.program/2`, .* reads `edgetrain\.program/1`"):
        load_artifact(tmp_path / "program")


CONTRADICTIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a tensor outside the arena": lambda d: d["tensors"]["w"].update(offset=ARENA_BYTES),
    "a negative offset": lambda d: d["tensors"]["w"].update(offset=-64),
    "an offset that is text": lambda d: d["tensors"]["w"].update(offset="0"),
    "an unknown dtype": lambda d: d["tensors"]["w"].update(dtype="object"),
    "an unknown role": lambda d: d["tensors"]["w"].update(role="friend"),
    "more saved than persistent": lambda d: d.update(saved_bytes=ARENA_BYTES + 1),
    "a fraction of a byte": lambda d: d.update(arena_bytes=1.5),
    "a file outside the folder": lambda d: d["files"].update({"../secret": "0" * 64}),
    "a hidden file": lambda d: d["files"].update({".hidden": "0" * 64}),
    "a hash that is none": lambda d: d["files"].update({"driver.c": "yes"}),
    "a library without a hash": lambda d: d.update(library="other.so"),
    "no tensors": lambda d: d.pop("tensors"),
    "tensors as a list": lambda d: d.update(tensors=[1]),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_manifest_that_contradicts_itself_is_refused(name: str, tmp_path: Path) -> None:
    write(tmp_path / "program")
    _edit(tmp_path / "program", CONTRADICTIONS[name])
    with pytest.raises(DataError, match=r"manifest\.json is broken"):
        load_artifact(tmp_path / "program")


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "\x00", '{"format": 1'])
def test_a_manifest_that_is_no_manifest_is_refused(text: str, tmp_path: Path) -> None:
    (write(tmp_path / "program").directory / "manifest.json").write_text(text)
    with pytest.raises(DataError, match="is broken"):
        load_artifact(tmp_path / "program")


def test_a_manifest_survives_its_text_form(tmp_path: Path) -> None:
    manifest: Manifest = write(tmp_path / "program").manifest
    assert manifest_from_json(manifest_to_json(manifest), where="here") == manifest


def test_an_older_program_is_replaced_whole(tmp_path: Path) -> None:
    write(tmp_path / "program")
    second = write(tmp_path / "program", plan_json=None)
    assert set(bytes_below(tmp_path / "program")) == FILES - {"plan.json"} | {"manifest.json"}
    assert load_artifact(tmp_path / "program") == second
    assert sorted(path.name for path in tmp_path.iterdir()) == ["libedgetrain_model.so", "program"]


def test_a_folder_that_holds_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_bytes(b"sun")
    with pytest.raises(UsageError, match="exists and is not a compiled program"):
        write(tmp_path / "photos")
    assert (tmp_path / "photos" / "holiday.jpg").read_bytes() == b"sun"


def test_a_write_that_fails_leaves_the_older_program_as_it_was(tmp_path: Path) -> None:
    before = write(tmp_path / "program")
    with pytest.raises(InternalError):
        write(tmp_path / "program", parameters={})
    assert load_artifact(tmp_path / "program") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["libedgetrain_model.so", "program"]


@pytest.mark.parametrize("name", ["w", "momentum", "rate"])
def test_a_missing_value_is_rejected(name: str, tmp_path: Path) -> None:
    values = {key: value for key, value in initial_values().items() if key != name}
    with pytest.raises(InternalError, match=f"disagree about `{name}`"):
        write(tmp_path / "program", parameters=values)


@pytest.mark.parametrize("value", [np.zeros(3, np.float32), np.zeros(1500, np.float64)])
def test_a_value_of_another_shape_or_type_is_rejected(value: np.ndarray[Any, Any], tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="the value of `w` is"):
        write(tmp_path / "program", parameters=initial_values() | {"w": value})


def test_a_copy_is_the_same_program_and_replaces_an_older_one(tmp_path: Path) -> None:
    original = write(tmp_path / "one")
    write(tmp_path / "two", plan=tiny_plan(STEP_PLANS["page"]))
    original.copy_to(tmp_path / "two")
    assert bytes_below(tmp_path / "two") == bytes_below(tmp_path / "one")
    assert load_artifact(tmp_path / "two").identity == original.identity


def test_a_copy_does_not_overwrite_something_else(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday.jpg").write_bytes(b"sun")
    with pytest.raises(UsageError, match="exists and is not a compiled program"):
        write(tmp_path / "program").copy_to(tmp_path / "photos")
    assert (tmp_path / "photos" / "holiday.jpg").read_bytes() == b"sun"


STORED_CONTRADICTIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "neither": lambda d: d["tensors"]["w"].pop("slot"),
    "no place": lambda d: d["tensors"]["w"].pop("file_offset"),
    "outside parameters": lambda d: d["tensors"]["w"].update(file_offset=10**9),
    "not in this order": lambda d: d.update(persistent_bytes=10**9),
}


@pytest.mark.parametrize("words", STORED_CONTRADICTIONS)
def test_a_manifest_that_misplaces_a_stored_tensor_is_refused(words: str) -> None:
    text = manifest_to_json(tiny_artifact("store").manifest)
    assert manifest_from_json(text, where="here") == tiny_artifact("store").manifest
    data = json.loads(text)
    STORED_CONTRADICTIONS[words](data)
    with pytest.raises(DataError, match="is broken") as caught:
        manifest_from_json(json.dumps(data), where="here")
    assert words in caught.value.why
