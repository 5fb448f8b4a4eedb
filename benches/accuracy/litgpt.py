"""LitGPT's finetuning and generation scripts, written again for their memory.

The sizes are those of the models' public configurations, the settings those of the configuration files and of
the scripts' defaults when the tables were measured.
"""

import contextlib

import torch
from litgpt_model import Era, Lora, Model, Plan, Shape
from quick import Skip, unfilled
from torch.nn import functional

NEOX = {"norm": "layer", "feed_forward": "plain", "parallel": True}
PHI = NEOX | {"vocabulary": 51200, "context": 2048, "shared_norm": True, "bias": True, "head_bias": True}
GEMMA = {"vocabulary": 256000, "head": 256, "feed_forward": "gelu", "unit_offset": True}
LLAMA_3 = {"vocabulary": 128256, "context": 8192, "groups": 8}

SHAPES = {
    "phi-1.5 1.3b": Shape(24, 2048, rotary=0.5, **PHI),
    "phi-2": Shape(32, 2560, rotary=0.4, **PHI),
    "phi-3-mini-4k-instruct": Shape(32, 3072, inner=8192, vocabulary=32064),
    "stablelm alpha 3b": Shape(16, vocabulary=50688, rotary=0.25, bias=True, **NEOX),
    "falcon-7b": Shape(32, 4544, 71, 1, vocabulary=65024, context=2048, shared_norm=True, **NEOX),
    "falcon 40b": Shape(60, 8192, 128, 8, vocabulary=65024, context=2048, **NEOX),
    "llama 2 7b": Shape(32, inner=11008),
    "llama 2 13b": Shape(40, 5120, 40, inner=13824),
    "llama 2 70b": Shape(80, 8192, 64, 8, inner=28672),
    "codellama 34b": Shape(48, 8192, 64, 8, inner=22016, context=16384),
    "llama-3-8b": Shape(32, inner=14336, **LLAMA_3),
    "llama-3.2-1b": Shape(16, 2048, inner=8192, **LLAMA_3),
    "llama-3.2-3b": Shape(28, 3072, 24, inner=8192, **LLAMA_3),
    "mistral-7b": Shape(32, groups=8, inner=14336),
    "mistral-7b-v0.2": Shape(32, groups=8, inner=14336, context=32768),
    "tiny-llama": Shape(22, 2048, groups=4, inner=5632, context=2048),
    "gemma-2b": Shape(18, 2048, 8, 1, inner=16384, **GEMMA),
    "gemma-7b": Shape(28, 3072, 16, inner=24576, **GEMMA),
    "gemma2-2b": Shape(26, 2304, 8, 4, inner=9216, context=8192, capped=True, **GEMMA),
    "gemma-2-9b": Shape(42, 3584, 16, 8, inner=14336, context=8192, capped=True, **GEMMA),
}
SHAPES |= {
    "stablelm-base-alpha-3b": SHAPES["stablelm alpha 3b"],
    "llama-2-7b": SHAPES["llama 2 7b"],
    "llama-3.1-8b": SHAPES["llama-3-8b"],
}

ALL = (True, True, True)
# As the configurations' files say; the resource tables have the default of the script.
HUB_LORA = {
    "gemma-2b": Lora(8, ALL, rest=True, dropout=0.1),
    "gemma-7b": Lora(16, ALL, rest=True, dropout=0.1),
    "gemma2-2b": Lora(8, ALL, rest=True, dropout=0.1),
    "gemma-2-9b": Lora(16, ALL, rest=True, dropout=0.1),
    "phi-2": Lora(8, ALL, rest=True),
    "phi-3-mini-4k-instruct": Lora(8, ALL, rest=True),
    "tiny-llama": Lora(32, ALL, rest=True),
}
HUB_DEFAULT = Lora(32)
TABLES_DEFAULT = Lora(8)

# Measured later than the other configurations.
HUB_ERAS = {
    "phi-3-mini-4k-instruct": Era.IN_PLACE,
    "llama-3.1-8b": Era.GEMMA_2,
    "llama-3.2-1b": Era.GEMMA_2,
    "llama-3.2-3b": Era.GEMMA_2,
    "gemma2-2b": Era.GEMMA_2,
    "gemma-2-9b": Era.GEMMA_2,
}

# The tokens of an ordinary batch. Of Alpaca's samples 98 in 100 have no more than 256 (tloen/alpaca-lora#9).
ORDINARY = 128
# The head is applied to so many tokens at a time, except by full finetuning.
CHUNK = 128


def called(model: Model, *arguments, **options):
    """The model behind its wrapper, which hands out full precision."""
    output = model(*arguments, **options)
    if isinstance(output, list):
        return [part.float() for part in output]
    return output.float()


def chunked_loss(logits, labels):
    """Cross-entropy of a few rows at a time."""
    if isinstance(logits, list):
        rows = [part.reshape(-1, part.size(-1)) for part in logits]
        wanted = [part.reshape(-1) for part in labels.split(logits[0].size(1), dim=1)]
    else:
        rows = logits.reshape(-1, logits.size(-1)).split(CHUNK)
        wanted = labels.reshape(-1).split(CHUNK)
    pairs = zip(rows, wanted, strict=True)
    losses = [functional.cross_entropy(row, want, reduction="none") for row, want in pairs]
    count = (labels != -100).sum()
    return torch.cat(losses).sum() / count.maximum(torch.ones_like(count))


@contextlib.contextmanager
def half_precision():
    """Tensors are made on the card and in bfloat16."""
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def planned(settings: dict) -> Plan:
    """The model, the method and the era of a row."""
    name, method = settings["model"].lower(), settings["method"]
    if name not in SHAPES:
        raise Skip("sizes of this model are not in the table")
    if settings["precision"] != "bf16-true":
        raise Skip(f"precision {settings['precision']}")
    if settings["table"] == "config_hub":
        lora, era = HUB_LORA.get(name, HUB_DEFAULT), HUB_ERAS.get(name, Era.HUB)
    elif settings["table"] == "resource_tables":
        lora, era = TABLES_DEFAULT, Era.ADAPTERS if method.startswith("adapter") else Era.FIRST
    else:
        raise Skip(f"no table {settings['table']}")
    if method not in ("full", "lora", "adapter", "adapter_v2", "inference"):
        raise Skip(f"method {method}")
    return Plan(SHAPES[name], method, era, lora if method == "lora" else None)


def is_trained(name: str, method: str) -> bool:
    """Whether the method trains the parameter of this name."""
    if method == "full":
        return True
    if method == "lora":
        return "lora_" in name
    return "adapter_" in name or (method == "adapter_v2" and "norm" in name)


def litgpt_run(settings: dict):
    """One row of LitGPT's tables."""
    plan = planned(settings)
    torch.backends.cudnn.benchmark = False
    torch.set_float32_matmul_precision("high")
    with torch.device("meta"):
        parameters = sum(p.numel() for p in Model(plan).parameters())
    # Full finetuning holds weights, gradients and both moments of AdamW in bfloat16, whatever else it needs.
    yield {"least_bytes": 2 * parameters * (4 if plan.method == "full" else 1)}
    with unfilled(), half_precision():
        model = Model(plan)
    yield from generation(model) if plan.method == "inference" else finetuning(model, settings)


def batch_of(size: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and labels."""
    pair = (torch.zeros(size, length, dtype=torch.int64) for _ in range(2))
    return tuple(t.to("cuda", non_blocking=True) for t in pair)


def finetuning(model: Model, settings: dict):
    """Validation of two batches, then gradients of two batches for each step."""
    method, size, longest = model.plan.method, settings["micro_batch"], settings["max_seq_length"]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_trained(name, method))
    trained = [p for p in model.parameters() if p.requires_grad]
    count, told = sum(p.numel() for p in trained), settings.get("trainable_params")
    if told not in (None, count):
        raise Skip(f"{told} trained parameters in the table, {count} when built")
    optimizer = torch.optim.AdamW(trained, lr=2e-4, betas=(0.9, 0.95), weight_decay=0.01)
    model.set_length(longest, torch.float32)
    ordinary = min(ORDINARY, longest)
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            tokens, labels = batch_of(size, ordinary)
            logits = called(model, tokens)[..., :-1, :]
            functional.cross_entropy(logits.reshape(-1, logits.size(-1)), labels[..., 1:].reshape(-1))
    model.train()
    del tokens, labels, logits
    # The old scripts begin with the longest sample, the later ones meet it once in an epoch.
    first = settings["table"] == "resource_tables"
    lengths = [longest, *[ordinary] * 3] if first else [*[ordinary] * 3, longest, ordinary, longest]
    for number, length in enumerate(lengths, 1):
        # The names keep the last batch and its logits alive until the next are there.
        tokens, labels = batch_of(size, length)
        if method == "full":
            logits = called(model, tokens)
            loss = chunked_loss(logits[..., :-1, :], labels[..., 1:])
        else:
            logits = called(model, tokens, chunk=CHUNK)
            logits[-1] = logits[-1][..., :-1, :]
            loss = chunked_loss(logits, labels[..., 1:])
        (loss / 2).backward()
        if number % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        yield None


@torch.inference_mode()
def generation(model: Model):
    """A short prompt, and room for fifty more tokens."""
    model.eval()
    prompt, room = 5, 55
    model.set_length(room, torch.float16)
    model.set_cache(room)
    tokens = torch.zeros(room, dtype=torch.int64, device="cuda")
    places = torch.arange(prompt, device="cuda")
    # What a token needs does not depend on its place.
    for _ in range(4):
        logits = called(model, tokens.index_select(0, places).view(1, -1), places)[0, -1] / 0.8
        least, _ = torch.topk(logits, 200)
        logits = torch.where(logits < least[[-1]], -float("inf"), logits)
        chosen = torch.multinomial(functional.softmax(logits, dim=-1), num_samples=1)
        places = places[-1:] + 1
        tokens = tokens.index_copy(0, places, chosen)
        yield None
