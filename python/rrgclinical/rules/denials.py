"""Phrases that undo a denial, limit it or except something from it.

In the notation of `PhraseTable`; `cues` says what each table does.
"""

from __future__ import annotations

_UNLIKELY = "unlikely|impossible|improbable|implausible|inconceivable|unthinkable|unreasonable"
_ADVERB = "entirely|altogether|completely|wholly|quite|very|so|that|definitively|definitely"
_MORE = "more|larger|greater|bigger|less|smaller|worse|fewer|wider|higher|lower|longer|thicker"
_CHANGE = (
    "clearing|clearance|resolution|regression|improvement|reduction|decrease|decline"
    "|diminution|disappearance|remission|lessening"
)

# Denials that another one right before them undoes: "not free of", "no lack of", "never without".
LACK = """
    without, free of|from, clear of, absence of, lack of, lacking, devoid of, negative for, neg for,
    w / o, spared from|of
"""
# The same, denying nothing or what precedes where they stand alone.
ALONE = "denial of, complete? interval? resolution"

# A change for the better, whose denial says that the finding is there: "no clearing of".
CHANGE = f"{_CHANGE} of|in"

AFFIRM = f"""
    no|without doubt|question about|that, without a? doubt, beyond doubt, cannot be denied,
    not lack|lacking|deny, fail|fails|failed|failing|failure to clear|resolve|improve|regress,
    no|not|nothing|none|never|without any|anything|much|significantly? {_MORE} than,
    no|not {_MORE} in size|extent|number|degree than,
    no|not|nothing|none any|much? more|less severe|extensive|pronounced|prominent|marked than,
    no|not|nothing|none any|much? more|less significant|conspicuous|apparent|advanced than,
    no|without marked|significant|substantial|considerable|definite interval? {_CHANGE} of|in,
    no|without partial|incomplete|further|gradual|continued interval? {_CHANGE} of|in,
    cannot|not be? said|claimed|stated|true|correct that there? is|are? no|without,
    not the case|truth that there? is|are? no, not agree|concur that there? is|are? no,
    would? be? wrong|incorrect|false|untrue|inaccurate|mistaken that there? is|are? no,
    would? be? wrong|incorrect|false|inaccurate to say|state|claim|conclude that there? is|are? no,
    can not deny, cannot deny,
    hardly|barely|scarcely more than, nothing beyond|above|but, nothing else than,
    no {_CHANGE} is|was? seen|noted|evident|identified in|of,
    no disputing|denying|mistaking|escaping|ignoring, not exceed|exceeding|beyond|above,
    not in excess of
"""

NOT_UNLIKELY = f"""
    not|never|hardly|scarcely {_ADVERB}? {_UNLIKELY}, not at all {_UNLIKELY},
    not be {_UNLIKELY}, by no means {_UNLIKELY}, in no way {_UNLIKELY},
    not|hardly out of the question
"""

UNSETTLED = """
    by no means be|been? excluded|ruled, in no way be|been? excluded|ruled,
    neither confirmed|proven|established nor excluded|ruled, neither excluded nor confirmed|proven,
    cannot be confirmed|proven or|nor excluded|ruled, cannot be excluded or|nor confirmed|proven,
    hardly|scarcely excluded|ruled, not to be excluded|ruled,
    cannot be dismissed|discounted|disregarded
"""

# A new statement, of what the words before leave out.
EXCEPT = """
    except, except for|in|on|at?, aside from, apart from, other than, save, save for, excepting,
    with the? sole|only|single|possible|notable? exception of, but for, barring, bar a|an|the|for,
    besides,
    excluding, outside of|the, elsewhere than, anywhere|anyplace but|except|outside,
    beyond a|an,
    the? sole|only? exception is|being, not counting|including
"""
