"""Reads a job from a TOML, YAML or JSON file, within bounds that a job never needs to pass.

Files come from people and from programs that write them; nothing in one may cost memory or time
beyond its size: YAML aliases, deep nesting and numbers that are none are refused, not tried.
"""

from pathlib import Path
from typing import Any, NoReturn

from ebbtide.contracts.errors import Malformed, Rejected

FILE_BYTES_MAX = 256 * 1024
DEPTH_MAX = 32
"""A job is five levels deep."""


def _refuse(path: Path, detail: str, hint: str = "") -> Malformed:
    return Malformed(Rejected(code="job_file", field=str(path), detail=detail, hint=hint))


def load(path: Path) -> dict[str, object]:
    """Read the tables of a job file.

    Raises:
        Malformed: names the file, and the line where that is known.
    """
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise _refuse(path, "a job file ends in .toml, .yaml, .yml or .json", "rename it")
    text = _text(path)
    try:
        given = read(text)
    except RecursionError as error:
        raise _refuse(path, f"it is nested more than {DEPTH_MAX} levels deep") from error
    except (ValueError, _yaml_error()) as error:
        raise _refuse(path, _one_line(str(error))) from error
    if not isinstance(given, dict):
        raise _refuse(path, "a job file is a table", 'it begins like: name = "my-job"')
    return {str(name): value for name, value in given.items()}


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError as error:
        raise _refuse(path, "there is no such file", "check the path") from error
    except OSError as error:
        raise _refuse(path, f"it cannot be read: {error.strerror}") from error
    if len(data) > FILE_BYTES_MAX:
        hint = "a job is at most 48 KiB; put large things into the code folder"
        raise _refuse(path, f"it is larger than {FILE_BYTES_MAX // 1024} KiB", hint)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refuse(path, f"byte {error.start} is not UTF-8") from error


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _toml(text: str) -> object:
    import tomllib

    return tomllib.loads(text)


def _json(text: str) -> object:
    import json

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a number of JSON")

    return json.loads(text, parse_constant=refuse, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = next(name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1)
        raise ValueError(f"{twice!r} is written twice in one table")
    return table


def _yaml_error() -> type[Exception]:
    """Give the error of the YAML library, if it was needed at all."""
    import sys

    library = sys.modules.get("yaml")
    return library.YAMLError if library is not None else ValueError


def _yaml(text: str) -> object:
    import yaml  # type: ignore[import-untyped]  # the library has no types

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = 0
    for event in yaml.parse(text, Loader=loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            line = event.start_mark.line + 1
            raise ValueError(f"line {line}: anchors and aliases are not read; write it out")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEPTH_MAX:
            raise RecursionError

    class Unique(loader):  # type: ignore[misc]  # the library is untyped
        """Refuses a key that is written twice, which YAML would settle in silence."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            names = [self.construct_object(key, deep=True) for key, _ in node.value]
            for name in names:
                if names.count(name) > 1:
                    line = node.start_mark.line + 1
                    raise ValueError(f"line {line}: {name!r} is written twice in one table")
            table: dict[Any, Any] = super().construct_mapping(node, deep)
            return table

    return yaml.load(text, Loader=Unique)  # noqa: S506 - a safe loader with one more check


_READERS = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml, ".json": _json}
