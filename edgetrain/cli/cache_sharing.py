"""`edgetrain cache` between machines: push, pull, serve."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from edgetrain.cli.cache_local import store_path
from edgetrain.cli.console import Console
from edgetrain.cli.failure import as_edgetrain_error
from edgetrain.cli.stage_progress import StageProgress
from edgetrain.cli.trust import trust_of
from edgetrain.errors import DeviceError, EdgetrainError, UsageError
from edgetrain.locate import schedules_path, served_path, sharing_environment, teams_dir
from edgetrain_tuner.cache.entry import Entry
from edgetrain_tuner.cache.errors import CacheError
from edgetrain_tuner.cache.remotes.open import normal_address, open_remote
from edgetrain_tuner.cache.remotes.remote import Access, Remote
from edgetrain_tuner.cache.remotes.transport import is_loopback
from edgetrain_tuner.cache.serve import CacheServer, Service
from edgetrain_tuner.cache.store import Store
from edgetrain_tuner.cache.sync import Transfer
from edgetrain_tuner.cache.sync import pull as pull_from
from edgetrain_tuner.cache.sync import push as push_to
from edgetrain_tuner.cache.teams import Team, remembered_teams
from edgetrain_tuner.cache.trust import sign

_HOST, _PORT = "127.0.0.1", 8737
_MOST_TOKEN = 4096
_MOST_TOLD = 3
TOKEN_VARIABLE = "EDGETRAIN_CACHE_TOKEN"


def push(arguments: argparse.Namespace, word: str, console: Console) -> int:
    team = Team(url=normal_address(word), folder=teams_dir())
    prepare, signer = _signing(arguments.sign)
    with Store.open(store_path(arguments)) as store, StageProgress(console) as stages:
        transfer = push_to(
            store,
            _remote(team, arguments.token_file),
            name=team.name,
            everything=arguments.all,
            prepare=prepare,
            progress=lambda done, total: stages(f"pushing to {team.url}", done, total),
        )
    if signer:
        console.say(f"signed with the key {signer[0]}")
    text = json.dumps(_as_json(team, transfer)) if console.as_json else summary(team, transfer, "pushed", "to")
    console.data(text + "\n")
    return 0


def pull(arguments: argparse.Namespace, word: str, console: Console) -> int:
    """From one remote, which is remembered; or from all of those, where one that fails stops no other."""
    if word:
        team = _team(arguments, word)
        if arguments.forget:
            return _forget(team, console)
        transfer = _pulled(team, arguments, console)
        text = json.dumps(_as_json(team, transfer)) if console.as_json else summary(team, transfer, "pulled", "from")
        console.data(text + "\n")
        return 0
    if arguments.forget:
        raise UsageError("`--forget` needs the URL of the remote", fix="`edgetrain cache stats` lists the remotes")
    teams = remembered_teams(teams_dir())
    if not teams:
        raise UsageError("there is no remote to pull from", fix="name one: `edgetrain cache pull URL`")
    return _pull_all(teams, arguments, console)


def _pull_all(teams: Sequence[Team], arguments: argparse.Namespace, console: Console) -> int:
    reports: list[dict[str, object]] = []
    exit_code = 0
    for team in teams:
        try:
            transfer = _pulled(team, arguments, console)
        except (CacheError, EdgetrainError, OSError) as cause:
            error = as_edgetrain_error(cause)
            reports.append({"url": team.url, **error.to_json()})
            console.warn(f"{team.url}: {error.what}" + (f": {error.why}" if error.why else ""))
            exit_code = exit_code or error.exit_code
            continue
        reports.append(_as_json(team, transfer))
        if not console.as_json:
            console.data(summary(team, transfer, "pulled", "from") + "\n")
    if console.as_json:
        console.data(json.dumps({"remotes": reports}) + "\n")
    return exit_code


def serve(arguments: argparse.Namespace, _: str, console: Console) -> int:
    host, port = arguments.host or _HOST, _PORT if arguments.port is None else arguments.port
    token = _token(arguments.token_file)
    if not token and not arguments.read_only and not is_loopback(f"http://{_in_url(host)}"):
        raise UsageError(
            f"a cache at `{host}` would take schedules from everyone who reaches it",
            fix="set --token-file, or --read-only",
        )
    path = _served_path(arguments)
    with Store.open(path) as store:
        service = Service(store=store, token=token, read_only=arguments.read_only, trust=trust_of(arguments))
        with _listening(host, port, service) as server:
            url = f"http://{_in_url(host)}:{server.server_address[1]}"
            rights = "read-only" if arguments.read_only else "for reading and writing"
            whom = "with the token" if token else "without a token"
            if console.as_json:
                console.data(json.dumps({"url": url, "schedules": len(store), "read_only": arguments.read_only}) + "\n")
            console.say(f"serving {store.path} at {url}, {rights}, {whom}; Ctrl-C ends it")
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                console.say("stopped")
    return 0


def _served_path(arguments: argparse.Namespace) -> Path:
    """A store apart from the user's own. Raises `UsageError` where others would write into what was measured here."""
    path: Path = arguments.store or served_path()
    if not arguments.read_only and _is_same_file(path, schedules_path()):
        raise UsageError(
            f"`{path}` is your own store, which holds only what was measured on this machine",
            why="others would write into it",
            fix="add --read-only, or leave --store out: a store of its own is served then",
        )
    return path


def _is_same_file(one: Path, other: Path) -> bool:
    """Also by a link of either kind."""
    with contextlib.suppress(FileNotFoundError):
        return one.samefile(other)
    return one.resolve() == other.resolve()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _listening(host: str, port: int, service: Service) -> CacheServer:
    try:
        return CacheServer((host, port), service)
    except OSError as error:
        raise DeviceError(
            f"nothing can listen at {host}:{port}",
            why=error.strerror or str(error),
            fix="choose another --host or --port",
        ) from error


def summary(team: Team, transfer: Transfer, did: str, word: str) -> str:
    """`pulled 41 schedules for 12 kernel classes from URL, 3 refused: …`"""
    why = "; ".join(sorted({one.why for one in transfer.refused})[:_MOST_TOLD])
    told = f", {len(transfer.refused)} refused: {why}" if transfer.refused else ""
    schedules = f"{transfer.entries} schedule{'' if transfer.entries == 1 else 's'}"
    classes = f"{transfer.classes} kernel class{'' if transfer.classes == 1 else 'es'}"
    return f"{did} {schedules} for {classes} {word} {team.url}{told}"


def _team(arguments: argparse.Namespace, word: str) -> Team:
    """As it is asked for now; what it was asked for before, where nothing else is said."""
    url = normal_address(word)
    known = {team.url: team for team in remembered_teams(teams_dir())}.get(url, Team(url=url, folder=teams_dir()))
    token_file = str(arguments.token_file.resolve()) if arguments.token_file else known.token_file
    required = known.require_signature or bool(arguments.require_signature)
    return dataclasses.replace(known, token_file=token_file, require_signature=required)


def _pulled(team: Team, arguments: argparse.Namespace, console: Console) -> Transfer:
    trust = trust_of(arguments, require_signature=team.require_signature)
    token_file = arguments.token_file or (Path(team.token_file) if team.token_file else None)
    remote = _remote(team, token_file)
    is_known = team.url in {one.url for one in remembered_teams(team.folder)}
    team.remember()
    with Store.open(team.store_path) as store, StageProgress(console) as stages:
        try:
            return pull_from(
                remote, store, trust=trust, progress=lambda done, total: stages(f"pulling from {team.url}", done, total)
            )
        except CacheError:
            if len(store) == 0 and not is_known:  # a slip of the pen is not worth remembering
                team.forget()
            raise


def _forget(team: Team, console: Console) -> int:
    if not team.forget():
        raise UsageError(f"`{team.url}` is not remembered", fix="`edgetrain cache stats` lists the remotes")
    text = json.dumps({"forgotten": team.url}) if console.as_json else f"forgot {team.url}, and what came from it"
    console.data(text + "\n")
    return 0


def _remote(team: Team, token_file: Path | None) -> Remote:
    environment = sharing_environment()
    access = Access(
        token=_token(token_file),
        key_id=environment.get("AWS_ACCESS_KEY_ID", ""),
        secret_key=environment.get("AWS_SECRET_ACCESS_KEY", ""),
        session_token=environment.get("AWS_SESSION_TOKEN", ""),
        region=environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION", ""),
        clone_folder=team.clone_path,
        environment=environment,
    )
    return open_remote(team.url, access)


def _token(path: Path | None) -> str:
    """From the file, else from the environment. Its text is in no message."""
    if path is None:
        token, place = sharing_environment().get(TOKEN_VARIABLE, ""), TOKEN_VARIABLE
    else:
        if not path.is_file():
            raise UsageError(f"there is no file `{path}`", fix="--token-file names a file with the token in it")
        with path.open("rb") as stream:
            token, place = stream.read(_MOST_TOKEN + 1).decode("utf-8", "replace").strip(), str(path)
        if not token:
            raise UsageError(f"`{path}` is empty", fix="--token-file names a file with the token in it")
    if len(token) > _MOST_TOKEN or not token.isascii() or not (token + "x").isprintable():
        raise UsageError(f"`{place}` holds no token", why="a token is one line of plain characters")
    return token


def _signing(path: Path | None) -> tuple[Callable[[Entry], Entry], list[str]]:
    """What signs an entry that nobody has signed yet, and a list that will hold the public key."""
    if path is None:
        return (lambda entry: entry), []
    if not path.is_file():
        raise UsageError(f"there is no file `{path}`", fix="make one: `openssl genpkey -algorithm ed25519 -out FILE`")
    key = path.read_bytes()
    signer: list[str] = []

    def prepare(entry: Entry) -> Entry:
        if entry.signature is not None:
            return entry
        signed = sign(entry, key)
        if not signer and signed.signature is not None:
            signer.append(signed.signature.key)
        return signed

    return prepare, signer


def _as_json(team: Team, transfer: Transfer) -> dict[str, object]:
    return {
        "url": team.url,
        "schedules": transfer.entries,
        "classes": transfer.classes,
        "refused": [dataclasses.asdict(one) for one in transfer.refused],
    }
