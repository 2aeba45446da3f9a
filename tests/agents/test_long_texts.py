"""Long messages, made to keep patterns busy, are dealt with in a moment by everything that reads them."""

import time

import pytest

from agents import rules
from agents.conversation import request_from_text
from agents.extract import extract
from agents.safety import find_harm
from agents.tools.catalog import tools

# Enough for a pattern that takes the square of the length to take hours.
LENGTH = 300_000
# fmt: off
PIECES = (
    "! x ", "a/", "a.", "+a", '"', "«", "`", "say ", "in ", "the ", "the file ", " ", "\n", "\t", "read ", "(", "[",
    "![", "[a](", "<", "<!--", "```x\n", "```\n", "- ", "| ", "{", "\\", "kill ", "hack into ", "summarise ", ":", "/",
    "0", "é", "漢", "🦄", "please ", "“",
)
# fmt: on
STARTS = ("", "read ", "summarise ", "list files in ", "echo ", "list agents ", ":tool echo ", "please ", "kill ")


def long(start: str, piece: str) -> str:
    return (start + piece * (LENGTH // len(piece)) + "x")[:LENGTH]


@pytest.mark.parametrize("piece", PIECES)
def test_grammars_take_a_moment(piece):
    started = time.thread_time()
    for start in STARTS:
        request = request_from_text(long(start, piece))
        rules._exact(request, tools())
        find_harm(request.text)
        for tool in tools().values():
            tool.extract(request)
            tool.complete(request)
    assert time.thread_time() - started < 15


@pytest.mark.parametrize("piece", PIECES)
def test_extracting_takes_a_moment(piece):
    started = time.thread_time()
    extract(long("", piece), 5)
    assert time.thread_time() - started < 15
