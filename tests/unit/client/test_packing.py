"""Packing a code folder."""

import os
import tarfile
from pathlib import Path

import pytest
import zstandard

from ebbtide.client import packing
from ebbtide.client.packing import is_left_out, pack, read_rules
from ebbtide.contracts.errors import Malformed


def _names(folder: Path) -> list[str]:
    archive = pack(folder)
    with archive.file as file:
        plain = zstandard.ZstdDecompressor().stream_reader(file)
        with tarfile.open(fileobj=plain, mode="r|") as tar:
            return [entry.name for entry in tar]


def _digest(folder: Path) -> str:
    archive = pack(folder)
    archive.file.close()
    return archive.digest


def _write(folder: Path, name: str, text: str = "x") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_same_files_give_the_same_digest_wherever_and_whenever_they_lie(tmp_path: Path) -> None:
    for name in ("one", "two"):
        for file in ("b.py", "a/c.py") if name == "one" else ("a/c.py", "b.py"):
            _write(tmp_path / name, file, file)
    os.utime(tmp_path / "two" / "b.py", (1, 1))
    assert _digest(tmp_path / "one") == _digest(tmp_path / "two")


def test_another_byte_gives_another_digest(tmp_path: Path) -> None:
    _write(tmp_path, "a.py", "1")
    before = _digest(tmp_path)
    _write(tmp_path, "a.py", "2")
    assert _digest(tmp_path) != before


def test_the_digest_is_that_of_the_archives_bytes(tmp_path: Path) -> None:
    import hashlib

    _write(tmp_path, "a.py")
    archive = pack(tmp_path)
    with archive.file as file:
        data = file.read()
    assert archive.digest == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert archive.size == len(data)


def test_what_nobody_wants_is_left_out(tmp_path: Path) -> None:
    for name in ("train.py", ".git/HEAD", "__pycache__/a.pyc", "b.pyc", ".venv-x/bin/python"):
        _write(tmp_path, name)
    assert _names(tmp_path) == ["train.py"]


def test_an_ebbignore_is_read_instead_of_a_gitignore(tmp_path: Path) -> None:
    _write(tmp_path, ".gitignore", "kept.txt\n")
    _write(tmp_path, ".ebbignore", "data/\n")
    for name in ("kept.txt", "data/big", "train.py"):
        _write(tmp_path, name)
    assert _names(tmp_path) == [".gitignore", "kept.txt", "train.py"]


@pytest.mark.parametrize(
    ("rules", "path", "left_out"),
    [
        ("*.bin", "a/b/c.bin", True),
        ("*.bin", "a/b/c.bins", False),
        ("/top", "top", True),
        ("/top", "a/top", False),
        ("a/*.txt", "a/x.txt", True),
        ("a/*.txt", "a/b/x.txt", False),
        ("a/**/x.txt", "a/b/c/x.txt", True),
        ("a/**/x.txt", "a/x.txt", True),
        ("data/", "data", False),
        ("*.log\n!keep.log", "keep.log", False),
        ("# comment\n\n", "comment", False),
        ("a[1].txt", "a[1].txt", True),
        ("?.py", "a.py", True),
        ("?.py", "ab.py", False),
    ],
)
def test_ignore_lines_mean_what_people_expect(rules: str, path: str, left_out: bool) -> None:
    assert is_left_out(read_rules(rules), path, is_folder=False) is left_out


def test_a_folder_rule_leaves_out_the_folder(tmp_path: Path) -> None:
    assert is_left_out(read_rules("data/"), "x/data", is_folder=True)


def test_programs_stay_executable_and_owners_are_forgotten(tmp_path: Path) -> None:
    _write(tmp_path, "run.sh").chmod(0o755)
    _write(tmp_path, "plain.txt").chmod(0o600)
    archive = pack(tmp_path)
    with archive.file as file:
        plain = zstandard.ZstdDecompressor().stream_reader(file)
        with tarfile.open(fileobj=plain, mode="r|") as tar:
            facts = {entry.name: (entry.mode, entry.uid, entry.mtime) for entry in tar}
    assert facts == {"run.sh": (0o755, 0, 0), "plain.txt": (0o644, 0, 0)}


def test_a_link_within_the_folder_is_kept_as_a_link(tmp_path: Path) -> None:
    _write(tmp_path, "a/real.py")
    (tmp_path / "a" / "link.py").symlink_to("real.py")
    assert _names(tmp_path) == ["a", "a/link.py", "a/real.py"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "a/../../outside"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, target: str) -> None:
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(Malformed, match="leads out"):
        pack(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="no such folder"):
        pack(tmp_path / "nothing")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "FILES_MAX", 2)
    for name in "abc":
        _write(tmp_path, name)
    with pytest.raises(Malformed, match="more than 2 files"):
        pack(tmp_path)


def test_too_much_content_is_refused_and_the_largest_files_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "CONTENT_BYTES_MAX", 1000)
    _write(tmp_path, "data.bin", "x" * 2000)
    with pytest.raises(Malformed) as caught:
        pack(tmp_path)
    assert "data.bin" in caught.value.rejected.hint


def test_too_large_an_archive_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "ARCHIVE_BYTES_MAX", 1000)
    (tmp_path / "noise.bin").write_bytes(os.urandom(5000))
    with pytest.raises(Malformed, match="when packed"):
        pack(tmp_path)
