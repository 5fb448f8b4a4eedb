"""What a rehearsal keeps a script from: training unwatched, asking, and writing to a service."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

TRAINING = """
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100):
        model(torch.ones(4, 8, device="cuda")).sum().backward()
        optimizer.step()
        print("step", step, flush=True)
"""

LAZY = """
    import importlib.util
    import sys
    spec = importlib.util.find_spec("torch")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    torch = sys.modules["torch"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(torch)
"""

UPLOADS = """
    import huggingface_hub
    from huggingface_hub import CommitOperationAdd, HfApi, ModelCard
    api = HfApi()
    repository = huggingface_hub.create_repo("me/thing", exist_ok=True)
    assert repository.repo_id == "me/thing"
    commit = huggingface_hub.upload_file(path_or_fileobj=b"x", path_in_repo="a", repo_id="me/thing")
    assert commit.repo_url.repo_id == "me/thing"
    assert api.upload_folder(repo_id="me/thing", folder_path=".", run_as_future=True).result().oid
    assert api.run_as_future(api.create_repo, "me/other").result().repo_id == "me/other"
    change = CommitOperationAdd("a", b"x")
    commit = api.create_commit("me/data", [change], commit_message="m", repo_type="dataset")
    assert "datasets/me/data" in commit
    api.create_branch("me/thing", branch="b")
    api.delete_repo("me/thing")
    ModelCard("---\\nlicense: mit\\n---\\n# A model").push_to_hub("me/thing")
    assert api.list_repo_files("me/thing") == []
    assert api.model_info("me/thing").id == "me/thing"
"""


class Requests(http.server.BaseHTTPRequestHandler):
    """Answers that there is no such repository, and remembers what was asked."""

    def answer(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.methods.append(self.command)  # type: ignore[attr-defined]
        self.send_response(404)
        self.send_header("x-error-code", "RepoNotFound")
        self.send_header("content-length", "0")
        self.end_headers()

    def __getattr__(self, name: str) -> object:
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def hub() -> object:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    server.methods = []  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def write(tmp_path: Path) -> object:
    def write(*parts: str) -> str:
        path = tmp_path / "train.py"
        path.write_text("\n".join(textwrap.dedent(part) for part in parts))
        return str(path)

    return write


def command(*python: str) -> list[str]:
    return [str(Path(sys.executable).with_name("brimful")), "predict", "--gpu", "t4", "--", *python]


def predict(*python: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*python), capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **env}
    )


@pytest.mark.parametrize(
    "first",
    ["import importlib.util\nassert importlib.util.find_spec('torch')\nimport torch", LAZY],
    ids=["looked up", "lazy"],
)
def test_a_torch_that_is_looked_up_first_is_watched(write, first: str) -> None:  # noqa: ANN001
    done = predict(sys.executable, write(first, TRAINING))
    assert done.returncode == 0, done.stderr
    assert "3 steps" in done.stdout


def test_a_command_that_sets_pythonpath_is_watched(write, tmp_path: Path) -> None:  # noqa: ANN001
    train = write("import torch", TRAINING)
    script = tmp_path / "train.sh"
    script.write_text(f"PYTHONPATH=. exec {sys.executable} {train}\n")
    done = predict("bash", str(script))
    assert done.returncode == 0, done.stderr
    assert "3 steps" in done.stdout


def test_a_module_that_cannot_be_asked_does_not_keep_the_script_training(write) -> None:  # noqa: ANN001
    stand_in = """
        import sys, types
        class Optional(types.ModuleType):
            def __getattr__(self, name):
                if sys._getframe(1).f_code.co_filename.endswith("inspect.py"):
                    raise AttributeError(name)  # as SpeechBrain's does, which torch itself needs
                raise ImportError(f"{self.__name__} is not installed")
        sys.modules["optional_part"] = Optional("optional_part")
    """
    done = predict(sys.executable, write(stand_in, "import torch", TRAINING))
    assert done.returncode == 0, done.stderr
    assert "3 steps" in done.stdout


def test_figures_that_cannot_be_written_end_the_script(write) -> None:  # noqa: ANN001
    breaks = "import torch, os\ntorch._C._cuda_memorySnapshot = None"
    done = predict(sys.executable, write(breaks, TRAINING))
    assert done.returncode != 0
    assert "the figures of the rehearsal could not be written" in done.stderr
    assert "step 5" not in done.stderr


def test_a_torch_without_the_hook_ends_the_rehearsal_at_once(write) -> None:  # noqa: ANN001
    done = predict(sys.executable, "-I", write("import torch", TRAINING))
    assert done.returncode == 97, done.stderr
    assert "torch was loaded without brimful's hook" in done.stderr
    assert "step" not in done.stdout


@pytest.mark.parametrize("ask", ["input", "__import__('getpass').getpass"])
def test_a_script_that_asks_for_input_is_named(write, ask: str) -> None:  # noqa: ANN001
    done = predict(sys.executable, write(f"{ask}('Really \\x1b[31mdelete?\\n ')", "import torch", TRAINING))
    assert done.returncode == 96, done.stderr
    assert 'the script asked for input before its first optimizer step: "Really [31mdelete?"' in done.stderr


def test_nothing_is_written_to_the_hub(write, hub) -> None:  # noqa: ANN001
    address = f"http://127.0.0.1:{hub.server_port}"
    env = {"HF_ENDPOINT": address, "HF_TOKEN": "hf_none", "HF_HUB_ETAG_TIMEOUT": "5"}
    path = write(UPLOADS, "import torch", TRAINING)
    done = predict(sys.executable, path, **env)
    assert done.returncode == 0, done.stderr
    assert set(hub.methods) <= {"GET", "HEAD"}
    # Without a rehearsal the same script writes.
    subprocess.run(
        [sys.executable, path], capture_output=True, check=False, timeout=60, env={**os.environ, **env}
    )
    assert "POST" in hub.methods


def test_an_interrupted_rehearsal_says_how_far_it_came(write, tmp_path: Path) -> None:  # noqa: ANN001
    path = write("import torch, time", TRAINING.replace("flush=True)", "flush=True)\n        time.sleep(60)"))
    output = tmp_path / "output"
    started = command(sys.executable, path)
    started[2:2] = ["--output", str(output)]
    with subprocess.Popen(started, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 120
        while "step 0" not in (output.read_text() if output.exists() else "") and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.3)  # it looks at what the script reports many times a second
        process.send_signal(signal.SIGINT)
        _, talk = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert "interrupted after step 1 of 3: " in talk
    assert "in tensors so far" in talk
