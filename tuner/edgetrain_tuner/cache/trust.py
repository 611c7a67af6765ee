"""Whom to believe: ed25519 signatures over ids, and what is refused for want of one.

A signature says who claims it. It does not make a schedule right: that is for the check before first use. The package
`cryptography` is needed where something is signed or verified, and nowhere else.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from edgetrain_tuner.cache.entry import FORMAT, Entry, Signature
from edgetrain_tuner.cache.errors import CacheError

# Points of small order are nobody's keys: for them anyone can make a signature, some of zeros alone. These are all of
# their encodings, without the bit of the sign.
_SMALL_ORDER = frozenset(
    bytes.fromhex(point)
    for point in (
        "00" * 32,
        "01" + "00" * 31,
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ec" + "ff" * 30 + "7f",
        "ed" + "ff" * 30 + "7f",
        "ee" + "ff" * 30 + "7f",
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """The public keys (64 hex digits each) that are believed, and whether an entry without one of them is refused."""

    keys: frozenset[str] = frozenset()
    require_signature: bool = False

    def objection(self, entry: Entry) -> str | None:
        """Why this entry is refused; none when it is not.

        A signature that does not fit its entry is always refused where signatures are looked at; one by a stranger
        counts as none. Raises `CacheError` where `cryptography` is missing and needed.
        """
        if entry.signature is None:
            return "it is not signed" if self.require_signature else None
        if not self.keys and not self.require_signature:
            return None
        if not is_genuine(entry):
            return "its signature does not match its content"
        if self.require_signature and entry.signature.key not in self.keys:
            return f"it is signed by a key that is not trusted: {entry.signature.key}"
        return None


def sign(entry: Entry, private_key: bytes) -> Entry:
    """The entry with a signature by an ed25519 key in PEM form. Raises `CacheError` for another kind of key."""
    _require_package()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(private_key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CacheError("this is no private key that can be used", why=str(error)) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise CacheError("this is no ed25519 key", why=f"it is a {type(key).__name__}")
    signature = Signature(
        key=key.public_key().public_bytes_raw().hex(),
        value=key.sign(_message(entry)).hex(),
    )
    return dataclasses.replace(entry, signature=signature)


def is_genuine(entry: Entry) -> bool:
    """Whether the entry's signature was made with the key it names, for this entry."""
    _require_package()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if entry.signature is None or _is_of_small_order(entry.signature.key):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(entry.signature.key))
        key.verify(bytes.fromhex(entry.signature.value), _message(entry))
    except (InvalidSignature, ValueError):
        return False
    return True


def _is_of_small_order(key: str) -> bool:
    raw = bytes.fromhex(key)
    return bytes((*raw[:-1], raw[-1] & 0x7F)) in _SMALL_ORDER


def can_verify() -> bool:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        return False
    return True


def _require_package() -> None:
    if not can_verify():
        raise CacheError(
            "signatures need the package `cryptography`", why="it is not installed: pip install 'edgetrain[sign]'"
        )


def _message(entry: Entry) -> bytes:
    # The format goes in too: a signature over an id must not pass for one over something else of 64 hex digits.
    return f"{FORMAT}\n{entry.id}".encode()
