"""S3: the signature against its documentation, and a fake that checks every one."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest

from edgetrain_tuner.cache.entry import merge
from edgetrain_tuner.cache.errors import AddressError, UnreachableError
from edgetrain_tuner.cache.remotes.open import open_remote
from edgetrain_tuner.cache.remotes.remote import Access
from edgetrain_tuner.cache.remotes.s3 import _parsed
from edgetrain_tuner.cache.remotes.sigv4 import Credentials, signed_headers
from tests.edgetrain_tuner.cache import fake_s3
from tests.edgetrain_tuner.cache.entries import entry, measurement

ACCESS = Access(key_id=fake_s3.KEY_ID, secret_key=fake_s3.SECRET)


@pytest.fixture
def server() -> Iterator[fake_s3.FakeS3]:
    with fake_s3.running() as running:
        yield running


# The examples of "Signature Calculations for the Authorization Header" in Amazon's S3 API reference.
DOCUMENTED = {
    "get object": (
        "/test.txt",
        {},
        {"Range": "bytes=0-9"},
        "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
    ),
    "get lifecycle": (
        "/",
        {"lifecycle": ""},
        {},
        "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    ),
    "list objects": (
        "/",
        {"max-keys": "2", "prefix": "J"},
        {},
        "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    ),
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_signatures_are_those_of_the_documentation(name: str) -> None:
    path, query, headers, signature = DOCUMENTED[name]
    signed = signed_headers(
        Credentials(key_id="AKIAIOSFODNN7EXAMPLE", secret_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
        method="GET",
        host="examplebucket.s3.amazonaws.com",
        path=path,
        query=query,
        headers=headers,
        body=b"",
        now=datetime.datetime(2013, 5, 24, tzinfo=datetime.UTC),
    )
    assert signed["Authorization"].endswith(f"Signature={signature}")


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


def test_without_credentials_nothing_is_asked(server: fake_s3.FakeS3) -> None:
    with pytest.raises(AddressError, match="AWS_SECRET_ACCESS_KEY"):
        open_remote(server.url, Access(key_id="only half"))
    assert server.requests == []


def test_a_bucket_that_is_not_there_is_told(server: fake_s3.FakeS3) -> None:
    with pytest.raises(AddressError, match="no bucket `other`"):
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


@pytest.mark.parametrize("body", [b'<!DOCTYPE x [<!ENTITY a "b">]><x>&a;</x>', b"no xml", b""])
def test_a_list_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(UnreachableError):
        _parsed(body, "https://host")
