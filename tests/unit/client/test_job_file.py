"""Reading job files."""

from pathlib import Path

import pytest

from ebbtide.client.job_file import FILE_BYTES_MAX, load
from ebbtide.contracts.errors import Malformed

TOML = """
name = "digits"
command = ["python", "train.py"]
[roles.worker]
replicas = 2
resources = { cpu = "1", memory = "1Gi" }
"""
YAML = """
name: digits
command: [python, train.py]
roles:
  worker:
    replicas: 2
    resources: {cpu: "1", memory: 1Gi}
"""
JSON = """{"name": "digits", "command": ["python", "train.py"],
"roles": {"worker": {"replicas": 2, "resources": {"cpu": "1", "memory": "1Gi"}}}}"""


def _file(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_the_three_formats_say_the_same(tmp_path: Path) -> None:
    files = [("a.toml", TOML), ("a.yaml", YAML), ("a.yml", YAML), ("a.json", JSON)]
    read = [load(_file(tmp_path, name, text)) for name, text in files]
    assert read == [read[0]] * 4
    assert read[0]["command"] == ["python", "train.py"]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "name = ", "value"),
        ("a.toml", "name = 'a'\nname = 'b'", "overwrite"),
        ("a.yaml", "a: [1", "line 1"),
        ("a.yaml", "a: &x 1\nb: *x", "anchors and aliases"),
        ("a.yaml", "a: 1\na: 2", "twice"),
        ("a.yaml", "- 1", "a table"),
        ("a.yaml", "", "a table"),
        ("a.yaml", "a: !!python/object:os.system x", "python"),
        ("a.yaml", "a: b: c", "line 1"),
        ("a.json", "{", "line 1"),
        ("a.json", '{"a": NaN}', "NaN"),
        ("a.json", '{"a": Infinity}', "Infinity"),
        ("a.json", '{"a": 1, "a": 2}', "twice"),
        ("a.json", "[1]", "a table"),
        ("a.json", '{"a": ' + "9" * 5000 + "}", "digits"),
        ("a.toml", b"\xff\xfe", "UTF-8"),
        ("a.txt", "name = 'a'", "ends in .toml"),
        ("a.json", "[" * 100_000, "nested"),
        ("a.yaml", "[" * 1000, "nested"),
        ("a.toml", "a = " + "[" * 5000, "nested"),
    ],
)
def test_a_file_that_is_no_job_is_named_with_what_is_wrong(
    tmp_path: Path, name: str, text: str | bytes, words: str
) -> None:
    path = _file(tmp_path, name, text)
    with pytest.raises(Malformed) as caught:
        load(path)
    assert caught.value.rejected.field == str(path)
    assert words in caught.value.rejected.detail
    assert "\n" not in caught.value.rejected.detail


def test_a_file_larger_than_any_job_is_not_even_parsed(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="larger than 256 KiB"):
        load(_file(tmp_path, "a.yaml", "a: " + "x" * FILE_BYTES_MAX))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match="no such file"):
        load(tmp_path / "nothing.toml")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").mkdir()
    with pytest.raises(Malformed, match="cannot be read"):
        load(tmp_path / "a.toml")
