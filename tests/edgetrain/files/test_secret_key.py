from __future__ import annotations

import base64
import pickle
import secrets
import sys
import types
from pathlib import Path

import pytest

from edgetrain.errors import UsageError
from edgetrain.files.secret_key import SecretKey, is_reference, read_key

CONTENT = bytes(range(100, 132))


@pytest.fixture(autouse=True)
def no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGETRAIN_SECURITY_KEY", raising=False)


def key_file(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return f"file:{path}"


@pytest.mark.parametrize(
    "text", [CONTENT.hex(), CONTENT.hex().upper(), base64.b64encode(CONTENT).decode(), f"  {CONTENT.hex()}\n"]
)
def test_a_key_is_hexadecimal_or_base64(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_KEY", text)
    for reference in ("env:RUN_KEY", key_file(tmp_path / "key", text)):
        key = read_key(reference)
        assert key is not None
        assert key.content() == CONTENT


def test_no_reference_is_no_key() -> None:
    assert read_key("") is None


@pytest.mark.parametrize("text", ["correct horse battery staple", CONTENT.hex()[:-1], CONTENT.hex()[:-2], "0" * 65])
def test_what_is_no_key_is_refused_and_not_shown(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUN_KEY", text)
    with pytest.raises(UsageError, match="is not a key") as caught:
        read_key("env:RUN_KEY")
    assert text not in str(caught.value)
    assert "secrets.token_hex(32)" in caught.value.fix


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(UsageError, match="`EDGETRAIN_TEST_NO_KEY` with the key is not set"):
        read_key("env:EDGETRAIN_TEST_NO_KEY")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o777])
def test_a_file_that_others_can_use_is_refused(mode: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="can be used by others") as caught:
        read_key(key_file(tmp_path / "my key", CONTENT.hex(), mode))
    assert f"chmod 600 '{tmp_path}/my key'" in caught.value.fix


def test_a_link_a_folder_and_nothing_are_no_key_files(tmp_path: Path) -> None:
    key_file(tmp_path / "key", CONTENT.hex())
    (tmp_path / "link").symlink_to(tmp_path / "key")
    for name in ("link", ".", "missing"):
        with pytest.raises(UsageError, match="cannot be read"):
            read_key(f"file:{tmp_path / name}")


@pytest.mark.parametrize("reference", [CONTENT.hex(), "vault:a", "env:", "keyring:service", "keyring:/name"])
def test_what_is_no_reference_is_refused_and_not_shown(reference: str) -> None:
    assert not is_reference(reference)
    with pytest.raises(UsageError, match="neither") as caught:
        read_key(reference)
    assert reference not in str(caught.value) or reference == "env:"


def test_a_keyring_is_asked_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {("edgetrain", "run/7"): CONTENT.hex()}
    fake = types.SimpleNamespace(get_password=lambda service, name: kept.get((service, name)))
    monkeypatch.setitem(sys.modules, "keyring", fake)
    key = read_key("keyring:edgetrain/run/7")
    assert key is not None
    assert key.content() == CONTENT
    with pytest.raises(UsageError, match="holds no `run`"):
        read_key("keyring:edgetrain/run")


def test_without_the_package_a_keyring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(UsageError, match="needs the package `keyring`"):
        read_key("keyring:edgetrain/run")


def test_another_machine_may_have_the_key_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGETRAIN_SECURITY_KEY", key_file(tmp_path / "key", CONTENT.hex()))
    key = read_key("env:NOT_HERE")
    assert key is not None
    assert key.content() == CONTENT
    assert read_key("") is None, "a run that is not encrypted stays so"


def test_a_key_is_shown_and_written_nowhere() -> None:
    key = SecretKey(secrets.token_bytes(32))
    assert f"{key} {key!r}" == "SecretKey(…) SecretKey(…)"
    with pytest.raises(TypeError, match="not written"):
        pickle.dumps(key)
