"""Quantities as people write them, and as integers.

Resource vectors are integers: ``cpu`` in millicores, ``memory`` in MiB, ``gpu`` (any model) or
``gpu/<model>`` in thousandths of a device, and any custom name in thousandths. The usual spellings
are read (``500m``, ``1.5``, ``16Gi``, ``4``); negative, NaN, overflowing and unknown-suffix values
are refused with the path of the field.
"""

import re
from collections.abc import Mapping

from ebbtide.contracts.errors import Malformed, Rejected

MILLI = 1000
CPU_MAX_MILLI = 1_000_000 * MILLI
MEMORY_MAX_MIB = 1 << 40
COUNT_MAX_MILLI = 1_000_000 * MILLI
NAMES_MAX = 32
"""Names in one vector: events that show what a job needs, or lacks, must stay small."""
DEVICES_MAX = 64
"""Devices of one node: which of them are used is a mask of 64 bits."""

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)([A-Za-z]*)")
_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62})(/[a-z0-9]([a-z0-9._-]{0,62}))?")
_BYTES = {
    "": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip
_MIB = 2**20


def _refuse(field: str, detail: str, hint: str) -> Malformed:
    return Malformed(Rejected(code="spec.resources", field=field, detail=detail, hint=hint))


def _number(field: str, value: object) -> tuple[int, int, str]:
    """Read ``value`` as numerator, denominator and suffix, exactly."""
    text = repr(value) if isinstance(value, float) else str(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _refuse(
            field,
            f"a quantity is a number or a string, not {type(value).__name__}",
            'write "500m" or 2',
        )
    if len(text) > 40:
        raise _refuse(
            field, "this quantity has more than 40 characters", 'write "500m", 2 or "16Gi"'
        )
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise _refuse(field, f"{text!r} is not a quantity above zero", 'write "500m", 2 or "16Gi"')
    digits, suffix = match.groups()
    whole, _, fraction = digits.partition(".")
    return int((whole or "0") + fraction), 10 ** len(fraction), suffix


def _milli(field: str, value: object, limit: int) -> int:
    top, bottom, suffix = _number(field, value)
    if suffix not in ("", "m"):
        raise _refuse(field, f"unknown suffix {suffix!r}", 'use none, or "m" for thousandths')
    scaled, rest = divmod(top * (1 if suffix == "m" else MILLI), bottom)
    if rest or scaled == 0:
        raise _refuse(
            field, f"{value!r} is not a whole number of thousandths above zero", 'the least is "1m"'
        )
    if scaled > limit:
        raise _refuse(
            field, f"{value!r} is more than any machine has", f"the most is {limit // MILLI}"
        )
    return scaled


def _mebibytes(field: str, value: object) -> int:
    top, bottom, suffix = _number(field, value)
    if suffix not in _BYTES:
        raise _refuse(
            field,
            f"unknown suffix {suffix!r}",
            "use one of Ki Mi Gi Ti, k M G T, or none for bytes",
        )
    mib = -(-top * _BYTES[suffix] // (bottom * _MIB))
    if top == 0:
        raise _refuse(field, "memory must be above zero", 'write "512Mi"')
    if mib > MEMORY_MAX_MIB:
        raise _refuse(field, f"{value!r} is more than any machine has", "the most is 1 Ei")
    return mib


def parse_vector(field: str, given: Mapping[str, object]) -> dict[str, int]:
    """Read a resource vector; memory is rounded up to MiB.

    Args:
        field: the path shown in errors, such as ``roles.worker.resources``.
        given: names to quantities as a person wrote them.

    Raises:
        Malformed: with the path of the offending entry.
    """
    if len(given) > NAMES_MAX:
        raise _refuse(field, f"more than {NAMES_MAX} resources are named", "name fewer")
    vector: dict[str, int] = {}
    for key, value in given.items():
        name = str(key)  # YAML has keys that are no strings
        path = f"{field}.{name}"
        if _RESOURCE.fullmatch(name) is None:
            raise _refuse(
                field,
                f"{name!r} is not the name of a resource",
                "cpu, memory, gpu, gpu/<model> or a custom name",
            )
        if name == "memory":
            vector[name] = _mebibytes(path, value)
        else:
            vector[name] = _milli(path, value, CPU_MAX_MILLI if name == "cpu" else COUNT_MAX_MILLI)
        if is_gpu(name) and vector[name] > MILLI and vector[name] % MILLI:
            raise _refuse(
                path, f"{value!r} devices", "ask for a fraction below 1, or for whole devices"
            )
    return vector


def parse_vector_line(field: str, text: str) -> dict[str, int]:
    """Read a resource vector from one line: ``cpu=4,memory=8Gi,gpu/h100=8``.

    Raises:
        Malformed: with the path of the offending entry.
    """
    entries = [entry.partition("=") for entry in text.split(",") if entry.strip()]
    given: Mapping[str, object] = {name.strip(): value.strip() for name, _, value in entries}
    return parse_vector(field, given)


def is_gpu(name: str) -> bool:
    """Say whether a resource is counted in devices: ``gpu`` (any model) or ``gpu/<model>``."""
    return name == "gpu" or name.startswith("gpu/")


def show_vector(vector: Mapping[str, int]) -> str:
    """Write a resource vector for people: ``cpu 1.5, memory 2Gi, gpu/h100 8``."""
    return (
        ", ".join(
            f"{name} {show_quantity(name, amount)}" for name, amount in sorted(vector.items())
        )
        or "nothing"
    )


def show_quantity(name: str, amount: int) -> str:
    """Write one amount of resource ``name`` exactly: ``4``, ``1.5``, ``500m``, ``2Gi``."""
    if name == "memory":
        return f"{amount // 1024}Gi" if amount % 1024 == 0 else f"{amount}Mi"
    if 0 < abs(amount) < MILLI:
        return f"{amount}m"
    return f"{amount / MILLI:.3f}".rstrip("0").rstrip(".")
