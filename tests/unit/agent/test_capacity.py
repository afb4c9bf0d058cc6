"""What a machine has, declared or detected."""

import pytest

from ebbtide.agent.capacity import declared, detected, model_name
from ebbtide.contracts.errors import Malformed


def test_a_declared_capacity_is_read_in_the_usual_spellings() -> None:
    assert declared("cpu=4, memory=8Gi,gpu/h100=8") == {
        "cpu": 4000,
        "memory": 8192,
        "gpu/h100": 8000,
    }


@pytest.mark.parametrize(
    "text", ["cpu=-1", "cpu", "memory=8Q", "=4", "gpu/h100=nan", "gpu/h100=65"]
)
def test_a_capacity_that_makes_no_sense_is_refused_by_name(text: str) -> None:
    with pytest.raises(Malformed, match="EBB_AGENT_CAPACITY"):
        declared(text)


def test_the_machine_has_some_cpu_and_memory() -> None:
    found = detected()
    assert found["cpu"] >= 1
    assert found["memory"] >= 64


@pytest.mark.parametrize(
    ("product", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        (b"Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "4090"),
        ("Tesla T4", "t4"),
        ("NVIDIA", "gpu"),
    ],
)
def test_a_product_is_called_by_its_model(product: str | bytes, model: str) -> None:
    assert model_name(product) == model
