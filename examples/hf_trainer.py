"""Fine-tune a BERT with the Hugging Face Trainer on random sentences.

Nothing in here knows of brimful.
"""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    """Random tokens with random labels."""

    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index: int) -> dict:
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(0, 30522, (256,), generator=generator)
        return {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "labels": torch.tensor(index % 2),
        }


def main() -> None:
    """Train."""
    model = BertForSequenceClassification(BertConfig(num_labels=2))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=32,
            num_train_epochs=1,
            fp16=True,
            report_to=[],
            save_strategy="no",
            logging_steps=5,
        )
        Trainer(model=model, args=arguments, train_dataset=Sentences()).train()


if __name__ == "__main__":
    main()
