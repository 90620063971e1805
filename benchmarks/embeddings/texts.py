"""Texts of mixed length: pieces of this project's pages, short ones more often than long ones, always the same."""

import random

from benchmarks.tools import ROOT

COUNT = 1000
SHORTEST, LONGEST = 3, 180
"""In words; a word is about 1.6 tokens of MiniLM, which reads 256."""


def mixed_texts(count: int = COUNT) -> list[str]:
    """So many texts; half of them have less than 25 words."""
    words = " ".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))).split()
    chance = random.Random(0)  # the same texts each time
    texts = []
    for _ in range(count):
        length = min(LONGEST, max(SHORTEST, round(chance.lognormvariate(3.2, 0.9))))
        start = chance.randrange(len(words) - length)
        texts.append(" ".join(words[start : start + length]))
    return texts
