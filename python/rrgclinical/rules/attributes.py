"""Words that locate or grade a finding, in the notation of `PhraseTable`."""

from __future__ import annotations

from rrgclinical.rules.cues import Cue

SIDES = ("", "left", "right", "bilateral")
ZONES = ("", "upper", "middle", "lower")
SEVERITIES = ("", "small", "moderate", "large")

ATTRIBUTES: dict[Cue, dict[str, str]] = {
    Cue.SIDE: {
        "left": "left, left sided, lt, lll, lul",
        "right": "right, right sided, rt, rll, rul, rml",
        "bilateral": """
            bilateral, bilaterally, both, bibasilar, bibasal, biapical, left and right,
            right and left, right greater than left, left greater than right,
            bilateral left|right greater than left|right
        """,
    },
    Cue.ZONE: {
        "upper": """
            upper, upper lobe|lung|zone, lung? apex|apices, apical, superior, upper lung zone|field,
            suprahilar, rul, lul
        """,
        "middle": """
            middle, middle lobe|lung, midlung, mid lung? zone?, lingula, lingular, perihilar,
            midzone, hilar, central, parahilar, rml
        """,
        "lower": """
            lower, lower lobe|lung, base, basilar, basal, retrocardiac, inferior, infrahilar,
            lung base, costophrenic angle|sulcus, lower lung zone|field, bibasilar, bibasal,
            posterior basal, subpulmonic, rll, lll
        """,
    },
    Cue.SEVERITY: {
        "small": """
            small, mild, minimal, minimally, mildly, tiny, trace, minor, mild to moderate,
            small to moderate, slight, slightly, subtle, minute, minimal amount of, small amount of
        """,
        "moderate": "moderate, moderately, moderate sized, medium",
        "large": """
            large, severe, severely, marked, markedly, massive, extensive, significant,
            significantly, moderate to large|severe, huge, gross
        """,
    },
}
