"""The training script of the random multilayer perceptrons."""

import torch
from quick import Skip, unfilled
from torch import nn

ACTIVATIONS = {
    "ELU": nn.ELU,
    "GELU": nn.GELU,
    "Hardswish": nn.Hardswish,
    "Identity": nn.Identity,
    "LeakyReLU": nn.LeakyReLU,
    "Mish": nn.Mish,
    "PReLU": nn.PReLU,
    "ReLU": nn.ReLU,
    "SELU": nn.SELU,
    "Sigmoid": nn.Sigmoid,
    "SiLU": nn.SiLU,
    "Softplus": nn.Softplus,
    "Tanh": nn.Tanh,
}


def layers_of(text: str, inputs: int, rate: float) -> nn.Sequential:
    """The network that a list such as `L:1173:2753031 BN:1173:2346 ReLU:1173 DO:1173` describes."""
    layers = []
    width = inputs
    for word in text.split():
        kind, outputs, *_ = word.split(":")
        if kind == "L":
            layers.append(nn.Linear(width, int(outputs)))
            width = int(outputs)
        elif kind == "BN":
            layers.append(nn.BatchNorm1d(width))
        elif kind == "DO":
            layers.append(nn.Dropout(rate))
        elif kind == "Softmax":
            layers.append(nn.Softmax(dim=1))
        elif kind in ACTIVATIONS:
            layers.append(ACTIVATIONS[kind]())
        else:
            raise Skip(f"no layer {kind}")
    return nn.Sequential(*layers)


def mlp_training(settings: dict):
    """Adam on random samples; the last batch of an epoch is smaller."""
    with unfilled():
        model = layers_of(settings["layers"], settings["input"], settings["dropout_rate"])
    # The table's sum leaves out the one parameter of each PReLU.
    counted = [m for m in model if not isinstance(m, nn.PReLU)]
    found = sum(p.numel() for m in counted for p in m.parameters())
    if found != settings["params"]:
        raise Skip(f"{settings['params']} parameters in the table, {found} when built")
    model.to("cuda")
    single = settings["output"] == 1
    loss_of = nn.BCELoss() if single else nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters())
    samples, batch = 4096, min(settings["batch"], 4096)
    # A summary of the model is printed first, with a batch of two.
    model(torch.rand(2, settings["input"], device="cuda"))
    yield None
    sizes = [batch] * (samples // batch) + ([samples % batch] if samples % batch else [])
    # Two epochs hold every size twice; many equal batches in a row change nothing after the third.
    epoch = sizes[:3] + sizes[-1:]
    for size in epoch + epoch:
        inputs = torch.empty(size, settings["input"])
        labels = torch.zeros(size, 1) if single else torch.zeros(size, dtype=torch.int64)
        inputs, labels = inputs.to("cuda"), labels.to("cuda")
        optimizer.zero_grad()
        output = model(inputs)
        loss = loss_of(output, labels)
        loss.backward()
        optimizer.step()
        yield None
