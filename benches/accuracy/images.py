"""Training scripts for image classifiers."""

import sys
from pathlib import Path

import torch
from quick import Skip, unfilled
from torch import nn

sys.path.append(str(Path(__file__).parents[2] / "crates/brimful-rehearse/src/hook"))
import brimful_autotune as autotune


def kernels_over_one(model: nn.Module) -> int:
    """Convolutions that look at more than one place."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return sum(isinstance(m, kinds) and max(m.kernel_size) > 1 for m in model.modules())


def facts_of(model: nn.Module) -> dict:
    """What the comparison wants to know about a model."""
    parameters = sum(p.numel() for p in model.parameters())
    return {"parameters": parameters, "kernels_over_one": kernels_over_one(model)}


class Prefetch:
    """timm's loader: images arrive as bytes on a side stream and are normalized there, one batch ahead."""

    def __init__(self, batch: int, size: tuple) -> None:
        self.images = torch.empty((batch, *size), dtype=torch.uint8)
        self.labels = torch.zeros(batch, dtype=torch.int64)
        self.mean = torch.tensor([0.485 * 255] * size[0], device="cuda").view(1, size[0], 1, 1)
        self.std = torch.tensor([0.229 * 255] * size[0], device="cuda").view(1, size[0], 1, 1)

    def __iter__(self):
        """Batches on the device, for ever."""
        stream = torch.cuda.Stream()
        first = True
        images = labels = None
        while True:
            with torch.cuda.stream(stream):
                next_images = self.images.to("cuda", non_blocking=True)
                next_labels = self.labels.to("cuda", non_blocking=True)
                next_images = next_images.to(torch.float32).sub_(self.mean).div_(self.std)
            if not first:
                yield images, labels
            else:
                first = False
            torch.cuda.current_stream().wait_stream(stream)
            images, labels = next_images, next_labels


def plain_batches(batch: int, size: tuple):
    """Batches in host memory; the loop's variables take them, which frees the last ones on the device."""
    images = torch.empty((batch, *size))
    labels = torch.zeros(batch, dtype=torch.int64)
    while True:
        yield images, labels


def timm_training(settings: dict):
    """The train.py of timm with its defaults: Nesterov momentum, label smoothing, a prefetching loader."""
    import timm
    from timm.loss import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2

    # Its defaults; `cudnn.benchmark` is a setting here because what it picks depends on timing.
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = settings.get("tf32", True)
    torch.backends.cudnn.benchmark = settings.get("benchmark", False)
    # What `brimful predict` does with that setting.
    nn.functional.conv2d = autotune.convolution if settings.get("autotuned") else autotune.PLAIN
    if settings["model"] not in timm.list_models():
        raise Skip("not in this timm")
    with unfilled():
        model = timm.create_model(settings["model"], pretrained=False, drop_rate=0.0)
    facts = facts_of(model)
    size = model.default_cfg["input_size"]
    model.to("cuda")
    model.train()
    optimizer = create_optimizer_v2(
        model,
        opt=settings.get("optimizer", "sgd"),
        lr=0.1,
        momentum=0.9,
        weight_decay=settings.get("weight_decay", 2e-5),
    )
    smoothed = settings.get("smoothing", 0.1)
    loss_of = LabelSmoothingCrossEntropy(smoothing=smoothed) if smoothed else nn.CrossEntropyLoss()
    loader = Prefetch(settings["batch"], size) if settings.get("prefetch", True) else None
    batches = iter(loader or plain_batches(settings["batch"], size))
    zero_grad = settings.get("zero_grad", "after_step")
    optimizer.zero_grad()
    yield facts
    for _ in range(settings["steps"]):
        images, labels = next(batches)
        if loader is None:
            images, labels = images.to("cuda"), labels.to("cuda")
        if zero_grad == "start":
            optimizer.zero_grad()
        output = model(images)
        if isinstance(output, (tuple, list)):
            output = output[0]
        loss = loss_of(output, labels)
        if zero_grad == "before_backward":
            optimizer.zero_grad()
        loss.backward(create_graph=False)
        optimizer.step()
        if zero_grad == "after_step":
            optimizer.zero_grad()
        yield None


def timm_benchmark(settings: dict):
    """The benchmark.py of timm as it was in 2022: autocast, SGD one parameter at a time, no loader."""
    import timm
    from timm.layers import set_fused_attn

    set_fused_attn(enable=False)
    torch.backends.cudnn.benchmark = True
    name, size = settings["model"], settings["image"]
    if not timm.is_model(name):  # also by an old name
        raise Skip("not in this timm")
    with unfilled():
        model = built(timm, name, size)
    facts = facts_of(model)
    model.to("cuda")
    images = torch.empty(settings["batch"], model.default_cfg["input_size"][0], size, size, device="cuda")
    if settings["layout"] == "nhwc":
        model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, foreach=False)
    loss_of = nn.CrossEntropyLoss()
    yield facts
    for _ in range(settings["steps"]):
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", dtype=torch.float16):
            output = model(images)
            if isinstance(output, (tuple, list)):
                output = output[0]
            labels = torch.empty(output.shape[0], device="cuda", dtype=torch.int64)
            loss_of(output, labels).backward()
        optimizer.step()
        yield None


def timm_inference(settings: dict):
    """The inference of timm's benchmark.py with a PyTorch that has fused attention."""
    import timm
    from timm.layers import set_fused_attn

    set_fused_attn(enable=True)
    torch.backends.cudnn.benchmark = True
    name, size = settings["model"], settings["image"]
    if not timm.is_model(name):
        raise Skip("not in this timm")
    with unfilled():
        model = built(timm, name, size)
    facts = facts_of(model)
    model.to("cuda").eval()
    images = torch.empty(settings["batch"], model.default_cfg["input_size"][0], size, size, device="cuda")
    if settings["layout"] == "nhwc":
        model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    yield facts
    for _ in range(settings["steps"]):
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
            model(images)
        yield None


def nvidia_convnet(settings: dict):
    """NVIDIA's examples for image classification: SGD, label smoothing, NHWC in mixed precision."""
    import torchvision

    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = settings["precision"] == "tf32"
    options = {"groups": 32, "width_per_group": 4} if settings["model"].startswith("resnext") else {}
    maker = torchvision.models.resnet50 if not options else torchvision.models.resnet101
    with unfilled():
        model = maker(weights=None, **options)
    model.to("cuda").train()
    images = torch.empty(settings["batch"], 3, 224, 224, device="cuda")
    is_mixed = settings["precision"] == "amp"
    if is_mixed:
        model.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.875)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
    labels = torch.zeros(settings["batch"], dtype=torch.int64, device="cuda")
    yield facts_of(model)
    for _ in range(settings["steps"]):
        with torch.autocast("cuda", dtype=torch.float16, enabled=is_mixed):
            loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield None


def built(timm, name: str, size: int) -> nn.Module:
    """A model for images of that size, if its class asks for one."""
    usual = timm.get_pretrained_cfg(name, allow_unregistered=True)
    if usual is not None and usual.input_size[-1] == size:
        return timm.create_model(name, pretrained=False)
    try:
        return timm.create_model(name, pretrained=False, img_size=size)
    except TypeError:
        return timm.create_model(name, pretrained=False)


# The names of the xMem records, where they differ from torchvision's in more than case and underscores.
TORCHVISION = {
    "mobenetv3large": "mobilenetv3large",
    "mobenetv3small": "mobilenetv3small",
    "mnasnet": "mnasnet10",
}
# Heads with as many outputs as CIFAR-10 has classes; the others keep torchvision's 1000.
NARROW_HEADS = ("mnasnet", "mobilenetv3")

OPTIMIZERS = {
    "SGD": torch.optim.SGD,
    "Adam": torch.optim.Adam,
    "AdamW": torch.optim.AdamW,
    "Adagrad": torch.optim.Adagrad,
    "RMSprop": torch.optim.RMSprop,
    "Adadelta": torch.optim.Adadelta,
    "Rprop": torch.optim.Rprop,
    "NAdam": torch.optim.NAdam,
    "Adamax": torch.optim.Adamax,
    "Adafactor": getattr(torch.optim, "Adafactor", None),
}


def torchvision_training(settings: dict):
    """A plain loop: torchvision's model, cross-entropy, an optimizer with its defaults."""
    import torchvision

    torch.backends.cudnn.benchmark = False
    plain = settings["model"].lower().replace("_", "").replace("-", "")
    plain = TORCHVISION.get(plain, plain)
    names = torchvision.models.list_models(module=torchvision.models)
    known = {name.replace("_", ""): name for name in names}
    if plain not in known:
        raise Skip("not in this torchvision")
    if OPTIMIZERS.get(settings["optimizer"]) is None:
        raise Skip(f"no optimizer {settings['optimizer']}")
    classes = 10 if plain.startswith(NARROW_HEADS) else 1000
    options = {"init_weights": False} if plain.startswith(("vgg", "googlenet", "inception")) else {}
    with unfilled():
        model = torchvision.models.get_model(known[plain], weights=None, num_classes=classes, **options)
    facts = facts_of(model)
    model.to("cuda")
    model.train()
    optimizer = OPTIMIZERS[settings["optimizer"]](model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()
    yield facts
    batches = plain_batches(settings["batch"], settings["input"])
    for _ in range(settings["steps"]):
        images, labels = next(batches)
        images, labels = images.to("cuda"), labels.to("cuda")
        if settings["zero_grad"] == "start":
            optimizer.zero_grad()
        output = model(images)
        loss = loss_of(output, labels)
        if settings["zero_grad"] == "before_backward":
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield None
