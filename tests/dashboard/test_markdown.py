import pytest

from bureau.dashboard.markdown import is_likely, render


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<b onclick=alert(1)>x</b>",
        "[x](javascript:alert(1))",
        "[x](data:text/html;base64,PHNjcmlwdD4=)",
        "[x](vbscript:y)",
        '![x"onerror="alert(1)](https://e.example/a.png)',
        "<javascript:alert(1)>",
        '[x](https://e.example "t\\" onmouseover=\\"alert(1)")',
    ],
)
def test_nothing_dangerous_comes_through(text):
    html = str(render(text))
    for bad in ("<script", "<b ", 'href="javascript', 'href="data', 'href="vb', "<img", '" on'):
        assert bad not in html


def test_the_usual_is_laid_out():
    html = str(render("# A\n\n- b\n\n| c | d |\n|---|---|\n| 1 | 2 |\n\n[e](https://e.example)"))
    for piece in ("<h3>A</h3>", "<li>b</li>", "<td>1</td>", 'rel="noopener noreferrer nofollow"'):
        assert piece in html


def test_deep_nesting_ends():
    assert render(">" * 5000 + "x")


@pytest.mark.parametrize(
    "text", ["# A", "a\n- b", "**a**", "| a | b |", "```\nx\n```", "run `make`", "[a](https://b.example)"]
)
def test_markdown_is_recognised(text):
    assert is_likely(text)


@pytest.mark.parametrize("text", ["Plain words.", "a * b", "assistant: does\n  - Assist: all", "#hashtag", "1) one"])
def test_other_text_is_left_as_it_is(text):
    assert not is_likely(text)
