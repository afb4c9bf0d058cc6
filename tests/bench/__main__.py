"""Run benches by name, or all: ``python -m tests.bench [--seed N] [--out FILE] [NAME …]``.

HyperQueue's figure of the same sitting is taken first, where its script and wheel are at hand.
"""

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.bench import comeback, measures
from tests.bench.ground import ROOT, SHARED, Results

BENCHES: dict[str, Callable[[Results, int], None]] = {
    "latency": measures.latency,
    "latency-split": partial(measures.latency, split=True),
    "latency-300": partial(measures.latency_at_rate, rate=300),
    "throughput-1k": partial(measures.throughput, count=1_000),
    "throughput-10k": partial(measures.throughput, count=10_000),
    "steady": measures.steady,
    "submits": measures.submits,
    "memory": measures.memory,
    "starts": measures.starts,
    "comeback": comeback.comeback,
    "replay": comeback.replay,
}


def peer(results: Results, python: str) -> None:
    """Take HyperQueue's figures, by the peers' own script, in this sitting."""
    script = SHARED / "hyperqueue_bench.py"
    if not script.exists() or not python:
        print("peer: HyperQueue is not at hand (EBB_PEER_PYTHON names a Python that has it)")
        return
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results.jsonl"
        subprocess.run(
            [python, str(script)],
            env={**os.environ, "PEERS_TMP": folder, "PEERS_OUT": str(out), "REPS": "2"},
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=300,
        )
        for line in out.read_text().splitlines():
            row = json.loads(line)
            results.add(row.pop("name"), peer="HyperQueue", **_without_state(row))


def _without_state(row: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in row.items() if key not in ("t", "load1", "spawn_per_s")}


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("names", nargs="*", choices=[*BENCHES, []], help="default: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / ".run" / "bench.jsonl")
    given = parser.parse_args()
    results = Results(given.out)
    python = os.environ.get("EBB_PEER_PYTHON", "")
    peer(results, python)
    for name in given.names or BENCHES:
        BENCHES[name](results, given.seed)


if __name__ == "__main__":
    main()
