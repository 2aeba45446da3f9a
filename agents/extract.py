"""Extractive summaries: the sentences of a text that say most of it, word for word and in their order.

The first one is always among them. The others are scored by how near they are to all the rest together
(cosine of embeddings), with a little for standing early; one that repeats a chosen one is passed over
(maximal marginal relevance).
"""

import re
from dataclasses import dataclass

from agents.matching import embed

MAX_SENTENCES = 4000
# Long enough to say something, short enough to be one sentence.
SHORTEST, LONGEST = 20, 600
EARLY = 0.1
SAME = 0.35
# Nearer than this, and a sentence says nothing new.
DUPLICATE = 0.85

_FENCE = re.compile(r"\s*(```|~~~)")
# The lengths are bounded so that a text of brackets alone takes no longer than any other.
_MARKUP = re.compile(r"!\[[^\]]{0,100}\]\([^)]{0,200}\)|<!--.{0,200}?-->|</?[a-zA-Z][^<>\n]{0,200}>", re.DOTALL)
# An address in angle brackets looks like a tag, and is a word of its sentence.
_ADDRESS = re.compile(r"<((?:https?|ftp|mailto):[^<>\s]{1,2000})>")
_LINK = re.compile(r"\[([^\[\]]{1,200})\]\([^)]{0,200}\)")
_BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+•]|\d+[.)]|#{1,6}|>|\|)\s)")
_LEADING = re.compile(r"^\s*(?:[-*+•>]|\d+[.)])\s+")
# A sentence ends at its mark before a capital; Chinese and Japanese need no blank.
_END = re.compile(r"(?<=[.!?…])[\"'”»)]*\s+(?=[\"'“«(]?[^\W\d_a-z\u0430-\u044f])|(?<=[\u3002\uff01\uff1f])")
_EMPHASIS = re.compile(r"(\*\*|__|`)")


@dataclass(frozen=True, slots=True)
class Extract:
    """The chosen sentences, and out of how many."""

    sentences: list[str]
    total: int


def extract(text: str, count: int) -> Extract:
    """The `count` sentences that say most; all of them when there are no more."""
    found = split_sentences(text)
    if len(found) <= count:
        return Extract(found, len(found))
    considered = found[:MAX_SENTENCES]
    return Extract([considered[index] for index in sorted(_choose(considered, count))], len(found))


def split_sentences(text: str) -> list[str]:
    """The sentences of prose or Markdown, without headings, code, tables and markup. Each one once."""
    text = _MARKUP.sub(" ", _ADDRESS.sub(r"\1", _without_code(text)))
    found: dict[str, None] = {}
    for block in _BLOCK.split(_LINK.sub(r"\1", text)):
        if _is_no_prose(block.strip()):
            continue
        prose = _EMPHASIS.sub("", " ".join(_LEADING.sub("", block.strip()).split()))
        for sentence in _END.split(prose):
            if SHORTEST <= len(sentence) <= LONGEST and sum(map(str.isalpha, sentence)) > len(sentence) / 2:
                found[sentence.strip()] = None
    return list(found)


def _without_code(text: str) -> str:
    """The text without its fenced blocks. Line by line: a pattern would look for the end of every open one."""
    kept: list[str] = []
    fence = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
            kept.append("")
        elif not fence:
            kept.append(line)
    return "\n".join(kept)


def _is_no_prose(block: str) -> bool:
    """Headings, tables, rules."""
    return not block or block.startswith(("#", "|")) or set(block) <= set("-=*_ \n")


def _choose(sentences: list[str], count: int) -> list[int]:
    import numpy as np

    vectors = embed(sentences)
    # The nearness to all others together, its own left out: in a short text each sentence is most like itself.
    others = vectors @ vectors.sum(axis=0) - 1
    score = others / (np.abs(others).max() or 1) + EARLY * np.linspace(1, 0, len(sentences))
    # What a text begins with is mostly what it is about.
    chosen = [0]
    nearest = vectors @ vectors[0]
    while len(chosen) < count:
        worth = score - SAME * nearest - 2 * (nearest > DUPLICATE)
        worth[chosen] = -np.inf
        best = int(np.argmax(worth))
        chosen.append(best)
        nearest = np.maximum(nearest, vectors @ vectors[best])
    return chosen
