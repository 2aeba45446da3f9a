"""Extractive summaries: sentences are found in prose and Markdown, and the telling ones are chosen."""

import time

import pytest

from agents.extract import extract, split_sentences


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "This is one whole sentence. And here is another one!",
            ["This is one whole sentence.", "And here is another one!"],
        ),
        ("The value of pi is about 3.14 in most cases.", ["The value of pi is about 3.14 in most cases."]),
        ("# A heading that is long enough\n\nThe body of the section.", ["The body of the section."]),
        (
            "Це перше речення про китів. Це друге речення про кораблі.",
            ["Це перше речення про китів.", "Це друге речення про кораблі."],
        ),
        ("```\ncode that is long enough to count as one\n```", []),
        ("| a table | with cells | that are long |\n|---|---|---|", []),
        (
            "- The first point of the list\n- The other point of the list",
            ["The first point of the list", "The other point of the list"],
        ),
        ("See [the **guide**](https://example.org/x) for all the details.", ["See the guide for all the details."]),
        (
            "Sign in at <https://bureau.example.org>, and <b>watch</b> it.",
            ["Sign in at https://bureau.example.org, and watch it."],
        ),
        ("Then write to <mailto:desk@example.org>.", ["Then write to mailto:desk@example.org."]),
        ("The same sentence is here twice. The same sentence is here twice.", ["The same sentence is here twice."]),
        ("Too short. 1234567890 1234567890 1234567890.", []),
        ("", []),
    ],
)
def test_sentences_are_found(text, found):
    assert split_sentences(text) == found


def test_a_short_text_is_given_whole():
    found = extract("This is one whole sentence. And this is another one here.", 5)
    assert (len(found.sentences), found.total) == (2, 2)


def test_the_chosen_ones_keep_their_order_and_do_not_repeat():
    text = " ".join(
        [
            "Trains between Kyiv and Lviv leave every two hours.",
            "A train from Kyiv to Lviv leaves every two hours.",
            "Tickets cost less when they are bought early.",
            "My grandmother likes to knit socks in winter.",
            "The journey by train takes about seven hours.",
        ]
    )
    found = extract(text, 2)
    positions = [text.index(sentence) for sentence in found.sentences]
    assert positions == sorted(positions)
    assert not any("socks" in sentence for sentence in found.sentences)
    assert sum("every two hours" in sentence for sentence in found.sentences) == 1


def test_a_megabyte_takes_a_moment():
    text = " ".join(f"Sentence number {number} speaks of the matter {number % 97} at hand." for number in range(20_000))
    started = time.thread_time()
    assert len(extract(text, 5).sentences) == 5
    assert time.thread_time() - started < 10


@pytest.mark.parametrize(
    "text", ["a" * 100_000, "!" * 50_000, "[" * 20_000, "<" * 20_000, "- " * 30_000, "\n" * 50_000]
)
def test_odd_texts_do_not_hang_it(text):
    started = time.thread_time()
    extract(text, 5)
    assert time.thread_time() - started < 5
