"""Requests to schedulers, read by other parsers. The texts are those of the Rust tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-not-found, unused-ignore]
import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

SNAPSHOTS = Path(__file__).parents[2] / "crates/brimful-report/tests/it/snapshots"


def printed(name: str) -> dict[str, Any]:
    text = (SNAPSHOTS / f"it__request__{name}.snap").read_text()
    document: dict[str, Any] = yaml.safe_load(text.split("---\n", 2)[2])
    return document


def test_kubernetes_takes_the_job() -> None:
    manifest = printed("kubernetes_gets_a_job")
    kubernetes_validate.validate(manifest, "1.37", strict=True)
    manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = ["1Gi"]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.37", strict=True)


def test_kubernetes_takes_the_job_of_several_nodes() -> None:
    name = "it__request__kubernetes_gets_an_indexed_job_for_several_nodes.snap"
    text = (SNAPSHOTS / name).read_text().split("---\n", 2)[2]
    service, job = yaml.safe_load_all(text)
    for manifest in (service, job):
        kubernetes_validate.validate(manifest, "1.37", strict=True)
    assert (job["spec"]["completionMode"], job["spec"]["parallelism"]) == ("Indexed", 3)
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]


def test_a_skypilot_task_is_yaml() -> None:
    task = printed("skypilot_gets_a_task")
    assert task["resources"] == {"accelerators": "A100:2", "cpus": "10+", "memory": "13+"}
