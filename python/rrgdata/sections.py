"""Cut a free-text radiology report into its sections, as MIMIC-CXR's reports need it.

The headings are those that MIT-LCP/mimic-cxr lists in txt/section_parser.py. The rules:

1. A heading begins a line and ends in a colon: capitals of which a word is known (`NAMES`), or a
   known name in any case ("Findings:"). A known name in capitals is a heading alone on its line
   too, in title case where it is a paragraph (a title in HTML or CDA), and, as are Findings: and
   Impression:, behind a full stop or two blanks within a line. FINDINGS: and IMPRESSION: cut behind
   any blank or stop, and need none after the colon: missed, they would leave the answer in the
   prompt. Slips of the pen ("FINDINDGS") are known by their nearness. Capitals of which no word is
   known, as "LUNGS:", cut nothing. A number, a letter, a bullet, brackets or Markdown's signs
   around a known name are of the heading ("2. IMPRESSION:", "**Findings:**", "[FINDINGS]", and "##
   Findings" alone), a number behind a full stop within a line too; a dash may stand for the colon.
   "Comparison:" in title case is a heading behind a full stop too, but within the answer.
2. A heading that names views ("CHEST, TWO VIEWS:"), or REPORT:, stands for FINDINGS in a report
   that has none; within findings or impression it cuts nothing.
3. A line of underscores, FINAL REPORT and FINAL ADDENDUM begin anew. All of a final addendum is
   addendum. Addenda, wet and provisional reads, notifications and recommendations are no part,
   nor what stands behind END OF IMPRESSION and an accession number. SUMMARY ends an impression
   too, and stands for one that is not there.
4. Several sections of one name are joined in their order, one that says the same left out.
   FINDINGS AND IMPRESSION is both; FINDINGS or IMPRESSION and another name is the first two's.
5. Without findings, the paragraphs after the first of the last section before the impression
   (comparison, say) stand under no heading. They are `unheaded`, not context, which would show
   the answer in the prompt; nor are they findings, since published counts go by the heading. A
   report without any heading is unheaded but for its title.
6. Line wraps and runs of white space become one blank, and so do other line breaks unless two
   sentences could not be told apart without (`join_lines`). Nothing else changes: numbering and
   the ___ of de-identification stay.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from rrgclinical.rules import join_lines, plain_lines

# A section's name, and words of a heading that give it: the first line that fits. The answer's
# names stand before those of what is dropped or goes into the prompt.
NAMES: tuple[tuple[str, str], ...] = (
    ("addendum", r"ADDENDUM"),
    ("wet read", r"WET ?READ|PROVISIONAL|PFI"),
    ("notification", r"NOTIFICATION"),
    (
        "findings and impression",
        r"FINDINGS? ?(AND|/|&) ?IMPRESSION|IMPRESSION ?(AND|/|&) ?FINDINGS?",
    ),
    ("end", r"END OF IMPRESSION|ACCESSION NUMBER"),
    ("summary", r"SUMMARY"),
    ("impression", r"IMPRESSIONS?|CONCLUSIONS?"),
    ("findings", r"FINDINGS?"),
    ("recommendations", r"RECOMMENDATION(S|\(S\))?"),
    ("comparison", r"COMPARISONS?|REFERENCE EXAM(INATION)?"),
    ("indication", r"INDICATIONS?|HISTORY|REASON FOR|CLINICAL (INFORMATION|DATA|QUESTION)"),
    ("technique", r"TECHNIQUES?"),
    ("examination", r"EXAM|EXAMINATION|STUDY"),
    ("date", r"DATE"),
    ("comment", r"COMMENTS?"),
    (
        "views",
        r"CHEST|PORTABLE|VIEWS?|FRONTAL|LATERAL|RIBS?|RADIOGRAPHS?|BONE WINDOWS?|UPRIGHT"
        r"|PA AND LAT|^REPORT$",
    ),
)
ANSWERS = ("findings", "impression", "findings and impression", "views", "summary")
CONTEXT = ("examination", "indication", "technique", "comparison", "date", "comment")
SLIPS = ("FINDINGS", "IMPRESSION", "INDICATION", "COMPARISON", "TECHNIQUE", "HISTORY", "CONCLUSION")
NEAR = 0.8
"""Similarity of a misspelt name to the right one, by `difflib`."""

_PATTERNS = tuple((name, re.compile(rf"\b(?:{words})(?!\w)")) for name, words in NAMES)
_MAIN = r"FINDINGS?|IMPRESSIONS?|INDICATION|COMPARISONS?|TECHNIQUE|HISTORY|EXAMINATION|CONCLUSIONS?"
_AND = r" ?(?:AND|/|&) ?"
_ANSWER = rf"(?:(?:{_MAIN}){_AND})?(?:FINDINGS?|IMPRESSIONS?|CONCLUSIONS?)"
_KNOWN = (
    rf"(?:(?:{_MAIN})(?:{_AND}(?:{_MAIN}|RECOMMENDATION(?:S|\(S\))?))?"
    r"|CLINICAL (?:HISTORY|INFORMATION|INDICATION)"
    r"|REASON FOR EXAM(?:INATION)?|ADDENDUM|WET READ|NOTIFICATION|RECOMMENDATIONS?"
    r"|END OF IMPRESSION|SUMMARY)"
)
_IN_ANY_CASE = re.compile(_KNOWN, re.I)
_TITLED = rf"(?=[A-Z])(?i:{_KNOWN})"
_COLON = ":{1,2}"
_DASH = "[-\u2013\u2014]"
# Markdown's; three underscores are a name or a date that was taken out.
_STARS = r"(?:\*{1,3}|__?(?!_))?"
_DIGITS = "[0-9]{1,2}"
# XXXX is a word that was taken out.
_NUMBER = (
    rf"(?:(?!XXXX)\(?(?:{_DIGITS}|[IVXivx]{{1,4}}|[A-Za-z])[.)]/?|\[(?:{_DIGITS}|[IVX]{{1,4}}|[A-Za-z])\]"
    rf"|{_DIGITS}(?:\.{_DIGITS}){{1,2}}[.):]?|\#{_DIGITS}[.):]?|{_DIGITS}:"
    rf"|[Ss](?:ection|ECTION)[ \t]{_DIGITS}[.):]?)"
)
# Without a sign of its own a number must stand before a name with a colon.
_BARE_NUMBER = rf"{_DIGITS}(?:[ \t]{{1,2}}{_DASH}{{1,2}})?[ \t]{{1,2}}"
_MARKS = rf"(?:(?:{_NUMBER}|\#{{1,6}}|\*{{1,3}}|__?(?=[A-Za-z])|[-\u2022>])[ \t]*)"
_HEADING = re.compile(
    r"^[ \t]*(?:(?P<rule>_{10,}|FINAL REPORT|FINAL ADDENDUM)[ \t]*$"
    rf"|{_MARKS}{{1,3}}(?P<marked>(?i:{_KNOWN}))[ \t]*{_STARS}[ \t]*"
    rf"(?:{_COLON}{_STARS}|{_DASH}{{1,2}}(?=\s)|$)"
    rf"|{_BARE_NUMBER}(?P<counted>{_TITLED})[ \t]*{_COLON}{_STARS}"
    rf"|={{1,6}}[ \t]*(?P<ruled>{_TITLED})[ \t]*:?[ \t]*={{1,6}}:?"
    rf"|[\"'\u201c](?P<quoted>{_TITLED})[ \t]*:?[\"'\u201d][ \t]*{_COLON}"
    rf"|\[(?P<bracketed>{_TITLED})[ \t]*:?\](?:[ \t]*{_COLON})?"
    rf"|(?P<glued>{_TITLED}):(?=[A-Za-z])"
    rf"|(?=[A-Z])(?P<dashed>(?i:{_KNOWN}))(?:[ \t]+{_DASH}{{1,2}}(?=\s)|{_DASH}{{1,2}}(?=[ \t]))"
    rf"|(?P<head>[A-Z](?:(?![.;][ \t]*(?:{_ANSWER}):)[^\na-z:]){{1,80}}"
    rf"|[A-Za-z](?:(?![ \t.;,)\]](?:{_ANSWER}):)[^\n:]){{1,80}}){_COLON}(?=\s|\Z)"
    rf"|(?P<alone>{_KNOWN})[ \t]*$)"
    rf"|^(?<![^\n]\n)[ \t]*(?P<title>{_TITLED})[ \t]*(?=\n[ \t]*\n)"
    rf"|(?<=[ \t.;)])\[(?P<boxed>(?:{_MAIN})(?:{_AND}(?:{_MAIN}))?|Findings?|Impression)"
    rf"[ \t]*:?\](?:[ \t]*{_COLON})?"
    r"|(?:(?<=[.?!)])|(?<=[ \t])[ \t])[ \t]*"
    rf"(?:(?<=[ \t])(?:{_NUMBER}|{_DIGITS}(?:[ \t]{_DASH}{{1,2}})?(?=[ \t]))[ \t]*)?"
    rf"{_STARS}(?:(?P<inline>{_MAIN}|Findings?|Impression)|(?P<context>(?=[A-Z])(?i:{_MAIN})))"
    rf"{_STARS}{_COLON}{_STARS}(?=\s|\Z)"
    rf"|(?<=[.?!][ \t]){_NUMBER}[ \t]*(?P<numbered>(?=[A-Z])(?i:{_ANSWER})){_COLON}"
    rf"|(?:^|(?<=[ \t.;,)\]])){_STARS}(?P<answer>END OF IMPRESSION|{_ANSWER})"
    rf"{_STARS}{_COLON}{_STARS}",
    re.M,
)
_WIDE_COLON = re.compile(r"(?<=[A-Za-z)*_\]\"])\uff1a")
# A longer run would be looked through anew from each of its blanks.
_MANY_BLANKS = re.compile(r"[ \t]{3,}")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


@dataclass(frozen=True)
class Section:
    """Hold a part of a report: its name, its heading, its text.

    The heading is as it stands in the report."""

    name: str
    heading: str
    raw: str

    @property
    def text(self) -> str:
        """The text with line wraps joined."""
        return " ".join(self.raw.split())


@dataclass(frozen=True)
class ReportSections:
    """Hold the text of each part of a report, "" for none.

    `unheaded` stands under no heading."""

    findings: str = ""
    impression: str = ""
    unheaded: str = ""
    indication: str = ""
    technique: str = ""
    comparison: str = ""

    def report(self, sections: str) -> str:
        """Return the text that `data.sections` asks for, "" where there is none.

        "findings" and "impression" are the sections of that name. "both" is findings, or where
        there are none the unheaded text, and then the impression.
        """
        if sections == "both":
            parts = (self.findings or self.unheaded, self.impression)
            return _joined(list(map(plain_lines, parts)))  # each may be a document of its own
        return self.findings if sections == "findings" else self.impression


@lru_cache(4096)
def section_name(heading: str) -> str:
    """Name the section that a heading opens, "" for a line that is no heading."""
    words = " ".join(heading.split())
    if words != words.upper():
        if not _IN_ANY_CASE.fullmatch(words):
            return ""
        words = words.upper()
    for name, pattern in _PATTERNS:
        if pattern.search(words):
            return name
    near = get_close_matches(words, SLIPS, n=1, cutoff=NEAR)
    return section_name(near[0]) if near else ""


def cut_sections(report: str) -> list[Section]:
    """Cut a report at its headings; headings and texts together are the report, in order.

    Line ends of any kind, HTML's and escaped ones among them, become line feeds first, no-break
    spaces blanks, and more than two blanks two; signs without a width and other tags go, and
    entities are read.
    """
    report = _MANY_BLANKS.sub("  ", _WIDE_COLON.sub(": ", plain_lines(report)))
    sections = []
    name, heading, start = "preamble", "", 0
    final_addendum = False
    place = 0
    while match := _HEADING.search(report, place):
        place = match.end()
        rule = match["rule"]
        if rule:
            final_addendum = rule == "FINAL ADDENDUM"
            new = "addendum" if final_addendum else "preamble"
        else:
            new = section_name(match[match.lastgroup or 0])
            if not new:
                # a line as "Cough. Findings: clear" begins with no heading, but may hold one
                place = match.start() + 1
                continue
            if final_addendum:
                continue
            inside = name in ("findings", "impression", "findings and impression")
            if match["context"] and inside:
                continue
            if new == "views" and inside and report[start : match.start()].strip():
                continue
        sections.append(Section(name, heading, report[start : match.start()]))
        name, heading, start = new, match[0].strip(), match.end()
    sections.append(Section(name, heading, report[start:]))
    return [section for section in sections if section.heading or section.text]


def read_sections(report: str) -> ReportSections:
    """Read the sections of a report by the rules of this module."""
    sections = cut_sections(report)
    texts: dict[str, list[str]] = {}
    for section in sections:
        text = section.raw if section.name in ANSWERS else section.text
        texts.setdefault(section.name, []).append(text)
    both = texts.get("findings and impression", [])
    findings = _joined(texts.get("findings", []) + both) or _joined(texts.get("views", []))
    unheaded = ""
    if not findings:
        paragraphs, place = _unheaded(sections)
        unheaded = join_lines("\n\n".join(paragraphs))
        if place is not None:
            texts[sections[place].name] = [
                " ".join(_paragraphs(s)[0].split()) if n == place else s.text
                for n, s in enumerate(sections)
                if s.name == sections[place].name
            ]
    return ReportSections(
        findings=findings,
        impression=_joined(texts.get("impression", []) + both) or _joined(texts.get("summary", [])),
        unheaded=unheaded,
        **{
            name: " ".join(dict.fromkeys(filter(None, texts.get(name, []))))
            for name in ("indication", "technique", "comparison")
        },
    )


def _unheaded(sections: list[Section]) -> tuple[list[str], int | None]:
    """Return the text under no heading, and the place of the section whose later part it is."""
    headed = [n for n, s in enumerate(sections) if s.name != "preamble"]
    if not headed:
        paragraphs = [text for section in sections for text in _paragraphs(section)]
        if paragraphs and not paragraphs[0].endswith((".", "!", "?")):
            paragraphs = paragraphs[1:]
        return paragraphs, None
    for place in reversed(headed):
        if sections[place].name in CONTEXT:
            paragraphs = _paragraphs(sections[place])
            return paragraphs[1:], place if len(paragraphs) > 1 else None
    return [], None


def _paragraphs(section: Section) -> list[str]:
    return [part.strip() for part in _PARAGRAPH.split(section.raw) if part.strip()]


def _joined(texts: list[str]) -> str:
    once: dict[str, str] = {}
    for text in texts:
        once.setdefault(" ".join(text.split()), text)
    return join_lines("\n\n".join(text for said, text in once.items() if said))
