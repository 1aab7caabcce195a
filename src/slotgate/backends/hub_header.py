"""Reads a model's header out of a Hugging Face repository: some MiB, and nothing is kept.

It blocks, so a program with an event loop calls it in a thread.  What was fetched before is read
where it is, without asking the network if it is surely what would be chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError

from slotgate.backends.hub_fetch import explain, find_kept, is_certain
from slotgate.backends.hub_files import choose_files
from slotgate.capacity.header import Header, read_header
from slotgate.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HubHeader:
    """The header of a file in a repository.

    `file` is its name there, the first part of a split model.  `kept` is where it is on this
    machine, None if it is not.  `read_bytes` is what was read of it over the network.
    """

    file: str
    header: Header
    kept: Path | None = None
    read_bytes: int = 0


def read_hub_header(
    repository: str, wanted: str | None, *, endpoint: str | None = None
) -> HubHeader:
    """Read the header of the file that is meant; ModelError if it cannot be had.

    `endpoint` is the hub's address, Hugging Face's own (or HF_ENDPOINT) if None.
    """
    kept = find_kept(repository, wanted)
    if kept is not None and is_certain(kept, wanted):
        return _read_kept(kept)
    try:
        names = _names(repository, endpoint)
    except Exception as error:
        # The library passes on whatever its HTTP library raises, which has changed before.
        if kept is not None and not isinstance(error, HfHubHTTPError):
            return _read_kept(kept)
        raise ModelError(explain(repository, error)) from error
    first, *_ = choose_files(names, wanted, repository=repository)
    remote = _Remote(repository, endpoint)
    header = read_header(first, opener=remote.open)
    return HubHeader(file=first, header=header, read_bytes=remote.read_bytes)


def _names(repository: str, endpoint: str | None) -> list[str]:
    """The files of the repository, in one request: a listing is tried for half a minute."""
    api = huggingface_hub.HfApi(endpoint=endpoint)
    info = api.model_info(repository, timeout=_TIMEOUT_SECONDS)
    return [file.rfilename for file in info.siblings or ()]


def _read_kept(path: Path) -> HubHeader:
    return HubHeader(file=path.name, header=read_header(path), kept=path)


class _Remote:
    """Opens a repository's files and counts what is read of them."""

    def __init__(self, repository: str, endpoint: str | None) -> None:
        self.read_bytes = 0
        self.repository = repository
        # Not one that was made for another hub, or remembers what the repository had before.
        self._files = huggingface_hub.HfFileSystem(endpoint=endpoint, skip_instance_cache=True)

    def open(self, name: str, mode: str) -> Any:
        """Open a file to read forward; blocks are asked for as they are read, and none ahead."""
        path = f"{self.repository}/{name}"
        try:
            file = self._files.open(path, mode, cache_type="none")
        except Exception as error:
            raise ModelError(explain(self.repository, error)) from error
        return _Counted(file, self)


class _Counted:
    """A file whose bytes are counted; as much of one as a header is read with."""

    def __init__(self, file: Any, remote: _Remote) -> None:
        self._file = file
        self._remote = remote

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, length: int) -> bytes:
        try:
            data: bytes = self._file.read(length)
        except Exception as error:
            raise ModelError(explain(self._remote.repository, error)) from error
        self._remote.read_bytes += len(data)
        return data
