"""Every kind of remote, each made of what is on this machine."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgetrain_tuner.cache.remotes.open import normal_address, open_remote
from edgetrain_tuner.cache.remotes.remote import Access, Remote
from edgetrain_tuner.cache.serve import CacheServer, Service
from edgetrain_tuner.cache.store import Store
from tests.edgetrain_tuner.cache import fake_s3

TOKEN = "open-sesame"


@contextmanager
def serving(path: Path, **options: Any) -> Iterator[str]:
    """The address of a server over the store at `path`."""
    store = Store.open(path)
    server = CacheServer(("127.0.0.1", 0), Service(store=store, **options))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        store.close()


def git(*words: object, folder: Path) -> str:
    identity = {"GIT_AUTHOR_NAME": "Ada", "GIT_AUTHOR_EMAIL": "ada@example.org"}
    identity |= {"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.org"}
    done = subprocess.run(
        ["git", *map(str, words)],
        cwd=folder,
        env={**os.environ, **identity},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


Opener = Callable[[], Remote]


@pytest.fixture(params=["folder", "http", "git", "s3"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same remote again and again, each time as another person would."""
    people = iter(range(100))

    def access(**more: Any) -> Access:
        return Access(clone_folder=tmp_path / f"clone-{next(people)}.git", environment=os.environ, **more)

    match request.param:
        case "folder":
            (tmp_path / "shared folder").mkdir()
            yield lambda: open_remote(normal_address(str(tmp_path / "shared folder")), access())
        case "http":
            with serving(tmp_path / "served.sqlite", token=TOKEN) as url:
                yield lambda: open_remote(url, access(token=TOKEN))
        case "git":
            git("init", "--bare", "--initial-branch=trunk", "team.git", folder=tmp_path)
            yield lambda: open_remote(f"git+file://{tmp_path}/team.git", access())
        case "s3":
            with fake_s3.running() as server:
                yield lambda: open_remote(server.url, access(key_id=fake_s3.KEY_ID, secret_key=fake_s3.SECRET))
