"""When a rehearsal is over, and what it needs of values, as scripts of other fields than language need it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TWO_NETWORKS = """
    import torch
    def network(inputs, outputs):
        return torch.nn.Sequential(torch.nn.Linear(inputs, 1024), torch.nn.Linear(1024, outputs)).cuda()
    generator, critic = network(64, 512), network(512, 1)
    of_generator = torch.optim.Adam(generator.parameters())
    of_critic = torch.optim.Adam(critic.parameters())
    def made():
        return generator(torch.randn(32, 64, device="cuda"))
"""

ALTERNATING = """
    for round in range(30):
        for _ in range(5):
            of_critic.zero_grad()
            critic(made().detach()).mean().backward()
            of_critic.step()
        of_generator.zero_grad()
        (-critic(made()).mean()).backward()
        of_generator.step()
"""

ONE_IS_IDLE = """
    for round in range(300):
        of_critic.zero_grad()
        critic(made().detach()).mean().backward()
        of_critic.step()
"""

BY_HAND = """
    import torch
    model = torch.nn.Linear(256, 256).cuda()
    for step in range(200):
        model(torch.ones(8, 256, device="cuda")).sum().backward()
        for parameter in model.parameters():
            parameter.data -= 0.1 * parameter.grad
            parameter.grad = None
"""

FROZEN_ENCODER = """
    import torch
    encoder = torch.nn.Linear(256, 256).cuda().eval()
    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    def encoded():
        with torch.no_grad():
            return encoder(torch.ones(8, 256, device="cuda"))
    for step in range(4):
        model(encoded()).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    for batch in range(BATCHES):
        with torch.no_grad():
            model(torch.ones(4096, 256, device="cuda").repeat(8, 1))
"""

LONGER_AND_LONGER = """
    import torch
    model = torch.nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(200):
        length = 2048 * min(step, LAST) + 2048
        model(torch.ones(length, 1024, device="cuda")).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""

POLICY = """
    import torch
    policy = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.Adam(policy.parameters())
    for step in range(50):
        actions = torch.distributions.Categorical(logits=policy(torch.randn(16, 4, device="cuda")))
        action = actions.sample()
        (-actions.log_prob(action).mean() - actions.entropy().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
"""

COMPILES_ASIDE = """
    import torch
    @torch.compile
    def unused(x):
        return x + 1
    layers = torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(50):
        model(torch.ones(256, 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""

COMPILED = """
    import torch
    layers = torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)
    model = torch.compile(torch.nn.Sequential(*layers).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(50):
        model(torch.ones(4096, 512, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""

OBJECTS = """
    import torch
    import torch.distributed as dist
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    torch.cuda.set_device(rank)
    for number in range(3):
        if rank == 0:
            dist.send_object_list([{"shape": (2, number)}, "x"], dst=1)
        else:
            received = [None, None]
            assert dist.recv_object_list(received, src=0 if number else None) == 0
            assert received == [{"shape": (2, number)}, "x"]
    own = [None]
    dist.scatter_object_list(own, ["for 0", "for 1"] if rank == 0 else None, src=0)
    assert own == [f"for {rank}"]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(50):
        model(torch.ones(8, 64, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.fixture
def predict(tmp_path: Path) -> object:
    def predict(*parts: str, gpu: str = "t4", launcher: tuple[str, ...] = (), asks: tuple = ()) -> dict:
        path = tmp_path / "train.py"
        path.write_text("\n".join(textwrap.dedent(part) for part in parts))
        program = Path(sys.executable).with_name("brimful")
        asked = [program, "predict", "--json", "--gpu", gpu, *asks]
        command = [*asked, "--", sys.executable, *launcher, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return predict


def caveats(document: dict) -> dict[str, str]:
    return {caveat["id"]: caveat["text"] for caveat in document["caveats"]}


def optimizer_state(document: dict) -> int:
    return next(term["likely_bytes"] for term in document["terms"] if term["name"] == "optimizer_state")


def test_every_optimizer_has_stepped_before_the_rehearsal_ends(predict) -> None:  # noqa: ANN001
    found = predict(TWO_NETWORKS, ALTERNATING)
    n_parameters = (64 * 1024 + 1024 + 1024 * 512 + 512) + (512 * 1024 + 1024 + 1024 + 1)
    assert optimizer_state(found) >= 2 * 4 * n_parameters
    assert "optimizer_without_steps" not in caveats(found)


def test_an_optimizer_that_does_not_step_is_named(predict) -> None:  # noqa: ANN001
    found = predict(TWO_NETWORKS, ONE_IS_IDLE)
    assert "Adam with 591,360 parameters made 0 steps" in caveats(found)["optimizer_without_steps"]


def test_a_frozen_model_of_the_training_loop_is_no_evaluation(predict) -> None:  # noqa: ANN001
    found = predict("BATCHES = 0", FROZEN_ENCODER, asks=("--with", "eval"))
    assert "short_evaluation" not in caveats(found)
    assert "did not get there" in str(found["caveats"])
    found = predict("BATCHES = 9", FROZEN_ENCODER, asks=("--with", "eval"))
    assert "short_evaluation" in caveats(found)
    assert "did not get there" not in str(found["caveats"])


def test_steps_without_an_optimizer_are_seen(predict) -> None:  # noqa: ANN001
    found = predict(BY_HAND)
    assert found["steps"] == 3
    assert "steps_by_script" in caveats(found)
    # To look at gradients must not keep them.
    gradients = next(term for term in found["terms"] if term["name"] == "gradients")
    assert {use["phase"] for use in gradients["by_phase"] if use["bytes"]} <= {"backward", "optimizer"}


def test_a_rehearsal_goes_on_until_reserved_memory_is_flat(predict) -> None:  # noqa: ANN001
    found = predict("LAST = 8", LONGER_AND_LONGER)
    assert found["steps"] == 11  # the longest batch is the ninth
    assert "reserved_rises" not in caveats(found)
    found = predict("LAST = 200", LONGER_AND_LONGER)
    assert found["steps"] == 23
    assert "23 steps" in caveats(found)["reserved_rises"]


def test_distributions_of_a_policy_pass_their_checks(predict) -> None:  # noqa: ANN001
    assert predict(POLICY)["steps"] == 3


def test_a_compiled_function_beside_the_model_costs_no_names(predict) -> None:  # noqa: ANN001
    found = predict(COMPILES_ASIDE)
    made_by = {use["made_by"] for use in found["largest"]}
    assert any("0 (Linear)" in name or "1 (GELU)" in name for name in made_by), made_by


def test_memory_of_compiled_code_has_the_names_of_its_kernels(predict) -> None:  # noqa: ANN001
    pytest.importorskip("triton")
    found = predict(COMPILED)
    assert found["steps"] == 3
    activations = {use["made_by"]: use["bytes"] for use in found["largest"] if use["kind"] == "activations"}
    # What GELU reads is made by a matrix product, and what it writes by a fused kernel.
    assert activations["extern_kernels.addmm (compiled)"] >= 4096 * 2048 * 4
    fused = [name for name in activations if name.startswith("triton_") and "gelu" in name]
    assert sum(activations[name] for name in fused) == 4096 * 2048 * 4


def test_objects_go_from_rank_to_rank(predict) -> None:  # noqa: ANN001
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
    found = predict(OBJECTS, gpu="2xt4", launcher=launcher)
    assert (found["steps"], found["world_size"]) == (3, 2)
