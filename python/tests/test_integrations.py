"""Files for other systems, read by other parsers."""

from __future__ import annotations

import copy
import re
import runpy
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-not-found, unused-ignore]
import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

ROOT = Path(__file__).parents[2]
SNAPSHOT = ROOT / "crates/brimful-report/tests/it/snapshots/it__request__kubernetes_gets_a_job.snap"


def container(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.fixture
def manifests() -> list[dict[str, Any]]:
    text = (ROOT / "integrations/kubernetes/job.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def test_kubernetes_takes_the_manifest(manifests: list[dict[str, Any]]) -> None:
    for manifest in manifests:
        kubernetes_validate.validate(manifest, "1.37", strict=True)
    manifests[1]["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] = ["ninety-six"]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifests[1], "1.37", strict=True)


def test_the_manifest_requests_what_a_plan_prints(manifests: list[dict[str, Any]]) -> None:
    job = manifests[1]
    printed = yaml.safe_load(SNAPSHOT.read_text(encoding="utf-8").split("---\n", 2)[2])
    assert container(job)["resources"] == container(printed)["resources"]
    assert job["spec"]["template"]["spec"]["volumes"][1] == printed["spec"]["template"]["spec"]["volumes"][0]
    assert container(job)["terminationMessagePolicy"] == container(printed)["terminationMessagePolicy"]


def test_exit_codes_that_end_the_job_are_documented(manifests: list[dict[str, Any]]) -> None:
    values = manifests[1]["spec"]["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"]
    documented = (ROOT / "docs/reference/exit-codes.md").read_text(encoding="utf-8")
    assert set(values) <= {int(code) for code in re.findall(r"\b\d+\b", documented)}
    # What may pass: an exception, a full disk, a kill.
    assert not set(values) & {0, 1, 97, 137}


def test_the_dashboard_can_be_shown() -> None:
    module = runpy.run_path(str(ROOT / "integrations/grafana/dashboard.py"))
    dashboard = module["read"]()
    assert module["problems"](dashboard) == []
    broken = copy.deepcopy(dashboard)
    broken["panels"][1]["id"] = broken["panels"][0]["id"]
    broken["panels"][1]["gridPos"] = broken["panels"][0]["gridPos"]
    broken["panels"][2]["datasource"] = {"type": "prometheus", "uid": "mine"}
    broken["panels"][2]["targets"][0]["expr"] = "brimful_host_memory_free_bytes"
    assert module["problems"](broken) == [
        "panel id 1 is used twice",
        "State overlaps Host memory used",
        "Headroom does not use the data source variable",
        "brimful run writes no metric brimful_host_memory_free_bytes",
    ]
