"""Names of HTML's tags that stand in reports, by what they do to the text."""

from __future__ import annotations

BLOCKS = "p|li|ul|ol|dl|dt|dd|div|tr|td|th|hr|table|tbody|thead|section|body|html|pre|h[1-6]"
BLOCKS += "|paragraph|list|item|caption|title|component|text|abstracttext|blockquote|center"
"""Each is a paragraph of its own."""
CELLS = "td|th|dd"
"""Each may stand behind another cell, in its row."""
WITHIN = "b|i|u|em|strong|small|sub|sup|wbr|mark|ins|code|abbr|cite|dfn|kbd|tt|var"
"""Part no word."""
APART = "span|font|a|content|linkhtml"
"""Part two words."""
