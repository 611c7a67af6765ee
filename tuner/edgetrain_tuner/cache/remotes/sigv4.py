"""AWS Signature Version 4 for S3, as its documentation gives it; MinIO, Ceph, R2 and others check the same."""

from __future__ import annotations

import datetime
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

_ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    key_id: str
    secret_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
    region: str = "us-east-1"


def signed_headers(
    credentials: Credentials,
    *,
    method: str,
    host: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes,
    now: datetime.datetime,
) -> dict[str, str]:
    """`headers` with date, body's hash and authorization. `path` is unquoted; `now` is in UTC."""
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    body_hash = hashlib.sha256(body).hexdigest()
    everything = {**headers, "x-amz-date": stamp, "x-amz-content-sha256": body_hash}
    if credentials.session_token:
        everything["x-amz-security-token"] = credentials.session_token
    signed = {name.lower(): " ".join(value.split()) for name, value in {**everything, "host": host}.items()}
    names = ";".join(sorted(signed))
    request = "\n".join(
        (
            method,
            quoted_path(path),
            quoted_query(query),
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            body_hash,
        )
    )
    scope = f"{stamp[:8]}/{credentials.region}/s3/aws4_request"
    text = "\n".join((_ALGORITHM, stamp, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    authorization = f"{_ALGORITHM} Credential={credentials.key_id}/{scope},SignedHeaders={names},Signature={signature}"
    return {**everything, "Authorization": authorization}


def quoted_path(path: str) -> str:
    return quote(path, safe="/-_.~")


def quoted_query(query: Mapping[str, str]) -> str:
    return "&".join(f"{quote(name, safe='-_.~')}={quote(query[name], safe='-_.~')}" for name in sorted(query))
