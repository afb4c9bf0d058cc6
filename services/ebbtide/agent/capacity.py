"""What the machine has: declared by its owner, or detected.

Detection looks at what this process may use, not at what is built in: CPU affinity, the cgroup's
quota and its memory limit. GPUs are asked of the driver; a machine without one is no error.
"""

import os
import re
from pathlib import Path

import structlog

from ebbtide.contracts.errors import Malformed, Rejected
from ebbtide.contracts.units import DEVICES_MAX, MILLI, is_gpu, parse_vector_line

_MIB = 1 << 20
_UNLIMITED = 1 << 60
_MODEL = re.compile(r"[^a-z0-9]+")
_log = structlog.get_logger()


def declared(text: str) -> dict[str, int]:
    """Read ``cpu=4,memory=8Gi,gpu/h100=8``.

    Raises:
        Malformed: names the entry.
    """
    capacity = parse_vector_line("EBB_AGENT_CAPACITY", text)
    if sum(amount for name, amount in capacity.items() if is_gpu(name)) > DEVICES_MAX * MILLI:
        detail = f"a node has at most {DEVICES_MAX} devices"
        raise Malformed(Rejected(code="settings", field="EBB_AGENT_CAPACITY", detail=detail))
    return capacity


def detected() -> dict[str, int]:
    """Ask the machine. Blocking: the GPU driver may take a second."""
    capacity = {"cpu": cpu_milli(), "memory": memory_mib()}
    for model in gpu_models():
        name = f"gpu/{model}"
        capacity[name] = capacity.get(name, 0) + MILLI
    return capacity


def cpu_milli() -> int:
    """Give the CPUs this process may use, as far as a cgroup does not give it less time."""
    usable = len(os.sched_getaffinity(0)) * MILLI
    quota = _cgroup_number("cpu", "cpu.cfs_quota_us")
    period = _cgroup_number("cpu", "cpu.cfs_period_us")
    if quota > 0 and period > 0:
        usable = min(usable, quota * MILLI // period)
    words = _cgroup_text("", "cpu.max").split()
    if len(words) == 2 and words[0].isdigit():
        usable = min(usable, int(words[0]) * MILLI // int(words[1]))
    return max(1, usable)


def memory_mib() -> int:
    """Give the machine's memory, or the cgroup's limit where that is lower."""
    text = Path("/proc/meminfo").read_text()
    total = int(text.split("MemTotal:", 1)[1].split()[0]) * 1024
    for controller, file in (("memory", "memory.limit_in_bytes"), ("", "memory.max")):
        limit = _cgroup_number(controller, file)
        if 0 < limit < _UNLIMITED:
            total = min(total, limit)
    return total // _MIB


def _cgroup_number(controller: str, file: str) -> int:
    text = _cgroup_text(controller, file).strip()
    return int(text) if text.lstrip("-").isdigit() else 0


def _cgroup_text(controller: str, file: str) -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            place = Path("/sys/fs/cgroup") / controller / path.strip("/") / file
            try:
                return place.read_text()
            except OSError:
                return ""
    return ""


def gpu_models() -> list[str]:
    """List the models of the NVIDIA devices in the driver's order; none without a driver."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _log.info("gpu.no_driver", error=str(error))
        return []
    try:
        count = pynvml.nvmlDeviceGetCount()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        return [model_name(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    except pynvml.NVMLError as error:
        _log.warning("gpu.unreadable", error=str(error))
        return []
    finally:
        pynvml.nvmlShutdown()


def model_name(product: str | bytes) -> str:
    """Shorten a product's name to what jobs ask for: ``NVIDIA H100 80GB HBM3`` is ``h100``."""
    text = product.decode() if isinstance(product, bytes) else product
    words = [word for word in _MODEL.split(text.lower()) if word]
    vendor = ("nvidia", "tesla", "geforce", "quadro", "graphics", "device")
    named = [word for word in words if word not in vendor]
    return next((word for word in named if any(map(str.isdigit, word))), "-".join(named) or "gpu")
