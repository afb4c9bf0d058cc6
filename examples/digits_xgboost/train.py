"""Learn the ten digits with XGBoost on several workers; resume where the last life of the job
stopped.

Each rank reads its own rows only; the trees are grown together, over XGBoost's collective. Rank
0's process holds the tracker on MASTER_PORT. Every tenth round is committed as a checkpoint. In
the end every rank must hold the same model, and rank 0 writes it with its predictions. By hand:
``python train.py``.
"""

import argparse
import contextlib
import hashlib
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xgboost as xgb
from sklearn.datasets import load_digits
from xgboost import collective
from xgboost.tracker import RabitTracker

from ebbtide import train

TEST_EVERY = 5  # each fifth row is kept for the test
ACCURACY_LEAST = 0.95
TRACKER_TIMEOUT_S = 300
NO_TRACKER = "connect to the tracker"
JOIN_AGAIN_S = 0.05
PARAMETERS = {
    "objective": "multi:softprob",
    "num_class": 10,
    "max_depth": 3,
    "eta": 0.3,
    "tree_method": "hist",
    "nthread": 1,
    "seed": 7,
}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="trees per class")
    parser.add_argument("--checkpoint-every", type=int, default=10, help="rounds per checkpoint")
    parser.add_argument("--round-sleep", type=float, default=0.0, help="seconds added per round")
    parser.add_argument("--result", type=Path, help="folder for the model and its predictions")
    return parser.parse_args()


def rows(rank: int, world: int) -> tuple[xgb.DMatrix, xgb.DMatrix]:
    """Give this rank's training rows, and all test rows."""
    pixels, digits = load_digits(return_X_y=True)
    is_test = np.arange(len(digits)) % TEST_EVERY == 0
    own = np.flatnonzero(~is_test)[rank::world]
    test = xgb.DMatrix(pixels[is_test], label=digits[is_test])
    return xgb.DMatrix(pixels[own], label=digits[own]), test


def digest(model: xgb.Booster) -> str:
    """Name a model by its bytes."""
    return hashlib.sha256(model.save_raw("ubj")).hexdigest()


class Round(xgb.callback.TrainingCallback):
    """After each round: say so, commit now and then, and take one's time if told to."""

    def __init__(self, rank: int, given: argparse.Namespace) -> None:
        self.rank, self.given = rank, given

    def after_iteration(self, model: xgb.Booster, epoch: int, evals_log: dict[str, Any]) -> bool:
        """Called by XGBoost on every rank; ``epoch`` counts the trees of this and former lives."""
        done = model.num_boosted_rounds()
        error = evals_log["test"]["merror"][-1]
        print(f"round {done} of {self.given.rounds}: test error {error:.4f}", flush=True)
        train.progress(round=done, rounds=self.given.rounds, test_error=error)
        if self.rank == 0 and done % self.given.checkpoint_every == 0:
            with train.save(done) as folder:
                model.save_model(folder / "model.ubj")
            print(f"checkpoint of round {done} committed", flush=True)
        time.sleep(self.given.round_sleep)
        return False


def learn(rank: int, world: int, given: argparse.Namespace) -> tuple[xgb.Booster, xgb.DMatrix]:
    """Train from the newest committed checkpoint to the last round."""
    own, test = rows(rank, world)
    print(f"rank {rank} of {world} reads {own.num_row()} rows", flush=True)
    found = train.newest()
    model, done = None, 0
    if found:
        model, done = xgb.Booster(model_file=found.folder / "model.ubj"), found.step
        print(f"resumes after round {done}", flush=True)
    if model and done >= given.rounds:
        return model, test
    model = xgb.train(
        {**PARAMETERS, "eval_metric": "merror"},
        own,
        given.rounds - done,
        evals=[(test, "test")],
        xgb_model=model,
        callbacks=[Round(rank, given)],
        verbose_eval=False,
    )
    return model, test


def check_equal(rank: int, name: str) -> None:
    """Fail unless every rank holds the same model."""
    print(f"rank {rank} holds model {name[:16]}", flush=True)
    if collective.broadcast(name, 0) != name:
        sys.exit(f"rank {rank} holds another model than rank 0")


def write_result(folder: Path, model: xgb.Booster, test: xgb.DMatrix) -> None:
    """Write model, predictions and score; a score that is too low is a failure."""
    scores = model.predict(test)
    accuracy = float((scores.argmax(axis=1) == test.get_label()).mean())
    folder.mkdir(parents=True, exist_ok=True)
    model.save_model(folder / "model.ubj")
    np.save(folder / "predictions.npy", scores)
    facts = {"accuracy": accuracy, "rounds": model.num_boosted_rounds(), "model": digest(model)}
    (folder / "result.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(
        f"accuracy {accuracy:.4f} after {facts['rounds']} rounds, written to {folder}", flush=True
    )
    if accuracy < ACCURACY_LEAST:
        sys.exit(f"accuracy {accuracy:.4f} is below {ACCURACY_LEAST}")


def start_tracker(host: str, port: int, world: int) -> None:
    """Hold the rendezvous in this process; it waits for all ranks, and for as long as they
    train.
    """
    tracker = RabitTracker(
        n_workers=world, host_ip=host, port=port, sortby="task", timeout=TRACKER_TIMEOUT_S
    )
    tracker.start()
    threading.Thread(target=tracker.wait_for, daemon=True).start()


def join(host: str, port: int, rank: int) -> None:
    """Join the others, once rank 0 holds the rendezvous.

    XGBoost's own retries wait 2, 4, 6 … seconds; who comes a moment before rank 0 would make all
    wait that long.
    """
    deadline = time.monotonic() + TRACKER_TIMEOUT_S
    while True:
        try:
            with warnings.catch_warnings(action="ignore"):
                collective.init(
                    dmlc_communicator="rabit",
                    dmlc_tracker_uri=host,
                    dmlc_tracker_port=port,
                    dmlc_task_id=f"{rank:06d}",
                    dmlc_retry=1,
                )
        except xgb.core.XGBoostError as error:
            if NO_TRACKER not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(JOIN_AGAIN_S)
        else:
            return


@contextlib.contextmanager
def meeting(rank: int, world: int) -> Iterator[None]:
    """Be one of ``world`` ranks that train together; alone there is nobody to meet."""
    if world == 1:
        yield
        return
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        start_tracker(host, port, world)
    join(host, port, rank)
    try:
        yield
    finally:
        collective.finalize()


def main() -> None:
    """Meet the others, learn together, compare, write the result."""
    given = arguments()
    rank, world = train.rank(), train.world_size()
    with meeting(rank, world):
        model, test = learn(rank, world, given)
        if world > 1:
            check_equal(rank, digest(model))
        if rank == 0:
            write_result(given.result or train.checkpoints() / "result", model, test)


if __name__ == "__main__":
    main()
