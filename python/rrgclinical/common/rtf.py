"""Read the text of a document in Rich Text Format, as reporting systems export it."""

from __future__ import annotations

import re

_SLASH = r"\\(?:E\\){0,3}"  # HL7 writes "\E\" for a backslash
_BEGINS = re.compile(rf"\s*\{{{_SLASH}rtf")
_CODE = re.compile(
    rf"(?P<brace>[{{}}])|{_SLASH}(?:(?P<word>[a-zA-Z]{{1,32}})(?P<number>-?[0-9]{{1,10}})? ?"
    r"|'(?P<byte>[0-9a-fA-F]{2})|(?P<sign>[^a-zA-Z]))|(?P<end>[\r\n]+)|(?P<text>[^\\{}\r\n]+|\\)"
)
# Groups that hold no text of the page.
_DROPPED = re.compile(
    "fonttbl|colortbl|stylesheet|info|pict|object|header[lrf]?|footer[lrf]?|list(?:override)?table"
    "|rsidtbl|generator|fldinst"
)
_SAYS = {
    **dict.fromkeys(("par", "line", "row", "page", "sect"), "\n"),
    **{"tab": "\t", "cell": " | ", "emdash": "\u2014", "endash": "\u2013", "bullet": "\u2022"},
    **{"lquote": "'", "rquote": "'", "ldblquote": '"', "rdblquote": '"'},
}
_SIGNS = {"~": " ", "_": "-", **{sign: sign for sign in "\\{}"}}


def is_rtf(text: str) -> bool:
    """Tell a document in Rich Text Format."""
    return _BEGINS.match(text) is not None


def from_rtf(text: str, filler: str = "") -> str:
    """Return the text of a document.

    filler: stands in it for each character of the code.

    Fonts, colours, styles, pictures, and headers and footers of the page are left out. What is no
    code stands as it is, so that a document that is cut short gives the text before the cut.
    """
    pieces: list[str] = []
    depth = left_out = ahead = 0  # left_out: the depth of the group that is; ahead: see \u
    instead = 1
    for code in _CODE.finditer(text):
        word, said = code["word"], ""
        if code["brace"]:
            depth += 1 if code["brace"] == "{" else -1
            left_out = left_out if depth >= left_out else 0
        elif left_out or code["end"]:
            pass
        elif (word and _DROPPED.fullmatch(word)) or code["sign"] == "*":
            left_out = depth
        elif code["text"] or code["byte"]:
            said = code["text"] or bytes.fromhex(code["byte"]).decode("cp1252", "ignore")
            said, ahead = said[ahead:], max(ahead - len(said), 0)
        elif word == "u":
            number = int(code["number"] or 0) % 0x10000
            ahead, said = instead, "" if 0xD800 <= number < 0xE000 else chr(number)
        elif word == "uc":
            instead = int(code["number"] or 1)
        else:
            said = _SAYS.get(word or "") or _SIGNS.get(code["sign"] or "", "")
        pieces.append(said + filler * (len(code[0]) - len(said)))
    return "".join(pieces)
