"""S3: a fake that checks every signature with code of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgetrain_tuner.cache.entry import MOST_BYTES, merge
from edgetrain_tuner.cache.errors import AddressError, UnreachableError
from edgetrain_tuner.cache.remotes.open import open_remote
from edgetrain_tuner.cache.remotes.remote import Access
from tests.edgetrain_tuner.cache import fake_s3
from tests.edgetrain_tuner.cache.entries import entry, measurement

ACCESS = Access(key_id=fake_s3.KEY_ID, secret_key=fake_s3.SECRET)


@pytest.fixture(autouse=True)
def nobodys_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of whoever runs the tests must not decide what they see, and no machine's role is asked for."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def server() -> Iterator[fake_s3.FakeS3]:
    with fake_s3.running() as running:
        yield running


def test_a_wrong_secret_is_refused_and_not_told(server: fake_s3.FakeS3) -> None:
    remote = open_remote(server.url, Access(key_id=fake_s3.KEY_ID, secret_key="wrong-secret"))
    with pytest.raises(AddressError, match="SignatureDoesNotMatch") as caught:
        remote.put(entry())
    assert "wrong-secret" not in str(caught.value)
    assert server.objects == {}


def test_credentials_for_a_while_carry_their_token(server: fake_s3.FakeS3) -> None:
    server.session_token = "for-an-hour"
    with pytest.raises(AddressError, match="InvalidToken"):
        open_remote(server.url, ACCESS).put(entry())
    access = Access(key_id=fake_s3.KEY_ID, secret_key=fake_s3.SECRET, session_token="for-an-hour")
    open_remote(server.url, access).put(entry())
    assert open_remote(server.url, access).get(entry().id) == entry()


def test_a_session_token_is_not_sent_in_the_clear_to_another_machine() -> None:
    with pytest.raises(AddressError, match="https"):
        open_remote("s3+http://store.example.org/bucket", Access(key_id="k", secret_key="s", session_token="t"))


@pytest.mark.parametrize(
    ("access", "why"), [(Access(key_id="only half"), "aws_secret_access_key"), (Access(), "AWS_SECRET_ACCESS_KEY")]
)
def test_without_credentials_nothing_is_asked(server: fake_s3.FakeS3, access: Access, why: str) -> None:
    with pytest.raises(AddressError, match=why):
        open_remote(server.url, access)
    assert server.requests == []


def test_credentials_are_found_where_awss_own_tools_look(
    server: fake_s3.FakeS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text(
        f"[team]\naws_access_key_id = {fake_s3.KEY_ID}\naws_secret_access_key = {fake_s3.SECRET}\n"
    )
    (tmp_path / "config").write_text("[profile team]\nregion = eu-north-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "team")
    open_remote(server.url, Access()).put(entry())
    assert open_remote(server.url, Access()).get(entry().id) == entry()
    assert set(server.regions) == {"eu-north-1"}


def test_a_profile_that_is_not_there_is_told(server: fake_s3.FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(AddressError, match="nobody"):
        open_remote(server.url, Access())


def test_a_token_of_a_profile_is_not_sent_in_the_clear_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = "aws_access_key_id = k\naws_secret_access_key = s\naws_session_token = t-secret\n"
    (tmp_path / "credentials").write_text(f"[default]\n{keys}")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    with pytest.raises(AddressError, match="https") as caught:
        open_remote("s3+http://store.example.org/bucket", Access())
    assert "t-secret" not in str(caught.value)


def test_without_the_library_the_extra_is_named(server: fake_s3.FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "botocore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "botocore", None)
    with pytest.raises(AddressError, match=r"pip install 'edgetrain\[s3\]'"):
        open_remote(server.url, ACCESS)


def test_a_server_that_is_gone_is_unreachable() -> None:
    with fake_s3.running() as gone:
        url = gone.url
    with pytest.raises(UnreachableError, match="cannot be reached"):
        open_remote(url, ACCESS).changes("")


def test_an_entry_that_is_too_long_is_not_read_to_its_end(server: fake_s3.FakeS3) -> None:
    server.objects[f"team one/schedules/{entry().id}.json"] = b"x" * (MOST_BYTES + 1)
    with pytest.raises(UnreachableError, match="answered too much"):
        open_remote(server.url, ACCESS).get(entry().id)


def test_a_bucket_that_is_not_there_is_told(server: fake_s3.FakeS3) -> None:
    with pytest.raises(AddressError, match=r"no such bucket at .*/other"):
        open_remote(server.url.replace("/bucket/", "/other/"), ACCESS).changes("")


def test_entries_and_index_lie_below_the_prefix(server: fake_s3.FakeS3) -> None:
    open_remote(server.url, ACCESS).put(entry())
    assert sorted(server.objects) == [
        f"team one/classes/{entry().workload.class_}/{entry().id}",
        f"team one/schedules/{entry().id}.json",
    ]


def test_a_list_of_many_pages_is_read_to_its_end(server: fake_s3.FakeS3) -> None:
    remote = open_remote(server.url, ACCESS)
    for number in range(3 * fake_s3.PAGE + 1):
        remote.put(entry(number))
    assert len(remote.changes("").listed) == 3 * fake_s3.PAGE + 1


@pytest.mark.parametrize("is_new", [True, False])
def test_a_write_in_between_is_noticed_and_joined(server: fake_s3.FakeS3, is_new: bool) -> None:
    mine, theirs = entry(measurements=(measurement(machine=1),)), entry(measurements=(measurement(machine=2),))
    if not is_new:
        open_remote(server.url, ACCESS).put(entry(measurements=()))

    def sneak(objects: dict[str, bytes], key: str) -> None:
        objects[key] = theirs.text.encode()

    server.before_put.append(sneak)
    open_remote(server.url, ACCESS).put(mine)
    assert open_remote(server.url, ACCESS).get(mine.id) == merge(mine, theirs)


def test_a_server_that_knows_no_conditions_is_written_to_all_the_same(server: fake_s3.FakeS3) -> None:
    server.knows_conditions = False
    open_remote(server.url, ACCESS).put(entry())
    assert open_remote(server.url, ACCESS).get(entry().id) == entry()


def test_what_is_damaged_there_is_replaced(server: fake_s3.FakeS3) -> None:
    server.objects[f"team one/schedules/{entry().id}.json"] = b"half an ent"
    open_remote(server.url, ACCESS).put(entry())
    assert open_remote(server.url, ACCESS).get(entry().id) == entry()


@pytest.mark.parametrize("body", [b"no xml", b"", b"<html><body>Welcome</body></html>", b"<ListBucketResult>"])
def test_a_list_that_is_none_is_refused(server: fake_s3.FakeS3, body: bytes) -> None:
    server.list_answer = body
    with pytest.raises(UnreachableError):
        open_remote(server.url, ACCESS).changes("")


def test_a_redirect_to_another_server_is_not_followed(server: fake_s3.FakeS3) -> None:
    with fake_s3.running() as other:
        server.moved_to = f"http://127.0.0.1:{other.server_address[1]}"
        with pytest.raises(AddressError, match="has moved"):
            open_remote(server.url, ACCESS).put(entry())
        assert other.requests == []
