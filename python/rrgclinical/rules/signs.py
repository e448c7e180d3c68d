"""Signs of a report: line ends, blanks, tags, entities, what is not seen."""

from __future__ import annotations

import functools
import re

from rrgclinical.common.nothing import APART, BLOCKS, CELLS, WITHIN

# What stands behind a tag's name: prose after a "<" is none of it ("<a third. Mass >2 cm").
_ATTRIBUTE = (
    r"""\s+[\w:-]{1,40}(?:\s?=\s?(?:"[^"<>\n]{0,200}"|'[^'<>\n]{0,200}'|[^\s"'<>&]{1,200}))"""
)

# Written as XML two or three times, an entity's sign is an entity itself: "&amp;amp;nbsp;".
_AMP = "&(?:amp;){0,2}"


def _tags(names: str) -> str:
    inner = rf"/?(?:{names})(?:{_ATTRIBUTE}){{0,8}}\s*/?"
    return rf"<{inner}>|{_AMP}lt;{inner}{_AMP}gt;"


# A backslash in HL7, where each is escaped as "\E\" once more by a package that writes twice.
_HL7 = r"\\(?:E\\){0,3}"
# Small letters, and not where a backslash stands for "or": "left\right", "mass\nodule".
_NO_ESCAPE_N = r"(?!odul|ormal|egativ|asogastric|ot\b|ew\b)"
_NO_ESCAPE_R = r"(?!ight|ow\b|ibs?\b|etro|adiograph|esol|eticul)"
_NO_ESCAPE_T = r"(?!ube|rach|horac|ip\b|ortu)"


def _newline(cr: str, lf: str) -> str:
    """One line end of any system, in signs that stand for a carriage return and a line feed."""
    return rf"(?:(?:{cr}){{1,2}}{lf}|(?:{cr}){{2}}\n|{lf}{cr}(?!{lf})|{cr}|{lf})"


# The signs of a line end, by kind; each but the first two stands for one that was not read.
_SIGNS = {
    "newline": _newline(r"\r", r"\n"),
    "other": r"[\v\f\x1c-\x1e\x85\u2028\u2029\xb6\u21b5\u23ce\u2424]",
    "br": rf"(?:(?:{_tags('br')})(?:</br>)?)",
    "block": rf"(?:{_tags(BLOCKS)})",
    # a text that was written as JSON, Python or XML twice, or once and never read
    "escape": "(?-i:"
    + _newline(
        rf"\\{{1,4}}(?:r{_NO_ESCAPE_R}|u000[dD]|x0[dD])",
        rf"\\{{1,4}}(?:n{_NO_ESCAPE_N}|u000[aA]|x0[aA])",
    )
    + ")",
    "entity_end": _newline(
        f"{_AMP}#(?:0{{0,4}}13|x0{{0,4}}d);", f"{_AMP}(?:#0{{0,4}}10|#x0{{0,4}}a|newline);"
    ),
    "quoted": "(?-i:" + _newline("=0D", "=0A") + ")",
    # a tokenizer's
    "token": r"(?:<\|\w{2,30}\|>|<(?:/?s|bos|eos|sep|pad|cls|n|nl|newline|sent)>"
    r"|(?-i:\[(?:SEP|CLS|PAD|BOS|EOS)\]))",
    "excel": _newline("_x000d_", "_x000a_"),
    # HL7's: its formatting commands, hexadecimal signs, and "~" between two lines of one text
    "hl7": rf"(?-i:{_HL7}(?:\.(?:br|ce|sp ?\d{{0,3}})|X(?:0D)?0A|X0D(?:{_HL7}{_HL7}X0A)?){_HL7})",
    "repeated": "~",
    "rtf": rf"(?-i:{_HL7}(?:par|line|row)(?![^\W\d_]) ?)",
}
ENTITIES = {
    **dict.fromkeys(("nbsp", "ensp", "emsp", "emsp13", "thinsp", "hairsp", "numsp", "tab"), " "),
    **{"amp": "&", "lt": "<", "gt": ">", "quot": '"', "comma": ",", "period": ".", "colon": ":"},
    **{"apos": "'", "rsquo": "'", "lsquo": "'", "ldquo": '"', "rdquo": '"'},
    **{"ndash": "\u2013", "mdash": "\u2014", "bull": "\u2022"},
}
NUMBERED = {
    **{code: chr(code) for code in range(0x20, 0x7F)},
    **dict.fromkeys((0x09, 0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000), " "),
    **{0x2013: "\u2013", 0x2014: "\u2014", 0x2018: "'", 0x2019: "'", 0x201C: '"', 0x201D: '"'},
    0x2022: "\u2022",
}
"""What a number in an entity stands for; other numbers are not read."""
_NUMBER = "#0{0,4}[0-9]{1,5}|#x0{0,4}[0-9a-f]{1,4}"
_DELIMITERS = {"F": "|", "S": "^", "T": "&", "R": "~", "E": "\\"}
"""HL7's escapes for its own delimiters."""
STOPS = {
    **{0xFEE0 + code: chr(code) for code in range(0x21, 0x7F)},  # full-width forms of ASCII
    **dict.fromkeys((0x3002, 0xFF61), "."),
    **dict.fromkeys((0x3001, 0xFF64), ","),
    **dict.fromkeys((0x5C, 0x60, 0xB4, 0x2BC, 0x2032, 0x201B), "'"),
    **dict.fromkeys((0x2010, 0x2011), "-"),
    **dict.fromkeys((0x2012, 0x2015, 0x2212), "\u2013"),
    **dict.fromkeys((0x2420, 0x2423, 0x2800), " "),
    **{0x2024: ".", 0xFE50: ",", 0xFE52: ".", 0xFE54: ";"},
}
"""By code: signs that are set, or typed, for another."""
_CYRILLIC = "\u0430\u0435\u043e\u0440\u0441\u0445\u0443\u0456\u0455\u0458"
LOOK_ALIKE = dict(zip(map(ord, _CYRILLIC), "aeopcxyisj", strict=True))
LOOK_ALIKE |= {ord(chr(code).upper()): sign.upper() for code, sign in LOOK_ALIKE.items()}
_CAPITALS = "\u0412\u041d\u041a\u041c\u0422\u03bf\u03bd"
LOOK_ALIKE |= dict(zip(map(ord, _CAPITALS), "BHKMTov", strict=True))
LOOK_ALIKE |= dict(zip(range(0x391, 0x3A8), "AB  EZH IK MN O P  TY X", strict=False))
LOOK_ALIKE = {code: sign for code, sign in LOOK_ALIKE.items() if sign != " "}
"""Cyrillic and Greek letters by the Latin ones that they look like."""
_HIDDEN = r"\x00-\x08\x0e-\x1b\x7f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
_HIDDEN += r"\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0000-\U000e01ef"
_UNSEEN = (
    rf"{_tags(WITHIN)}|<!--[^<>\n]{{0,200}}-->"
    rf"|(?-i:\xef\xbb\xbf)|(?-i:{_HL7}(?:[HN]|\.(?:fi|nf)){_HL7})"
    rf"|(?-i:{_HL7}(?:b0?|i0?|ul(?:none|0)?|pard|plain|(?:fs|f|cf|lang|sa|sb|sl)\d{{1,4}})\b ?)"
    rf"|{_AMP}(?:shy|zwnj|zwj|lrm|rlm|#173|#xad|#820[3-7]|#x200[b-f]|#8288|#x2060|#65279|#xfeff);"
    # a terminal's colours, what a link leads to, a line of a mail that goes on
    r"|(?<!=)=\r?\n|\x1b\[[0-9;]{0,20}m|\]\(https?://[^\s()<>]{1,300}\)"
    # Markdown's bold; "[**...**]" is a word that was taken out
    r"|(?<![*\[\w])\*\*(?=[^\s*\]])|(?<=[^\s*\[])\*\*(?![*\]\w])|\\(?=\r?\n)"
)
"""Stands for nothing that is seen: tags, HL7's and RTF's commands, names of hidden signs."""
UNSEEN_ONE = re.compile(_UNSEEN, re.IGNORECASE)
_BLANKS = "|".join(name for name, sign in ENTITIES.items() if sign == " ")
_GAP = (
    rf"[^\S\n\r\v\f\x1c-\x1e\x85\u2028\u2029]|[{_HIDDEN}]|{_UNSEEN}|{_tags(APART)}"
    rf"|{_AMP}(?:nbsp;?|(?:{_BLANKS}|#0{{0,4}}(?:9|32|160)|#x0{{0,4}}(?:9|20|a0));)"
)
"""May stand between the signs of one line end."""
CELL = re.compile(rf"(?:<|lt;)(?:{CELLS})\b", re.IGNORECASE)
ROW = re.compile(r"(?:<|lt;)(?:/?(?:tr|table|dl)|/dd)\b", re.IGNORECASE)
"""Among the signs of a line end: a cell of a table begins, and a row of it begins or ends."""
SIGN = re.compile(
    "|".join(f"(?P<{kind}>{sign})" for kind, sign in _SIGNS.items()) + f"|(?:{_GAP})", re.IGNORECASE
)
# "~3 cm" is "about 3 cm"
_LINES_OF_ONE = r"(?<=[^\s\d(\[=<>/])~(?=~{0,3}(?:[^\W\d_]|\d{1,2}[.)]))"
_ANY = "|".join({**_SIGNS, "repeated": _LINES_OF_ONE}.values())
# A line feed alone stands as it is. A search looks at each blank once: nothing is given back.
_RUN = rf"(?:(?:\n(?=(?:{_GAP})*+(?!\n)(?:{_ANY}))|(?!\n)(?:{_ANY}))(?:(?:{_GAP})*+(?:{_ANY}))*+)"
_MAY_BE_ODD = re.compile(r"[\x00-\x09\x0b-\x1f<&\\`~\x7f=*\[]")
_EXCELS = "_x000"
# UTF-8 that was read as Latin-1 or Windows-1252, once or twice: a no-break space, a dash, an
# apostrophe.
_BYTES = "".join(bytes([code]).decode("cp1252", "ignore") for code in range(0x80, 0xC0))
_GARBLED = (
    r"(?-i:\xc2++(?:[\xa0-\xbf]|(?![^\W\d_]))|\xc3[\x82\u201a]\xc2[\xa0-\xbf]"
    rf"|\xe2(?:\u20ac[{_BYTES}\x81\x8d\x8f\x90\x9d]|\x80[\x80-\xbf])"
    r"|\xc3\xa2(?:\xe2\u201a\xac|\xc2\x80)(?:\xe2[\u20ac\u201a-\u2122].|\xc2[\x80-\xbf]))"
)
# "size=20mm" and "EF=20 %" are no blanks
_QP_BLANK = r"(?-i:=(?:20|09)(?=[=\r\n]|$)|(?<=[.,;:!?)])=20(?!\d))"
_QP = r"(?-i:(?:=[C-E][0-9A-F](?:=[89AB][0-9A-F]){1,2}|=A0))"
_INDENT = rf"(?-i:{_HL7}\.(?:in|ti|sk) ?[+-]?\d{{1,3}}{_HL7})"
_ALIKE = "".join(map(chr, LOOK_ALIKE))
# A grave accent where an apostrophe was meant, dashes where they part what is said.
_STOP = (
    rf"(?<=n)(?:`|\\')(?=t\b)|(?<=\s)[\u2012\u2212](?=\s)"
    rf"|[{''.join(chr(code) for code in STOPS if code not in (0x5C, 0x60, 0x2012, 0x2212))}]"
    # within a word of Latin letters
    rf"|(?-i:(?:(?<=[A-Za-z])|(?<=[A-Za-z][{_ALIKE}])|(?<=[A-Za-z][{_ALIKE}]{{2}}))[{_ALIKE}]"
    rf"|[{_ALIKE}](?=[{_ALIKE}]{{0,9}}[A-Za-z]))"
)
STOPS |= LOOK_ALIKE


@functools.cache
def odd() -> re.Pattern[str]:
    """Match signs to replace, each at its length, so that spans stay true.

    A line end is a line feed, other white space a blank. Characters without a width join the
    letters around them, else they are blanks. Compiled at its first use, not at an import.
    """
    return re.compile(
        rf"(?=[^ -%'-)+-;>-Z^a-}}])(?:(?P<end>{_RUN})"  # most characters are passed over at once
        rf"|(?P<unseen>(?:{_UNSEEN}|[{_HIDDEN}])+)|(?P<apart>{_tags(APART)})"
        rf"|{_AMP}(?:(?P<entity>{'|'.join(ENTITIES)}|{_NUMBER});|(?P<bare>nbsp))"
        rf"|(?P<garbled>{_GARBLED})|{_HL7}'(?P<hex>[89ab][0-9a-f])|(?P<quoted>{_QP})"
        r"|\\{1,4}(?-i:(?P<json>u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}))"
        rf"|(?P<stop>{_STOP})|(?P<tab>(?-i:\\t(?:ab\b)?){_NO_ESCAPE_T}|{_INDENT}|{_QP_BLANK})"
        rf"|(?-i:{_HL7}(?P<delimiter>[{''.join(_DELIMITERS)}]){_HL7})"
        r"|(?P<blank>[^\S\n ]))",
        re.IGNORECASE,
    )


def may_be_odd(text: str) -> bool:
    """True where `odd` may find something."""
    return not text.isascii() or _MAY_BE_ODD.search(text) is not None or _EXCELS in text


def meant(match: re.Match[str]) -> str:
    """The sign that an escape or garbled bytes stand for, "" for none."""
    if match["delimiter"]:
        return _DELIMITERS[match["delimiter"]]
    if match["bare"]:
        return " "
    if match["entity"]:
        name = match["entity"].casefold()
        if not name.startswith("#"):
            return ENTITIES[name]
        return NUMBERED.get(int(name[2:], 16) if name[1] == "x" else int(name[1:]), "")
    if match["json"]:
        return NUMBERED.get(int(match["json"][1:], 16), "")
    if match["hex"] or match["quoted"]:
        code = bytes.fromhex(match["hex"] or match["quoted"].replace("=", ""))
        sign = code.decode("utf-8" if len(code) > 1 else "cp1252", "ignore")
    else:
        sign = _ungarbled(match["garbled"])
        if len(sign) > 1:
            sign = _ungarbled(sign)
        sign = sign or " "
    return NUMBERED.get(ord(sign), "") if len(sign) == 1 else ""


def _ungarbled(text: str) -> str:
    codes = [char.encode("cp1252", "ignore") or char.encode("latin-1", "ignore") for char in text]
    return b"".join(codes).decode(errors="ignore")
