"""Code folders: checked, bounded, and closed in themselves."""

import hashlib
import io
import tarfile
from pathlib import Path

import pytest
import zstandard

from ebbtide.agent import code_store
from ebbtide.agent.code_store import BadCode, CodeStore
from ebbtide.contracts.errors import NotFound

LINK, HARD, DEVICE, FOLDER = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


def put(store: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> str:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for one, body in entries:
            one.size = len(body)
            tar.addfile(one, io.BytesIO(body))
    packed = zstandard.ZstdCompressor().compress(plain.getvalue())
    digest = hashlib.sha256(packed).hexdigest()
    (store / "code").mkdir(parents=True, exist_ok=True)
    (store / "code" / f"{digest}.tar.zst").write_bytes(packed)
    return f"sha256:{digest}"


@pytest.fixture
def code(tmp_path: Path) -> CodeStore:
    return CodeStore(tmp_path / "store", tmp_path / "cache")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def test_files_folders_and_inner_links_are_laid_out(
    code: CodeStore, tmp_path: Path, work: Path
) -> None:
    name = put(
        tmp_path / "store",
        (entry("sub", FOLDER), b""),
        (entry("sub/a.py"), b"a"),
        (entry("b.py", LINK, "sub/a.py"), b""),
        (entry("sub/c.py", LINK, "../sub/a.py"), b""),
    )
    code.lay_out(name, work)
    assert (work / "b.py").read_bytes() == (work / "sub/c.py").read_bytes() == b"a"


def test_what_one_worker_changes_another_does_not_see(
    code: CodeStore, tmp_path: Path, work: Path
) -> None:
    name = put(tmp_path / "store", (entry("a.py"), b"a"))
    code.lay_out(name, work)
    (work / "a.py").write_bytes(b"changed")
    code.lay_out(name, tmp_path / "other")
    assert (tmp_path / "other/a.py").read_bytes() == b"a"


def test_damaged_code_is_refused(code: CodeStore, tmp_path: Path, work: Path) -> None:
    name = put(tmp_path / "store", (entry("a.py"), b"a"))
    archive = next((tmp_path / "store/code").iterdir())
    archive.write_bytes(archive.read_bytes() + b"x")
    with pytest.raises(BadCode, match="damaged"):
        code.lay_out(name, work)


def test_code_that_is_not_there_is_said(code: CodeStore, work: Path) -> None:
    with pytest.raises(NotFound, match="no code folder"):
        code.lay_out("sha256:" + "0" * 64, work)


@pytest.mark.parametrize(
    "one",
    [
        entry("/etc/evil"),
        entry("../evil"),
        entry("sub/../../evil"),
        entry("evil", LINK, "/etc/passwd"),
        entry("sub/evil", LINK, "../../x"),
        entry("evil", HARD, "../x"),
        entry("evil", DEVICE),
    ],
)
def test_nothing_may_point_out_of_its_folder(
    code: CodeStore, tmp_path: Path, work: Path, one: tarfile.TarInfo
) -> None:
    name = put(tmp_path / "store", (one, b""))
    with pytest.raises(BadCode):
        code.lay_out(name, work)
    assert list(work.iterdir()) == []


def test_a_link_laid_first_is_not_followed_out_by_a_later_entry(
    code: CodeStore, tmp_path: Path, work: Path
) -> None:
    name = put(
        tmp_path / "store",
        (entry("a", LINK, "."), b""),
        (entry("a/b", LINK, ".."), b""),
        (entry("a/b/evil"), b"x"),
    )
    with pytest.raises(BadCode):
        code.lay_out(name, work)
    assert not list(tmp_path.rglob("evil"))


def test_a_bomb_is_refused(
    code: CodeStore, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_store, "UNPACKED_MAX", 1000)
    name = put(tmp_path / "store", (entry("a"), bytes(1001)))
    with pytest.raises(BadCode, match="more than"):
        code.lay_out(name, work)


def test_an_archive_that_cannot_be_read_is_refused(
    code: CodeStore, tmp_path: Path, work: Path
) -> None:
    body = b"not an archive"
    digest = hashlib.sha256(body).hexdigest()
    (tmp_path / "store/code").mkdir(parents=True)
    (tmp_path / "store/code" / f"{digest}.tar.zst").write_bytes(body)
    with pytest.raises(BadCode, match="cannot be read"):
        code.lay_out(f"sha256:{digest}", work)


def test_only_the_newest_unpacked_folders_are_kept(
    code: CodeStore, tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_store, "KEPT", 2)
    for number in range(4):
        code.lay_out(put(tmp_path / "store", (entry("a"), b"%d" % number)), work)
    assert len(list((tmp_path / "cache").iterdir())) == 2
