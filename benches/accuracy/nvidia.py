"""Three of NVIDIA's DeepLearningExamples for their speed, written again from the sizes in its configurations.

The examples have fused optimizers and losses; here they are PyTorch's own. Numbers that depend on the data,
such as how many tokens are rare words, are assumed where they are used.
"""

import itertools

import torch
from quick import Skip, unfilled
from torch import nn
from torch.nn import functional

# Feature maps of SSD300: channels, channels of the 1x1 convolution before it, boxes of each place.
MAPS = ((1024, 0, 4), (512, 256, 6), (512, 256, 6), (256, 128, 6), (256, 128, 4), (256, 128, 4))
CLASSES = 81
# MovieLens-20M.
USERS, ITEMS = 138_493, 26_744
# Transformer-XL base on WikiText-103: clusters of the vocabulary, and the share of the tokens in each tail.
CUTOFFS, VOCABULARY = (19_997, 39_997, 199_997), 267_735
TAILS = (0.03, 0.04, 0.005)
LENGTH = 192


def mixed(settings: dict):
    """Half precision where the row has it; the others may use TF32, as in NVIDIA's containers."""
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    return torch.autocast("cuda", dtype=torch.float16, enabled=settings["precision"] == "fp16")


def ssd(settings: dict):
    """SSD300 with the first three stages of ResNet-50, channels last."""
    import torchvision

    def block(before: int, between: int, after: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(before, between, 1, bias=False),
            nn.BatchNorm2d(between),
            nn.ReLU(inplace=True),
            nn.Conv2d(between, after, 3, stride, 1 if stride == 2 else 0, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        )

    precision = mixed(settings)
    with unfilled():
        whole = torchvision.models.resnet50(weights=None)
        first = whole.layer3[0]
        first.conv1.stride = first.conv2.stride = first.downsample[0].stride = (1, 1)
        pairs = itertools.pairwise(MAPS)
        more = [block(a[0], b[1], b[0], 2 if i < 3 else 1) for i, (a, b) in enumerate(pairs)]
        model = nn.ModuleDict(
            {
                "stages": nn.ModuleList([nn.Sequential(*list(whole.children())[:7]), *more]),
                "places": nn.ModuleList(nn.Conv2d(c, n * 4, 3, padding=1) for c, _, n in MAPS),
                "classes": nn.ModuleList(nn.Conv2d(c, n * CLASSES, 3, padding=1) for c, _, n in MAPS),
            }
        )
    model.to("cuda", memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)
    batch = settings["batch"]
    images = torch.empty(batch, 3, 300, 300, device="cuda").contiguous(memory_format=torch.channels_last)
    yield None
    wanted = None
    for _ in range(settings["steps"]):
        with precision:
            maps, last = [], images
            for stage in model["stages"]:
                last = stage(last)
                maps.append(last)
            heads = zip(maps, model["places"], model["classes"], strict=True)
            found = [(p(x).reshape(batch, 4, -1), c(x).reshape(batch, CLASSES, -1)) for x, p, c in heads]
            places, classes = (torch.cat(part, 2).contiguous() for part in zip(*found, strict=True))
        if wanted is None:
            boxes = places.shape[2]
            wanted = torch.empty(batch, 4, boxes, device="cuda")
            labels = torch.zeros(batch, boxes, dtype=torch.int64, device="cuda")
        far = functional.smooth_l1_loss(places.float(), wanted, reduction="none").sum(dim=1)
        wrong = functional.cross_entropy(classes.float(), labels, reduction="none")
        # The worst of the boxes without an object count.
        order = wrong.detach().sort(dim=1, descending=True)[1].sort(dim=1)[1]
        (((order < 30).float() * wrong).sum(dim=1) + far.sum(dim=1)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield None


def ncf(settings: dict):
    """Neural collaborative filtering: two embeddings for users and two for items, then a small network."""
    precision = mixed(settings)
    with unfilled():
        sizes = ((USERS, 64), (ITEMS, 64), (USERS, 128), (ITEMS, 128))
        tables = nn.ModuleList(nn.Embedding(rows, width) for rows, width in sizes)
        widths = zip((256, 256, 128), (256, 128, 64), strict=True)
        layers = nn.Sequential(
            *(nn.Sequential(nn.Linear(a, b), nn.ReLU(), nn.Dropout(0.5)) for a, b in widths)
        )
        final = nn.Linear(128, 1)
    model = nn.ModuleList([tables, layers, final]).to("cuda").train()
    optimizer = torch.optim.Adam(model.parameters(), lr=4.5e-3, fused=True)
    users, items = (torch.zeros(settings["batch"], dtype=torch.int64, device="cuda") for _ in range(2))
    labels = torch.zeros(settings["batch"], 1, device="cuda")
    yield None
    for _ in range(settings["steps"]):
        with precision:
            product = tables[0](users) * tables[1](items)
            deep = layers(torch.cat((tables[2](users), tables[3](items)), dim=1))
            logits = final(torch.cat((product, deep), dim=1))
            loss = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        loss.float().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield None


class Attention(nn.Module):
    """Attention by relative positions over a segment and the one before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head = heads, width // heads
        self.into = nn.Linear(width, 3 * width, bias=False)
        self.positions = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)

    def forward(self, segment, memory, encoded, biases, mask):
        length, batch, width = segment.shape
        every = torch.cat([memory, segment], 0)
        query, key, value = self.into(every).chunk(3, dim=-1)
        query = query[-length:].view(length, batch, self.heads, self.head)
        key, value = (x.view(-1, batch, self.heads, self.head) for x in (key, value))
        places = self.positions(encoded).view(-1, self.heads, self.head)
        by_content = torch.einsum("ibnd,jbnd->bnij", query + biases[0], key)
        by_place = torch.einsum("ibnd,jnd->bnij", query + biases[1], places)
        pad = by_place.new_zeros((*by_place.shape[:3], 1))
        shape = by_place.shape
        shifted = torch.cat([pad, by_place], 3).view(*shape[:2], shape[3] + 1, shape[2])
        scores = (by_content + shifted.narrow(2, 1, shape[3]).view(shape)) * self.head**-0.5
        scores = scores.masked_fill(mask, -float("inf")).softmax(dim=3)
        mixed_values = torch.einsum("bnij,jbnd->ibnd", scores, value).reshape(length, batch, width)
        return self.norm(segment + self.drop(self.out(mixed_values)))


class Feed(nn.Module):
    """The two linear layers after it."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        drop = nn.Dropout(0.1)
        self.layers = nn.Sequential(
            nn.Linear(width, inner), nn.ReLU(inplace=True), drop, nn.Linear(inner, width), drop
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.layers(x))


def transformer_xl(settings: dict):
    """Transformer-XL base, 16 layers of 512, tokens of WikiText-103, with Adam instead of LAMB."""
    width, heads, depth = 512, 8, 16
    precision = mixed(settings)
    with unfilled():
        words = nn.Embedding(VOCABULARY, width)
        layers = nn.ModuleList(
            nn.ModuleList([Attention(width, heads), Feed(width, 2048)]) for _ in range(depth)
        )
        clusters = nn.Parameter(torch.zeros(len(TAILS), width))
        biases = nn.Parameter(torch.zeros(2, heads, width // heads))
        output_bias = nn.Parameter(torch.zeros(VOCABULARY))
    model = nn.ModuleList([words, layers])
    model.register_parameter("clusters", clusters)
    model.register_parameter("biases", biases)
    model.register_parameter("output_bias", output_bias)
    model.to("cuda").train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    batch = settings["batch"]
    tokens = torch.zeros(LENGTH, batch, dtype=torch.int64, device="cuda")
    mask = torch.ones(LENGTH, 2 * LENGTH, device="cuda").triu(1 + LENGTH).bool()
    encoded = torch.empty(2 * LENGTH, width, device="cuda")
    memories = [torch.empty(LENGTH, batch, width, device="cuda") for _ in range(depth)]
    edges = (0, *CUTOFFS, VOCABULARY)
    yield None
    for _ in range(settings["steps"]):
        with precision:
            x = functional.dropout(words(tokens) * width**0.5, 0.1)
            kept = []
            for (attention, feed), memory in zip(layers, memories, strict=True):
                kept.append(x.detach())
                x = feed(attention(x, memory, encoded, model.biases, mask))
            flat = x.reshape(-1, width)
            head = torch.cat([words.weight[: edges[1]], model.clusters])
            head_bias = functional.pad(model.output_bias[: edges[1]], (0, len(TAILS)))
            loss = functional.linear(flat, head, head_bias).log_softmax(dim=1)[:, 0].sum()
            for (start, end), share in zip(itertools.pairwise(edges[1:]), TAILS, strict=True):
                rare = flat.index_select(0, tokens.flatten()[: max(1, int(share * flat.shape[0]))])
                logits = functional.linear(rare, words.weight[start:end], model.output_bias[start:end])
                loss = loss + logits.log_softmax(dim=1)[:, 0].sum()
        memories = kept
        (-loss / flat.shape[0]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        optimizer.zero_grad()
        yield None


MODELS = {"ssd": ssd, "ncf": ncf, "transformerxlbase": transformer_xl}


def nvidia_example(settings: dict):
    """One of the examples by its name in the table."""
    if settings["model"] not in MODELS:
        raise Skip("this example is not rebuilt")
    yield from MODELS[settings["model"]](settings)
