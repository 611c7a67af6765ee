"""botocore as we use it: a client for one bucket of any S3-compatible server, and its errors in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from edgetrain_tuner.cache.errors import AddressError, MissingEntryError, UnreachableError
from edgetrain_tuner.cache.remotes.remote import Access
from edgetrain_tuner.cache.remotes.transport import checked_url, is_loopback

_ATTEMPTS = 3  # of a request that the server or the network failed
_REGION = "us-east-1"  # what servers that know no regions are asked with


def open_client(origin: str, access: Access) -> Any:
    """A client of the server at `origin`. Nothing is asked of it yet.

    Credentials are those of `access`; where it has none, botocore looks where AWS's own tools do: environment,
    profiles, single sign-on, the roles of containers and machines. Raises `AddressError` where there are none, where
    their session token would be sent in the clear, and where botocore is not installed.
    """
    try:
        import botocore.config
        import botocore.handlers
        import botocore.session
    except ImportError as error:
        raise AddressError(
            f"`s3+{origin}` needs the package `botocore`", why="it is not installed: pip install 'edgetrain[s3]'"
        ) from error
    with told(origin):
        session = botocore.session.Session()
        client = session.create_client(
            "s3",
            endpoint_url=origin,
            region_name=access.region or session.get_config_variable("region") or _REGION,
            aws_access_key_id=access.key_id or None,
            aws_secret_access_key=access.secret_key or None,
            aws_session_token=access.session_token or None,
            verify=access.environment.get("AWS_CA_BUNDLE") or access.environment.get("SSL_CERT_FILE"),
            config=botocore.config.Config(
                signature_version="s3v4",
                s3={"addressing_style": "path"},
                connect_timeout=access.timeout_s,
                read_timeout=access.timeout_s,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                proxies={} if is_loopback(origin) else None,
                # Checksums in trailers are Amazon's own; other servers refuse them.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
        _require_credentials(client, origin)
    # An entry is small: asking first whether it may be sent is a round trip, and a second where a server says nothing.
    client.meta.events.unregister("before-call.s3", botocore.handlers.add_expect_header)
    return client


def _require_credentials(client: Any, origin: str) -> None:
    credentials = client._request_signer._credentials  # those that the client signs with; it has no other name for them
    if credentials is None:
        raise AddressError(
            f"`s3+{origin}` needs credentials",
            why="AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and no profile (AWS_PROFILE) or role has any",
        )
    checked_url(origin, secret=credentials.get_frozen_credentials().token or "")


@contextmanager
def told(origin: str) -> Iterator[None]:
    """Whatever botocore raises, as one of ours."""
    import botocore.exceptions as theirs
    from botocore.parsers import ResponseParserError

    refusals = (
        theirs.NoCredentialsError,
        theirs.PartialCredentialsError,
        theirs.CredentialRetrievalError,
        theirs.ConfigNotFound,
        theirs.ConfigParseError,
        theirs.ProfileNotFound,
        theirs.SSOError,
        theirs.TokenRetrievalError,
        theirs.InvalidConfigError,
        theirs.InvalidRegionError,
        theirs.ParamValidationError,
    )
    try:
        yield
    except theirs.ClientError as error:
        raise _refusal(error, origin) from None
    except refusals as error:
        raise AddressError(f"`s3+{origin}` cannot be asked", why=_first_line(error)) from None
    except theirs.BotoCoreError as error:
        raise UnreachableError(f"`{origin}` cannot be reached", why=_first_line(error)) from None
    except ResponseParserError as error:
        raise UnreachableError(f"`{origin}` is no S3 server", why=_first_line(error)) from None
    except ValueError as error:  # an endpoint that botocore takes for none
        raise AddressError(f"`s3+{origin}` is no address", why=_first_line(error)) from None


def status_of(error: Any) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _refusal(error: Any, origin: str) -> Exception:
    code = str(error.response.get("Error", {}).get("Code", ""))[:60]
    match status_of(error):
        case 404 if code == "NoSuchBucket":
            return AddressError(f"there is no such bucket at `{origin}`", why=code)
        case 404:
            return MissingEntryError(f"`{origin}` has no such entry")
        case 301 | 302 | 303 | 307 | 308:
            return AddressError(f"`{origin}` has moved", why=code)
        case 400 | 401 | 403:
            return AddressError(f"`{origin}` refused the request", why=code)
    return UnreachableError(f"`{origin}` answered with status {status_of(error)}", why=code)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
