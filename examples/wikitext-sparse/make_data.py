"""Write made-up English-like text: words as rare as Zipf's law says, each with a favorite successor."""

import argparse
from pathlib import Path

import numpy as np

BLOCK = 4096  # lines made at a time
LONGEST = 48  # words in a line


def make_words(random: np.random.Generator, n: int) -> np.ndarray:
    """Return `n` different words of consonants and vowels; the first, most frequent ones are short."""
    words: dict[str, None] = {}
    while len(words) < n:
        n_syllables = 1 + int(random.integers(0, 1 + min(3, len(words) // 50)))
        consonants = random.choice(list("bcdfghklmnprstvwz"), n_syllables)
        vowels = random.choice(list("aeiou"), n_syllables)
        words["".join(map("".join, zip(consonants, vowels, strict=True)))] = None
        if len(words) % 7 == 0:
            words["".join(consonants) + str(vowels[0]) + "ng"] = None
    return np.array(list(words)[:n])


def make_lines(random: np.random.Generator, words: np.ndarray, successors: np.ndarray) -> list[str]:
    """Return some lines; every other word, or so, follows from the word before it."""
    ranks = np.arange(1, len(words) + 1)
    steps = np.cumsum(1 / ranks)
    chosen = np.searchsorted(steps, random.random((LONGEST, BLOCK)) * steps[-1]).clip(max=len(words) - 1)
    follows = random.random((LONGEST, BLOCK)) < 0.5  # noqa: PLR2004
    for place in range(1, LONGEST):
        chosen[place] = np.where(follows[place], successors[chosen[place - 1]], chosen[place])
    lengths = random.integers(8, LONGEST, BLOCK)
    return [" ".join(words[line[:length]].tolist()) for line, length in zip(chosen.T, lengths, strict=True)]


def main() -> None:
    """Write lines until the file is large enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--words", type=int, default=20_000, help="how many different ones")
    parser.add_argument("--output", type=Path, default="corpus.txt")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    words = make_words(random, arguments.words)
    successors = random.permutation(len(words))
    left = arguments.megabytes * 1_000_000
    with arguments.output.open("w") as file:
        while left > 0:
            for line in make_lines(random, words, successors):
                if left > 0:
                    left -= file.write(line + "\n")
    print(f"{arguments.megabytes} megabytes in {arguments.output}")


if __name__ == "__main__":
    main()
