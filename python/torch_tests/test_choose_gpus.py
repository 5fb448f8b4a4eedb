"""Which GPUs a rehearsed script sees: CUDA_VISIBLE_DEVICES, nvidia-smi, NVML, and the default ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

MIB = 1 << 20
OWN = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
PHANTOM = "GPU-6272696d-6675-6c2d-7068-616e746f6d"  # and the device's place

TRAIN = """
    model = torch.nn.Linear(512, 512).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(9):
        model(torch.randn(64, 512, device="cuda")).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""

NVML = """
    import ctypes, json, os, subprocess, sys

    class Nvml:
        def __init__(self):
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            assert self.library.nvmlInit_v2() == 0

        def count(self):
            count = ctypes.c_uint()
            assert self.library.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
            return count.value

        def handle(self, index):
            handle = ctypes.c_void_p()
            assert self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0
            return handle

        def text(self, name, index):
            buffer = ctypes.create_string_buffer(96)
            assert getattr(self.library, name)(self.handle(index), buffer, 96) == 0
            return buffer.value.decode()

        def memory(self, index):
            numbers = (ctypes.c_ulonglong * 5)(40 | 2 << 24)
            assert self.library.nvmlDeviceGetMemoryInfo_v2(self.handle(index), numbers) == 0
            return dict(zip(["total", "reserved", "free", "used"], numbers[1:]))

    def smi(*words):
        return subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=True).stdout
"""


def brimful(
    folder: Path, text: str, *arguments: str, env: dict[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Rehearse a script; return what brimful printed, and the script."""
    path, log = folder / "train.py", folder / "log"
    path.write_text(textwrap.dedent(text))
    program = Path(sys.executable).with_name("brimful")
    command = [program, "predict", "--json", "--output", log, *arguments, "--", sys.executable, path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=env)
    return done, log.read_text() if log.exists() else ""


def printed(log: str) -> dict:
    """Return the script's answers, each a line of JSON."""
    found = {}
    for line in log.splitlines():
        if line.startswith("{"):
            found.update(json.loads(line))
    return found


def caveats(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [caveat["id"] for caveat in json.loads(done.stdout)["caveats"]]


FORMS = {
    None: [0, 1],
    "": [],
    "-1": [],
    "1": [1],
    "1,0": [1, 0],
    "0,-1,1": [0],
    "0,0": [],
    "3": [3],
    OWN: [0],
    PHANTOM + "01": [1],
    "MIG-a53a3e1d-4f2e-5c1b-9c3f-0e8a1a6b2c3d": [0],
}


def test_each_form_of_visible_devices_is_what_cuda_makes_of_it(tmp_path: Path) -> None:
    # In a process each, since CUDA reads the variable once; after the import is early enough.
    text = f"""
    {NVML}
    import torch

    def look(form):
        if form is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = form
        nvml = Nvml()
        listed = [nvml.text("nvmlDeviceGetUUID", index) for index in range(nvml.count())]
        lines = smi("--query-gpu=index,uuid", "--format=csv,noheader").splitlines()
        assert lines == [f"{{index}}, {{uuid}}" for index, uuid in enumerate(listed)], lines
        devices = range(torch.cuda.device_count())
        seen = [f"GPU-{{torch.cuda.get_device_properties(device).uuid}}" for device in devices]
        assert torch.cuda.is_available() == bool(seen)
        print(json.dumps({{str(form): [listed.index(uuid) for uuid in seen]}}), flush=True)
        print(json.dumps({{f"{{form}} named": seen[:1], f"{{form}} listed": len(listed)}}), flush=True)

    for form in {list(FORMS)!r}:
        child = os.fork()
        if child == 0:
            try:
                look(form)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    {TRAIN}
    """
    done, log = brimful(tmp_path, text, "--gpu", "2x t4")
    assert done.returncode == 0, done.stderr
    found = printed(log)
    assert {form: found.get(str(form)) for form in FORMS} == FORMS, log
    assert found[f"{OWN} named"] == [OWN]
    assert found["3 listed"] == 4
    assert found["-1 listed"] == 2
    assert "more_gpus_than_asked" not in caveats(done)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_gpu_that_the_machine_does_not_have_is_added_with_a_caveat(tmp_path: Path, when: str) -> None:
    lines = ["os.environ['CUDA_VISIBLE_DEVICES'] = '3'", "import torch"]
    choose = "; ".join(lines if when == "before" else reversed(lines))
    done, log = brimful(tmp_path, f"    import os; {choose}\n{TRAIN}\n", "--gpu", "t4")
    assert done.returncode == 0, done.stderr + log
    document = json.loads(done.stdout)
    assert document["peak"]["gpu"] == "Tesla T4"
    assert document["steps"] == 3
    assert "more_gpus_than_asked" in caveats(done)


@pytest.mark.parametrize("hidden", ["-1", ""])
def test_a_script_that_hides_the_gpus_does_not_use_them(tmp_path: Path, hidden: str) -> None:
    text = f"""
    import os
    os.environ["CUDA_VISIBLE_DEVICES"] = {hidden!r}
    import torch
    assert not torch.cuda.is_available() and torch.cuda.device_count() == 0
    print('{{"reached": true}}')
    """
    done, log = brimful(tmp_path, text, "--gpu", "t4")
    assert printed(log) == {"reached": True}, log
    assert "the script ended without using the GPU" in done.stderr
    assert "CUDA_VISIBLE_DEVICES" in done.stderr


def test_nvidia_smi_nvml_and_torch_say_the_same(tmp_path: Path) -> None:
    text = f"""
    {NVML}
    import torch
    kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    nvml = Nvml()
    fields = "name,uuid,pci.bus_id,memory.total,memory.used,memory.free,driver_version,compute_cap"
    row = smi(f"--query-gpu={{fields}}", "--format=csv,noheader,nounits", "-i", "0").strip().split(", ")
    properties = torch.cuda.get_device_properties(0)
    print(json.dumps({{
        "smi": dict(zip(fields.split(","), row)),
        "name": [properties.name, nvml.text("nvmlDeviceGetName", 0)],
        "uuid": [f"GPU-{{properties.uuid}}", nvml.text("nvmlDeviceGetUUID", 0)],
        "compute_cap": [f"{{properties.major}}.{{properties.minor}}"],
        "memory": nvml.memory(0),
        "cuda": torch.cuda.mem_get_info(),
        "plain": smi(),
        "list": smi("-L"),
        "xml": smi("-q", "-x"),
        "text": smi("-q"),
        "apps": smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader"),
        "refused": subprocess.run(
            ["nvidia-smi", "--query-gpu=nothing", "--format=csv"], capture_output=True, text=True
        ).returncode,
    }}))
    {TRAIN}
    """
    done, log = brimful(tmp_path, text, "--gpu", "t4")
    assert done.returncode == 0, done.stderr + log
    found = printed(log)
    smi, memory = found["smi"], found["memory"]
    for field in ("name", "uuid", "compute_cap"):
        assert set(found[field]) == {smi[field]}
    free, total = found["cuda"]
    assert memory["total"] - memory["reserved"] == total
    assert memory["free"] == free
    assert memory["used"] == 1 << 30
    for field in ("total", "used", "free"):
        assert int(smi[f"memory.{field}"]) == memory[field] // MIB
    assert int(smi["memory.total"]) == 15_360
    table = found["plain"].splitlines()
    assert {len(line) for line in table if line.startswith(("|", "+"))} == {91}
    assert " 1024MiB /  15360MiB |" in found["plain"]
    assert found["list"] == f"GPU 0: Tesla T4 (UUID: {smi['uuid']})\n"
    assert "<used>1024 MiB</used>" in found["xml"]
    assert f"<pci_bus_id>{smi['pci.bus_id']}</pci_bus_id>" in found["xml"]
    assert "Total                             : 15360 MiB" in found["text"]
    assert (found["apps"], found["refused"]) == ("", 2)


def test_a_script_that_logs_nvidia_smi_gets_past_it(tmp_path: Path) -> None:
    # As modded-nanogpt and parameter-golf do, before torch is imported; and with an environment of its own.
    text = f"""
    import os, subprocess, sys
    print(subprocess.run(["nvidia-smi"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True).stdout)
    only = {{"PATH": os.environ["PATH"]}}
    print(subprocess.run(["nvidia-smi", "-L"], env=only, check=True, capture_output=True, text=True).stdout)
    import torch
    {TRAIN}
    """
    done, log = brimful(tmp_path, text, "--gpu", "l4")
    assert done.returncode == 0, done.stderr + log
    assert "NVIDIA-SMI 580" in log
    assert "|   0  NVIDIA L4                      Off |" in log
    assert "GPU 0: " in log


@pytest.fixture
def own_gpus(phantom: str) -> dict[str, str]:
    """Return the environment of a machine with two L4, of which 20 GiB are in use on the first."""
    one = "name=NVIDIA L4,memory=23659020288,total=24152899584,cc=8.9,multiprocessors=58"
    devices = f"{one},held={20 << 30};{one}"
    return {**os.environ, "LD_PRELOAD": phantom, "BRIMFUL_PHANTOM_DEVICES": devices}


def test_without_names_the_answer_is_about_the_gpus_of_this_machine(
    tmp_path: Path, own_gpus: dict[str, str]
) -> None:
    big = TRAIN.replace("64, 512", "1 << 20, 512")
    done, log = brimful(tmp_path, f"    import torch\n{big}\n", env=own_gpus)
    assert done.returncode == 0, done.stderr + log
    document = json.loads(done.stdout)
    assert document["gpus_from"] == "machine"
    assert [gpu["name"] for gpu in document["gpus"]] == ["NVIDIA L4"]
    first, second = document["machine_gpus"]
    assert (first["index"], second["index"]) == (0, 1)
    assert first["used_bytes"] == 20 << 30
    assert first["free_bytes"] == second["free_bytes"] - (20 << 30)
    assert (first["fits_now"], second["fits_now"]) == (False, True)
    program = Path(sys.executable).with_name("brimful")
    command = [program, "compare", "--total-steps", "9", "--", sys.executable, tmp_path / "train.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=own_gpus)
    assert "GPUs of this machine\n  0  NVIDIA L4: " in done.stdout, done.stderr
    assert "free now, not enough for this run\n     20 GiB is in use" in done.stdout.replace("20.00", "20")


@pytest.mark.parametrize("command", ["predict", "compare"])
def test_without_a_gpu_the_answer_is_about_usual_ones(tmp_path: Path, command: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(f"    import torch\n{TRAIN}"))
    program = Path(sys.executable).with_name("brimful")
    words = [program, command, "--json", "--", sys.executable, path]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    document = json.loads(done.stdout)
    if document["gpus_from"] == "machine":
        pytest.skip("this machine has a GPU")
    names = document["gpus"] if command == "predict" else document["candidates"]
    expected = {"predict": "Tesla T4", "compare": "t4"}[command]
    assert (document["gpus_from"], names[0]["name"], len(names)) == ("usual", expected, 4)
    assert document["machine_gpus"] == []
