"""The directory of the engine's socket."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from slotgate.backends.private_dir import PrivateDirectory
from slotgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short path, as the path of a socket must be."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


def age(directory: Path) -> None:
    os.utime(directory, (1, 1))


def test_it_is_for_us_alone_and_can_be_made_again_at_the_same_path(place: Path) -> None:
    directory = PrivateDirectory(place)
    path = directory.path
    directory.make()
    assert path.stat().st_mode & 0o777 == 0o700
    directory.make()
    directory.remove()
    assert not path.exists()
    directory.make()
    assert directory.path == path
    assert path.is_dir()
    directory.remove()


def test_one_that_others_may_enter_is_not_used(place: Path) -> None:
    directory = PrivateDirectory(place)
    directory.path.mkdir()
    directory.path.chmod(0o755)
    with pytest.raises(ConfigError, match="not ours alone"):
        directory.make()


def test_a_link_is_not_followed(place: Path) -> None:
    elsewhere = place / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    directory = PrivateDirectory(place)
    directory.path.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="not ours alone"):
        directory.make()


def test_what_a_killed_gateway_left_is_removed_and_what_lives_is_not(place: Path) -> None:
    left = place / "slotgate-left"
    left.mkdir(mode=0o700)
    (left / "owner").touch()
    (left / "engine.sock").touch()
    foreign = place / "slotgate-foreign"
    foreign.mkdir(mode=0o700)
    young = place / "slotgate-young"
    young.mkdir(mode=0o700)
    (young / "owner").touch()
    living = PrivateDirectory(place)
    living.make()
    for directory in (left, foreign, living.path):
        age(directory)
    ours = PrivateDirectory(place)
    ours.make()
    assert not left.exists()
    assert foreign.exists()
    assert young.exists()
    assert living.path.exists()
    living.remove()
    ours.remove()


def test_a_path_too_long_for_a_socket_is_refused_with_the_remedy(place: Path) -> None:
    long = place / ("x" * 100)
    long.mkdir()
    with pytest.raises(ConfigError, match="set TMPDIR to a shorter path"):
        PrivateDirectory(long).make()
    assert list(long.iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(place: Path) -> None:
    with pytest.raises(ConfigError, match="set TMPDIR"):
        PrivateDirectory(place / "none").make()
