"""Uploading code."""

import hashlib
from pathlib import Path

import pytest

from ebbtide.api import codes
from ebbtide.testing.door import RunningDoor

DATA = b"an archive" * 1000
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"


def _folder(api: RunningDoor) -> Path:
    return api.folder / "store" / "code"


async def test_uploaded_code_is_there_under_its_digest(api: RunningDoor) -> None:
    answer = await api.ask("PUT", f"/v1/code/{DIGEST}", body=DATA)
    assert (answer.status, answer.json) == (201, {"digest": DIGEST, "new": True})
    assert (_folder(api) / f"{DIGEST[7:]}.tar.zst").read_bytes() == DATA
    assert (await api.ask("HEAD", f"/v1/code/{DIGEST}")).status == 200


async def test_code_that_is_there_is_taken_again_without_change(api: RunningDoor) -> None:
    await api.ask("PUT", f"/v1/code/{DIGEST}", body=DATA)
    answer = await api.ask("PUT", f"/v1/code/{DIGEST}", body=DATA)
    assert (answer.status, answer.json["new"]) == (200, False)


async def test_code_that_is_not_there_is_not_found(api: RunningDoor) -> None:
    assert (await api.ask("HEAD", f"/v1/code/{DIGEST}")).status == 404


async def test_bytes_of_another_digest_are_refused_and_nothing_stays(api: RunningDoor) -> None:
    answer = await api.ask("PUT", f"/v1/code/{DIGEST}", body=DATA + b"!")
    assert (answer.status, answer.json["code"]) == (422, "code.digest")
    assert list(_folder(api).iterdir()) == []


async def test_code_of_more_than_the_bound_is_refused_and_nothing_stays(
    api: RunningDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codes, "CODE_BYTES_MAX", 1000)
    answer = await api.ask("PUT", f"/v1/code/{DIGEST}", body=DATA)
    assert (answer.status, answer.json["code"]) == (413, "code.too_large")
    assert list(_folder(api).iterdir()) == []


@pytest.mark.parametrize("digest", ["x", "sha256:..%2F..%2Fx", "sha256:" + "A" * 64, "md5:00"])
async def test_a_digest_that_is_none_reaches_no_file(api: RunningDoor, digest: str) -> None:
    answer = await api.ask("PUT", f"/v1/code/{digest}", body=DATA)
    assert answer.status in (404, 422)
    assert not _folder(api).exists()


async def test_an_upload_of_several_mebibytes_arrives_whole(api: RunningDoor) -> None:
    data = bytes(range(256)) * 20_000
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert (await api.ask("PUT", f"/v1/code/{digest}", body=data)).status == 201
    assert (_folder(api) / f"{digest[7:]}.tar.zst").read_bytes() == data


async def test_a_job_may_name_code_once_it_is_uploaded(api: RunningDoor) -> None:
    await api.ask("PUT", f"/v1/code/{DIGEST}", body=DATA)
    job = await api.submit(code=DIGEST)
    assert (await api.ask("GET", f"/v1/jobs/{job}")).json["spec"]["code"] == DIGEST
