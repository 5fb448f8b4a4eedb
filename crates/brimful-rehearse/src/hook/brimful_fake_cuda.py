"""What `torch.cuda` answers for a card where torch has no CUDA."""

import contextlib
import os
import types

import torch
from brimful_common import WITHOUT_CUDA
from brimful_ledger import ROUNDING

KIB = 1 << 10
# What PyTorch asks for by default (`:4096:2:16:8`); more on Hopper and later.
WORKSPACE = (2 * 4096 + 8 * 16) * KIB
LARGE_WORKSPACE = 32 * KIB * KIB


class Card:
    """The first device of a description for the phantom."""

    def __init__(self, description):
        parts = dict(part.split("=", 1) for part in description.split(";")[0].split(",") if "=" in part)
        self.count = len([device for device in description.split(";") if device.strip()]) or 1
        self.name = parts.get("name", "a card")
        self.memory = int(parts.get("memory", 1 << 34))
        self.multiprocessors = int(parts.get("multiprocessors", 40))
        major, _, minor = parts.get("cc", "8.0").partition(".")
        self.capability = (int(major), int(minor or 0))
        # The programming guide's table: 1024 on Turing, 1536 on consumer cards since Ampere, else 2048.
        fewer = {(7, 5): 1024, (8, 6): 1536, (8, 7): 1536, (8, 9): 1536, (12, 0): 1536, (12, 1): 1536}
        self.threads_per_multiprocessor = fewer.get(self.capability, 2048)

    def cublas_workspace(self):
        """Bytes that PyTorch gives cuBLAS for each thread."""
        asked = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "").strip(":").split(":")
        try:
            sizes = [int(size) for size in asked if size]
        except ValueError:
            sizes = []
        if sizes and len(sizes) % 2 == 0:
            return sum(size * count for size, count in zip(sizes[::2], sizes[1::2], strict=True)) * KIB
        return LARGE_WORKSPACE if self.capability >= (9, 0) else WORKSPACE

    def properties(self):
        major, minor = self.capability
        return types.SimpleNamespace(
            name=self.name,
            total_memory=self.memory,
            major=major,
            minor=minor,
            multi_processor_count=self.multiprocessors,
            warp_size=32,
            max_threads_per_multi_processor=self.threads_per_multiprocessor,
            max_threads_per_block=1024,
            regs_per_multiprocessor=65536,
            shared_memory_per_block=48 * KIB,
            shared_memory_per_block_optin=(64 if major < 8 else 99) * KIB,
            shared_memory_per_multiprocessor=(64 if major < 8 else 100) * KIB,
            L2_cache_size=4 * KIB * KIB,
            is_integrated=0,
            is_multi_gpu_board=0,
            gcnArchName=self.name,
        )


class Stream:
    """Work is done at once, in every stream."""

    def __init__(self, *_, **__):
        self.device = torch.device("cuda", 0)
        self.cuda_stream = self.stream_id = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def query(self):
        return True

    def is_capturing(self):
        return False

    def record_event(self, event=None):
        return event or Event()

    def synchronize(self):
        return None

    wait_event = wait_stream = lambda self, other: None


class Event:
    """Something that has happened already."""

    def __init__(self, *_, **__):
        pass

    def query(self):
        return True

    def elapsed_time(self, end_event):
        return 1.0

    record = wait = synchronize = lambda self, *_, **__: None


class Statistics:
    """What PyTorch's allocator would say; what it holds in reserve is not known here."""

    def __init__(self, card, ledger):
        self.card = card
        self.ledger = ledger

    def allocated(self, *_, **__):
        return self.ledger.allocated

    def peak(self, *_, **__):
        return self.ledger.peak

    def reset_peak(self, *_, **__):
        self.ledger.peak = self.ledger.allocated

    def free(self, *_, **__):
        return max(self.card.memory - self.ledger.allocated, ROUNDING), self.card.memory

    def all(self, *_, **__):
        found = {"num_alloc_retries": 0, "num_ooms": 0}
        for kind in ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes"):
            for pool in ("all", "large_pool", "small_pool"):
                found[f"{kind}.{pool}.current"] = self.ledger.allocated
                found[f"{kind}.{pool}.peak"] = self.ledger.peak
                found[f"{kind}.{pool}.allocated"] = found[f"{kind}.{pool}.freed"] = 0
        return found


def nothing(*_, **__):
    """Done."""


def random_state(*_, **__):
    """As long as that of a device."""
    return torch.zeros(16, dtype=torch.uint8)


def hides_gpus():
    """Whether the script hides every GPU from CUDA."""
    return not WITHOUT_CUDA and os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in {"", "-1"}


def answer_for(card, ledger, on_use):
    """Put answers for the card in place of `torch.cuda`'s."""
    cuda = torch.cuda

    def start(*_, **__):
        cuda._initialized = True
        on_use()

    answers = {**answers_of_card(card, start), **answers_of_memory(Statistics(card, ledger))}
    answers = {name: own(answer) for name, answer in answers.items()}
    for module in (cuda, cuda.memory, cuda.random, cuda.streams, cuda.graphs):
        for name, answer in answers.items():
            if module is cuda or hasattr(module, name):
                setattr(module, name, answer)
    answer_as_accelerator(answers)
    torch.backends.cuda.is_built = lambda: True
    torch.version.cuda = torch.version.cuda or "13.0"


def answers_of_card(card, start):
    """What is asked about devices, streams and random numbers."""
    stream = Stream()
    return {
        "is_available": lambda: not hides_gpus(),
        "is_initialized": lambda: True,
        "init": start,
        "_lazy_init": start,
        "_lazy_call": lambda call, **_: None,
        "_is_in_bad_fork": lambda: False,
        "device_count": lambda: 0 if hides_gpus() else 1,
        "current_device": lambda: 0,
        "set_device": nothing,
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "get_device_name": lambda *_, **__: card.name,
        "get_device_capability": lambda *_, **__: card.capability,
        "get_device_properties": lambda *_, **__: card.properties(),
        "get_arch_list": lambda: [f"sm_{card.capability[0]}{card.capability[1]}"],
        "can_device_access_peer": lambda *_, **__: False,
        "is_bf16_supported": lambda including_emulation=True: (
            including_emulation or card.capability >= (8, 0)
        ),
        "is_tf32_supported": lambda: card.capability >= (8, 0),
        "synchronize": nothing,
        "ipc_collect": nothing,
        "current_stream": lambda *_, **__: stream,
        "default_stream": lambda *_, **__: stream,
        "set_stream": nothing,
        "stream": lambda *_, **__: contextlib.nullcontext(),
        "Stream": Stream,
        "Event": Event,
        "is_current_stream_capturing": lambda: False,
        "manual_seed": nothing,
        "manual_seed_all": nothing,
        "seed": nothing,
        "seed_all": nothing,
        "initial_seed": lambda: 0,
        "get_rng_state": random_state,
        "get_rng_state_all": lambda: [random_state()],
        "set_rng_state": nothing,
        "set_rng_state_all": nothing,
        "utilization": lambda *_, **__: 0,
        "get_sync_debug_mode": lambda: 0,
        "set_sync_debug_mode": nothing,
    }


def answers_of_memory(say):
    """What is asked about memory."""
    return {
        "empty_cache": nothing,
        "memory_allocated": say.allocated,
        "max_memory_allocated": say.peak,
        "memory_reserved": say.allocated,
        "max_memory_reserved": say.peak,
        "memory_cached": say.allocated,
        "max_memory_cached": say.peak,
        "memory_stats": say.all,
        "memory_summary": lambda *_, **__: "brimful: no CUDA here, and no allocator",
        "memory_snapshot": lambda *_, **__: [],
        "mem_get_info": say.free,
        "reset_peak_memory_stats": say.reset_peak,
        "reset_max_memory_allocated": say.reset_peak,
        "reset_max_memory_cached": say.reset_peak,
        "reset_accumulated_memory_stats": nothing,
        "set_per_process_memory_fraction": nothing,
        "_record_memory_history": nothing,
        "_dump_snapshot": nothing,
    }


def own(answer):
    """A function of its own: PyTorch's compiler keeps rules for each by identity."""
    if isinstance(answer, type):
        return answer

    def answering(*arguments, **named):
        return answer(*arguments, **named)

    return answering


def answer_as_accelerator(answers):
    """`torch.accelerator` is the same by another name."""
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is None:
        return
    others = {
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "current_device_idx": lambda: 0,
        "set_device_index": answers["set_device"],
        "set_device_idx": answers["set_device"],
        "get_memory_info": answers["mem_get_info"],
    }
    modules = [accelerator, getattr(accelerator, "memory", accelerator)]
    for module in modules:
        for name, answer in {**answers, **others}.items():
            if hasattr(module, name):
                setattr(module, name, answer)
