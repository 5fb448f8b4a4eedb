"""Training scripts for language models, and one attention layer."""

import math
import time

import torch
from images import OPTIMIZERS
from quick import Skip, unfilled
from torch import nn

# Sizes as the models' public configuration files give them; only what decides memory.
GPT2 = {"class": "GPT2LMHeadModel", "config": "GPT2Config", "vocab_size": 50257, "n_positions": 1024}
LLAMA = {"class": "LlamaForCausalLM", "config": "LlamaConfig"}
MODELS = {
    "openai-community/gpt2": GPT2 | {"n_embd": 768, "n_layer": 12, "n_head": 12},
    "distilbert/distilgpt2": GPT2 | {"n_embd": 768, "n_layer": 6, "n_head": 12},
    "cerebras/Cerebras-GPT-111M": GPT2
    | {"n_embd": 768, "n_layer": 10, "n_head": 12, "n_inner": 3072, "n_positions": 2048},
    "EleutherAI/gpt-neo-125M": {
        "class": "GPTNeoForCausalLM",
        "config": "GPTNeoConfig",
        "vocab_size": 50257,
        "hidden_size": 768,
        "num_layers": 12,
        "num_heads": 12,
        "attention_types": [[["global", "local"], 6]],
        "attention_dropout": 0.0,
        "embed_dropout": 0.0,
        "resid_dropout": 0.0,
    },
    "facebook/opt-125m": {
        "class": "OPTForCausalLM",
        "config": "OPTConfig",
        "vocab_size": 50272,
        "hidden_size": 768,
        "ffn_dim": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 768,
    },
    "google-t5/t5-small": {
        "class": "T5ForConditionalGeneration",
        "config": "T5Config",
        "vocab_size": 32128,
        "d_model": 512,
        "d_kv": 64,
        "d_ff": 2048,
        "num_layers": 6,
        "num_heads": 8,
        "decoder_start_token_id": 0,
    },
    "google-t5/t5-base": {
        "class": "T5ForConditionalGeneration",
        "config": "T5Config",
        "vocab_size": 32128,
        "d_model": 768,
        "d_kv": 64,
        "d_ff": 3072,
        "num_layers": 12,
        "num_heads": 12,
        "decoder_start_token_id": 0,
    },
    "EleutherAI/pythia-1b": {
        "class": "GPTNeoXForCausalLM",
        "config": "GPTNeoXConfig",
        "vocab_size": 50304,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 8,
        "max_position_embeddings": 2048,
    },
    "Qwen/Qwen3-0.6B": {
        "class": "Qwen3ForCausalLM",
        "config": "Qwen3Config",
        "vocab_size": 151936,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen3-4B": {
        "class": "Qwen3ForCausalLM",
        "config": "Qwen3Config",
        "vocab_size": 151936,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": True,
    },
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": {
        "class": "Qwen2ForCausalLM",
        "config": "Qwen2Config",
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "tie_word_embeddings": False,
    },
    "google/gemma-2-2b-it": {
        "class": "Gemma2ForCausalLM",
        "config": "Gemma2Config",
        "vocab_size": 256000,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
    },
    "meta-llama/Llama-3.2-1B-Instruct": LLAMA
    | {
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "tie_word_embeddings": True,
    },
    "meta-llama/Llama-3.2-3B-Instruct": LLAMA
    | {
        "vocab_size": 128256,
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_hidden_layers": 28,
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "tie_word_embeddings": True,
    },
}


def described(name: str) -> dict:
    """The sizes of a model, by its name on the hub with or without the owner."""
    wanted = name.lower().split("/")[-1]
    for known, sizes in MODELS.items():
        if known.lower().split("/")[-1] == wanted:
            return dict(sizes)
    raise Skip("sizes of this model are not in the table")


def transformers_training(settings: dict):
    """A model with random weights on lines of text, labels equal to the inputs."""
    import transformers

    torch.backends.cudnn.benchmark = False
    sizes = described(settings["model"])
    maker, config = getattr(transformers, sizes.pop("class")), getattr(transformers, sizes.pop("config"))
    if OPTIMIZERS.get(settings["optimizer"]) is None:
        raise Skip(f"no optimizer {settings['optimizer']}")
    with unfilled():
        model = maker(config(**sizes))
    model.to("cuda")
    model.train()
    optimizer = OPTIMIZERS[settings["optimizer"]](model.parameters(), lr=1e-3)
    yield {"parameters": sum(p.numel() for p in model.parameters()), "kernels_over_one": 0}
    shape = (settings["batch"], settings["sequence"])
    for _ in range(settings["steps"]):
        tokens = torch.zeros(shape, dtype=torch.int64).to("cuda")
        mask = torch.ones(shape, dtype=torch.int64).to("cuda")
        if settings["zero_grad"] == "start":
            optimizer.zero_grad()
        if settings.get("loss") == "shifted_logits" and not config.__name__.startswith("T5"):
            output = model(input_ids=tokens, attention_mask=mask)
            logits = output.logits.float()
            shifted = logits[..., :-1, :].contiguous()
            labels = tokens[..., 1:].contiguous()
            loss = nn.functional.cross_entropy(shifted.view(-1, shifted.size(-1)), labels.view(-1))
        else:
            output = model(input_ids=tokens, attention_mask=mask, labels=tokens)
            loss = output.loss
        if settings["zero_grad"] == "before_backward":
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield None


# Sizes of NeuSight's models, by its names; with the attention that transformers had before fused kernels.
NEUSIGHT = {
    "bert_large": {
        "class": "BertModel",
        "config": "BertConfig",
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
    "gpt2_large": GPT2 | {"n_embd": 1280, "n_layer": 36, "n_head": 20},
    "opt_13": {
        "class": "OPTForCausalLM",
        "config": "OPTConfig",
        "vocab_size": 50272,
        "hidden_size": 2048,
        "ffn_dim": 8192,
        "num_hidden_layers": 24,
        "num_attention_heads": 32,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 2048,
    },
    "gpt3_27": GPT2 | {"n_embd": 2560, "n_layer": 32, "n_head": 32, "n_positions": 2048},
    "gpt3_xl": GPT2 | {"n_embd": 2048, "n_layer": 24, "n_head": 24, "n_positions": 2048},
}


def neusight_run(settings: dict):
    """Forward, or forward and backward without an optimizer, in full precision."""
    import transformers

    if settings["model"] not in NEUSIGHT:
        raise Skip("sizes of this model are not in the table")
    torch.backends.cuda.matmul.allow_tf32 = False
    sizes = dict(NEUSIGHT[settings["model"]])
    maker, config = getattr(transformers, sizes.pop("class")), getattr(transformers, sizes.pop("config"))
    with unfilled():
        model = maker(config(attn_implementation="eager", **sizes))
    model.to("cuda")
    trains = settings["mode"] == "train"
    model.train(trains)
    yield {"parameters": sum(p.numel() for p in model.parameters()), "kernels_over_one": 0}
    tokens = torch.zeros((settings["batch"], settings["sequence"]), dtype=torch.int64, device="cuda")
    for _ in range(settings["steps"]):
        with torch.set_grad_enabled(trains):
            output = model(input_ids=tokens, use_cache=False)[0]
        if trains:
            model.zero_grad(set_to_none=True)
            output.backward(torch.empty_like(output))
        del output
        yield None


def nvidia_bert(settings: dict):
    """NVIDIA's BERT large: one batch forward and backward; the optimizer comes once in dozens of batches."""
    import transformers

    torch.backends.cuda.matmul.allow_tf32 = settings["precision"] == "tf32"
    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16}
    config = transformers.BertConfig(
        vocab_size=30528, intermediate_size=4096, attn_implementation="eager", **sizes
    )
    trains = transformers.BertForPreTraining if settings["task"] == "pretraining" else None
    maker = trains or transformers.BertForQuestionAnswering
    with unfilled():
        model = maker(config)
    model.to("cuda").train()
    if settings["precision"] == "fp16":
        model.half()
    yield {"parameters": sum(p.numel() for p in model.parameters()), "kernels_over_one": 0}
    shape = (settings["batch"], settings["sequence"])
    tokens = torch.zeros(shape, dtype=torch.int64, device="cuda")
    first = torch.zeros(settings["batch"], dtype=torch.int64, device="cuda")
    for _ in range(settings["steps"]):
        if trains:
            loss = model(input_ids=tokens, labels=tokens, next_sentence_label=first).loss
        else:
            loss = model(input_ids=tokens, start_positions=first, end_positions=first).loss
        loss.backward()
        model.zero_grad(set_to_none=True)
        yield None


def attention_forward(settings: dict):
    """Plain attention without heads, after a warm-up: what is allocated after the forward.

    Inputs and the upstream gradient are in the figure, and the workspaces of cuBLAS for the forward and the
    backward thread. The softmax is written out, with the row's maximum taken off first.
    """
    shape = (settings["batch"], settings["sequence"], settings["width"])
    query, key, value = (torch.empty(shape, device="cuda", requires_grad=True) for _ in range(3))
    upstream = torch.empty(shape, device="cuda")

    def attention():
        scores = (query / math.sqrt(settings["width"])) @ key.transpose(-2, -1)
        weights = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
        return (weights / weights.sum(dim=-1, keepdim=True)) @ value

    yield None
    torch.autograd.grad(attention(), (query, key, value), upstream)
    # The backward thread lets go of the gradients a moment later.
    time.sleep(0.05)
    output = attention()
    yield {"allocated_now_bytes": torch.cuda.memory_allocated()}
    del output
