"""A bare clone, driven with the `git` program. Nothing is checked out: no link or path in it reaches outside."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from edgetrain_tuner.cache.errors import AddressError, UnreachableError

_TIP = "refs/edgetrain/tip"
_OURS = "refs/edgetrain/ours"
_USUAL_BRANCHES = ("refs/heads/main", "refs/heads/master")
_NOBODY = "edgetrain <edgetrain@localhost>"
# Neither hooks nor a helper program that an address or a repository names are run.
_SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "protocol.ext.allow=never", "-c", "gc.auto=0")
# A repository on this machine is served by git itself, as this user: it would run the hooks of the repository, and the
# commands that its settings name, some of them only where it updates checked-out files.
_SERVED = (
    "git -c core.hooksPath=/dev/null -c receive.autogc=false -c core.fsmonitor=false"
    " -c core.alternateRefsCommand= -c receive.denyCurrentBranch=refuse"
)
# Of somebody who runs us inside a hook of another repository.
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE", "GIT_PREFIX")
_REFUSED = (
    *("authentication", "denied", "could not read username", "error: 401", "error: 403", "declined", "protected"),
    "checked out",
)
_NOTHING_THERE = ("does not appear to be a git repository", "not found", "does not exist")


class Clone:
    """`fetch` first. `tip` is the commit that was fetched, empty where the repository is; only `fetch` moves it."""

    def __init__(self, url: str, folder: Path, *, environment: Mapping[str, str], timeout_s: float) -> None:
        self.url = url
        self.tip = ""
        self._branch = ""
        self._folder = folder
        kept = {name: value for name, value in environment.items() if name not in _ELSEWHERE}
        self._environment = {
            "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
            **kept,
            "GIT_NO_LAZY_FETCH": "1",  # a partial repository would run what its settings name to fetch the rest
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }
        self._limit_s = 20 * timeout_s  # a first fetch is many requests

    def fetch(self) -> None:
        """Raises `AddressError` and `UnreachableError`, as everything here does."""
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if not (self._folder / "HEAD").exists():
                self._make()
            lines = self._heads()
            heads = frozenset(line.split("\t")[1] for line in lines if "\trefs/heads/" in line)
            named = [line.split()[1] for line in lines if line.startswith("ref: ")]
            # Nobody says what the HEAD of an empty repository names, but for the clone.
            named = named or [self._git("symbolic-ref", "HEAD").decode().strip(), *_USUAL_BRANCHES, *sorted(heads)]
            self._branch = next((name for name in named if name in heads), named[0])
            self.tip = ""
            if self._branch in heads:
                self._git(
                    "fetch",
                    "--quiet",
                    "--no-tags",
                    *self._served("upload-pack"),
                    "--",
                    self.url,
                    f"+{self._branch}:{_TIP}",
                )
                self.tip = self._git("rev-parse", "--verify", _TIP).decode().strip()

    def _heads(self) -> list[str]:
        service = self._served("upload-pack")
        return (
            self._git("ls-remote", "--symref", *service, "--", self.url, "HEAD", "refs/heads/*").decode().splitlines()
        )

    def _make(self) -> None:
        """Beside its place first: a clone that was killed must not be taken for one."""
        place = self._folder.with_name(self._folder.name + ".new")
        shutil.rmtree(place, ignore_errors=True)
        self._run(["clone", "--quiet", "--bare", "--no-tags", *self._served("upload-pack"), "--", self.url, str(place)])
        place.rename(self._folder)

    def _served(self, service: str) -> tuple[str, ...]:
        """What a local repository is asked by. On another machine its owner decides what runs."""
        return (f"--{service}={_SERVED} {service}",) if self.url.startswith("file:") else ()

    def files(self) -> Mapping[str, str]:
        """Every plain file at the tip: its path and the hash of its content."""
        if not self.tip:
            return {}
        files = {}
        for row in self._git("ls-tree", "-r", "-z", self.tip).split(b"\0"):
            meta, _, path = row.partition(b"\t")
            if meta.startswith(b"100644 blob "):
                files[path.decode("utf-8", "replace")] = meta.split()[2].decode()
        return files

    def contents(self, blobs: Sequence[str], *, most_bytes: int) -> Mapping[str, bytes]:
        """What is behind these hashes, in two calls of git however many; without those that are longer."""
        sizes = self._git("cat-file", "--batch-check", feed="".join(f"{blob}\n" for blob in blobs).encode())
        rows = [row.split() for row in sizes.decode().splitlines()]
        short = [row[0] for row in rows if len(row) == 3 and int(row[2]) <= most_bytes]
        raw = self._git("cat-file", "--batch", feed="".join(f"{blob}\n" for blob in short).encode())
        found, place = {}, 0
        for blob in short:
            end = raw.index(b"\n", place)
            size = int(raw[place:end].split()[2])
            found[blob] = raw[end + 1 : end + 1 + size]
            place = end + 1 + size + 1
        return found

    def push(self, files: Mapping[str, bytes], *, message: str) -> bool:
        """Commits the files on top of the tip and pushes; false when somebody else was quicker."""
        with self._locked():
            self._git(
                "fast-import", "--quiet", "--force", "--date-format=now", feed=b"".join(self._stream(files, message))
            )
            ours = self._git("rev-parse", "--verify", _OURS).decode().strip()
        command = [
            "push",
            "--porcelain",
            "--no-verify",
            *self._served("receive-pack"),
            "--",
            self.url,
            f"{ours}:{self._branch}",
        ]
        done = self._run(["-C", str(self._folder), *command], may_fail=True)
        if done.returncode == 0:
            return True
        words = (done.stdout + done.stderr).decode("utf-8", "replace")
        is_rejected = any(line.startswith("!") for line in words.splitlines())
        if is_rejected and not any(reason in words.lower() for reason in _REFUSED):
            return False
        raise self._failure(words)

    def _stream(self, files: Mapping[str, bytes], message: str) -> Iterator[bytes]:
        ident = self._run(["var", "GIT_COMMITTER_IDENT"], may_fail=True).stdout.decode().strip()
        who = ident.rpartition("> ")[0] + ">" if "> " in ident else _NOBODY
        raw = message.encode()
        # Without the reset, git would take what an earlier push left under this name for the parent.
        yield f"reset {_OURS}\n\ncommit {_OURS}\ncommitter {who} now\ndata {len(raw)}\n".encode() + raw + b"\n"
        if self.tip:
            yield f"from {self.tip}\n".encode()
        for path, content in files.items():
            yield f"M 100644 inline {path}\ndata {len(content)}\n".encode() + content + b"\n"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Two commands of one user may use the clone at once."""
        place = self._folder.with_name(self._folder.name + ".lock")
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _git(self, *command: str, feed: bytes | None = None) -> bytes:
        return self._run(["-C", str(self._folder), *command], feed=feed).stdout

    def _run(
        self, command: Sequence[str], *, feed: bytes | None = None, may_fail: bool = False
    ) -> subprocess.CompletedProcess[bytes]:
        try:
            done = subprocess.run(
                ["git", *_SAFE, *command],
                env=self._environment,
                input=b"" if feed is None else feed,
                capture_output=True,
                check=False,
                timeout=self._limit_s,
            )
        except FileNotFoundError:
            raise AddressError(f"`{self.url}` needs git", why="there is no `git` on PATH") from None
        except OSError as error:
            raise UnreachableError("git does not start", why=error.strerror or str(error)) from error
        except subprocess.TimeoutExpired:
            raise UnreachableError(f"`{self.url}` did not answer", why=f"git took over {self._limit_s:g} s") from None
        if done.returncode and not may_fail:
            raise self._failure(done.stderr.decode("utf-8", "replace"))
        return done

    def _failure(self, words: str) -> Exception:
        lines = [line.strip() for line in words.splitlines() if line.strip()]
        why = next((line for line in lines if line.startswith(("fatal:", "error:", "remote:"))), "; ".join(lines[-2:]))
        plain = "".join(c if c.isprintable() else "?" for c in why)[:300]
        if any(reason in words.lower() for reason in _REFUSED):
            return AddressError(f"`{self.url}` refused git", why=plain)
        if any(reason in words.lower() for reason in _NOTHING_THERE):
            return AddressError(f"there is no git repository at `{self.url}`", why=plain)
        return UnreachableError(f"git could not reach `{self.url}`", why=plain)
