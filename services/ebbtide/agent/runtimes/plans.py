"""From what fleet desires to what is executed: a worker's environment and limits. Pure.

People program against the names here. The environment is built from nothing: a worker must see
neither the agent's own variables nor its token.
"""

import hashlib

import msgspec

from ebbtide.agent.model import Note, WorkerKey
from ebbtide.agent.runtimes import Plan
from ebbtide.contracts.agents import DesiredAttempt, DesiredWorker


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The node as its workers see it. ``interpreter`` is the folder of the agent's own Python."""

    node: str
    address: str
    store: str
    door: str
    interpreter: str
    home: str
    temporary: str
    has_gpus: bool
    secret: bytes


def password(secret: bytes, key: WorkerKey) -> str:
    """Derive what a worker shows at the door: its name and a seal that only this node can make."""
    seal = hashlib.blake2b(str(key).encode(), key=secret, digest_size=16).hexdigest()
    return f"{key}:{seal}"


def key_of(attempt: DesiredAttempt, worker: DesiredWorker) -> WorkerKey:
    """Name a worker."""
    return WorkerKey(attempt.job, attempt.epoch, attempt.attempt, attempt.round, worker.worker)


def whole_gpus(worker: DesiredWorker) -> int:
    """Count the devices that a worker has for itself."""
    return 0 if worker.share_milli else worker.devices.bit_count()


def plan(
    host: Host, attempt: DesiredAttempt, worker: DesiredWorker, master: str, note: Note
) -> Plan:
    """Plan one worker; ``master`` is ``address:port`` of the rendezvous."""
    key = key_of(attempt, worker)
    return Plan(
        key=key,
        note=note,
        args=worker.command,
        env=environment(host, attempt, worker, master),
        code=attempt.code,
        cpu_milli=worker.resources.get("cpu", 0),
        memory_mib=worker.resources.get("memory", 0),
    )


def environment(
    host: Host, attempt: DesiredAttempt, worker: DesiredWorker, master: str
) -> dict[str, str]:
    """Build a worker's whole environment; the platform's own names win over the job's.

    TMPDIR stays short on purpose: sockets that frameworks make there may have names of 107 bytes.
    """
    address, _, port = master.rpartition(":")
    devices = _devices(worker.devices)
    env = {
        "PATH": f"{host.interpreter}:/usr/local/bin:/usr/bin:/bin",
        "HOME": host.home,
        "LANG": "C.UTF-8",
        "TMPDIR": host.temporary,
        "PYTHONUNBUFFERED": "1",
        **attempt.env,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "RANK": str(worker.worker),
        "WORLD_SIZE": str(attempt.world),
        "LOCAL_RANK": "0",
        "NPROC_PER_NODE": str(whole_gpus(worker) or 1),
        "EBB_JOB": attempt.job,
        "EBB_JOB_NAME": attempt.name,
        "EBB_WORKSPACE": attempt.workspace,
        "EBB_ATTEMPT": str(attempt.attempt),
        "EBB_ROUND": str(attempt.round),
        "EBB_EPOCH": str(attempt.epoch),
        "EBB_WORKER": str(worker.worker),
        "EBB_ROLE": worker.role,
        "EBB_ROLE_INDEX": str(worker.index),
        "EBB_NODE": host.node,
        "EBB_CHECKPOINTS": f"{host.store}/checkpoints/{attempt.job}",
        "EBB_RESUME_STEP": "" if attempt.resume_step is None else str(attempt.resume_step),
        "EBB_RESUME_FOLDER": attempt.resume_folder,
        "EBB_SOCKET": host.door,
        "EBB_KEY": password(host.secret, key_of(attempt, worker)),
    }
    if devices or host.has_gpus:
        env["CUDA_VISIBLE_DEVICES"] = devices
    return env


def _devices(mask: int) -> str:
    return ",".join(str(bit) for bit in range(mask.bit_length()) if mask >> bit & 1)
