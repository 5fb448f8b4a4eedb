"""Train one of a few networks on random data, for `compare.py`. Needs torchvision and transformers."""

import argparse

import torch
import torchvision
from torch import nn


class Perceptron(nn.Module):
    """Three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Recurrent(nn.Module):
    """Two layers of LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(512, 1024, num_layers=2, batch_first=True)
        self.head = nn.Linear(1024, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Language(nn.Module):
    """A language model of transformers."""

    def __init__(self, name: str) -> None:
        super().__init__()
        import transformers

        if name == "gpt2":
            config = transformers.GPT2Config(use_cache=False)
            self.model = transformers.GPT2LMHeadModel(config)
        elif name == "bert":
            self.model = transformers.BertForMaskedLM(transformers.BertConfig())
        else:
            config = transformers.LlamaConfig(
                hidden_size=1024,
                intermediate_size=2816,
                num_hidden_layers=8,
                num_attention_heads=16,
                num_key_value_heads=4,
                use_cache=False,
            )
            self.model = transformers.LlamaForCausalLM(config)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(tokens, labels=tokens).loss


def main() -> None:
    """Train."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--optimizer", default="adamw")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--accumulate", type=int, default=1)
    arguments = parser.parse_args()
    language = arguments.model in ("gpt2", "bert", "llama")
    if language:
        model: nn.Module = Language(arguments.model)
    elif arguments.model == "mlp":
        model = Perceptron()
    elif arguments.model == "lstm":
        model = Recurrent()
    else:
        model = torchvision.models.get_model(arguments.model)
    model.to("cuda").train()
    if arguments.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters())
    dtype = torch.float16 if arguments.precision == "fp16" else torch.bfloat16
    scaler = torch.amp.GradScaler("cuda", enabled=arguments.precision == "fp16")
    while True:
        for _ in range(arguments.accumulate):
            if language:
                data = torch.randint(0, 10_000, (arguments.batch, 512)).cuda()
            elif arguments.model == "mlp":
                data = torch.randn(arguments.batch, 1024).cuda()
            elif arguments.model == "lstm":
                data = torch.randn(arguments.batch, 128, 512).cuda()
            else:
                data = torch.randn(arguments.batch, 3, 224, 224).cuda()
            with torch.autocast("cuda", dtype=dtype, enabled=arguments.precision != "fp32"):
                found = model(data)
                if not language:
                    labels = torch.randint(0, 1000, (arguments.batch,)).cuda()
                    found = nn.functional.cross_entropy(found, labels)
            scaler.scale(found).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
