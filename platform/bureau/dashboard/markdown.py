"""Text of agents as HTML that can do no harm: no HTML of its own, no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from django.utils.safestring import SafeString
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

_SIGNS = re.compile(
    r"""
    ^[#]{1,6}\ \S        # a heading
    | ^(```|~~~)         # a block of code
    | ^[-*]\ \S          # a list
    | ^\|.+\|\s*$        # a table
    | \*\*\S             # bold
    | `[^`\n]+`          # code
    | \]\(https?://      # a link
    """,
    re.MULTILINE | re.VERBOSE,
)
# The page has headings of its own above these.
LOWEST_HEADING = 3


@cache
def _parser() -> MarkdownIt:
    # "js-default" refuses raw HTML, script addresses and deep nesting.
    # Agents write lists of files and the like line by line; run together nobody can read them.
    parser = MarkdownIt("js-default", {"html": False, "linkify": False, "typographer": False, "breaks": True})
    parser.add_render_rule("image", _image)
    parser.add_render_rule("link_open", _link)
    parser.add_render_rule("heading_open", _heading)
    parser.add_render_rule("heading_close", _heading)
    parser.add_render_rule("table_open", _table_open)
    parser.add_render_rule("table_close", _table_close)
    return parser


def is_likely(text: str) -> bool:
    """Whether this looks like Markdown: for text that comes without a media type."""
    return bool(_SIGNS.search(text))


def render(text: str) -> SafeString:
    """Markdown (CommonMark with tables) as safe HTML."""
    html: str = _parser().render(text)
    return SafeString(html)


def _image(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """A picture elsewhere would tell its server who reads this: name it instead."""
    token = tokens[index]
    words = self.renderInlineAsText(token.children or [], options, env)
    return f'<span class="quiet">[image: {_escape(words or str(token.attrGet("src") or ""))}]</span>'


def _link(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return self.renderToken(tokens, index, options, env)


def _heading(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    tokens[index].tag = f"h{min(6, int(tokens[index].tag[1]) + LOWEST_HEADING - 1)}"
    return self.renderToken(tokens, index, options, env)


def _table_open(*_: Any) -> str:
    return '<div class="scroll" tabindex="0" role="group" aria-label="Table"><table>\n'


def _table_close(*_: Any) -> str:
    return "</table></div>\n"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
