"""The manifests for a cluster: by the schema of Kubernetes, and what their shell makes of them."""

import json
import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).parents[2] / "examples" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))


def documents(path):
    return list(yaml.safe_load_all(path.read_text()))


def job(path):
    return next(each for each in documents(path) if each["kind"] == "Job")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_is_what_the_schema_asks(path):
    validate = pytest.importorskip("kubernetes_validate")
    found = documents(path)
    assert "Job" in [each["kind"] for each in found]
    for each in found:
        validate.validate(each, "1.32", strict=True)
    broken = job(path)
    broken["spec"]["template"]["spec"]["containers"][0]["comand"] = ["sh"]
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, "1.32", strict=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_volumes_and_claims_are_there(path):
    pod = job(path)["spec"]["template"]["spec"]
    claims = {each["metadata"]["name"] for each in documents(path) if each["kind"] == "PersistentVolumeClaim"}
    volumes = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in pod["volumes"]}
    assert set(volumes.values()) <= claims
    assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == set(volumes)


def test_workers_find_one_another():
    path = FOLDER / "workers.yaml"
    spec = job(path)["spec"]
    container = spec["template"]["spec"]["containers"][0]
    environment = {each["name"]: each["value"] for each in container["env"]}
    service = next(each for each in documents(path) if each["kind"] == "Service")
    assert spec["completions"] == spec["parallelism"] == int(environment["WORKERS"])
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"] == environment["JOB"]
    script = container["args"][0].replace("exec python", "echo") + 'printf "%s" "$TF_CONFIG"\n'
    environment = {**os.environ, **environment, "JOB_COMPLETION_INDEX": "2"}
    done = subprocess.run([*container["command"], script], capture_output=True, text=True, env=environment, check=True)
    config = json.loads(done.stdout.splitlines()[-1])
    port = service["spec"]["ports"][0]["port"]
    assert config == {
        "cluster": {"worker": [f"training-{index}.training:{port}" for index in range(4)]},
        "task": {"type": "worker", "index": 2},
    }
