"""Signatures: what they cover, and what is refused for want of one."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import pytest

from edgetrain_tuner.cache.entry import Entry, Signature, merge, read_entry
from edgetrain_tuner.cache.errors import CacheError
from edgetrain_tuner.cache.trust import Trust, can_verify, is_genuine, sign
from tests.edgetrain_tuner.cache.entries import entry, measurement

needs_cryptography = pytest.mark.skipif(
    not can_verify(), reason="signatures need cryptography: pip install 'edgetrain[sign]'"
)


def new_key() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key: bytes = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return key


def signed(whole: Entry | None = None, key: bytes | None = None) -> Entry:
    return sign(whole or entry(), key or new_key())


@needs_cryptography
def test_a_signature_stays_genuine_through_text_and_merges() -> None:
    one = read_entry(signed().text)
    assert is_genuine(one)
    assert is_genuine(merge(one, entry(measurements=(measurement(machine=7),))))
    assert not is_genuine(entry())


def of_another(one: Entry) -> Entry:
    return dataclasses.replace(entry(2), signature=one.signature)


def with_another_key(one: Entry) -> Entry:
    other = signed().signature
    assert one.signature is not None
    assert other is not None
    return dataclasses.replace(one, signature=Signature(key=other.key, value=one.signature.value))


def with_zeros(one: Entry) -> Entry:
    return dataclasses.replace(one, signature=Signature(key="0" * 64, value="0" * 128))


@needs_cryptography
@pytest.mark.parametrize("forge", [of_another, with_another_key, with_zeros])
def test_a_forged_signature_is_refused(forge: Callable[[Entry], Entry]) -> None:
    forged = forge(signed())
    assert not is_genuine(forged)
    assert Trust(keys=frozenset({"1" * 64})).objection(forged) == "its signature does not match its content"


@needs_cryptography
def test_who_requires_signatures_gets_only_those_of_trusted_keys() -> None:
    mine, theirs = signed(), signed()
    assert mine.signature is not None
    strict = Trust(keys=frozenset({mine.signature.key}), require_signature=True)
    assert strict.objection(mine) is None
    assert "not trusted" in (strict.objection(theirs) or "")
    assert strict.objection(entry()) == "it is not signed"


@needs_cryptography
def test_who_does_not_require_them_takes_unsigned_ones_and_those_of_strangers() -> None:
    relaxed = Trust(keys=frozenset({"0" * 64}))
    assert relaxed.objection(entry()) is None
    assert relaxed.objection(signed()) is None


@needs_cryptography
def test_a_key_of_another_kind_is_refused() -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    other = X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for key in (other, b"no key at all"):
        with pytest.raises(CacheError):
            sign(entry(), key)


def test_without_the_package_unsigned_caches_work_and_signed_ones_say_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    carried = dataclasses.replace(entry(), signature=Signature(key="0" * 64, value="0" * 128))
    assert Trust().objection(carried) is None
    with pytest.raises(CacheError, match=r"edgetrain\[sign\]"):
        Trust(keys=frozenset({"0" * 64})).objection(carried)
