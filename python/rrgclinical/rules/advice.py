"""Phrases that ask for another examination, and what it would look for.

In the notation of `PhraseTable`; `cues` says what each table does.
"""

from __future__ import annotations

ADVICE = """
    recommend, recommended, recommendation, recommending, advise, advised, advisable, helpful,
    useful, beneficial, repeat, may|might|would|could help, ct, mri, ultrasound, fluoroscopy,
    imaging, followup, follow up, scan|evaluation|examination|exam|view|film is|are suggested,
    ct|mri|ultrasound|imaging|followup|radiograph|study|workup is|are suggested,
    follow up is|are suggested,
    correlation|comparison|attention|biopsy|bronchoscopy is|are suggested,
    expiratory|decubitus|lateral|oblique|lordotic|additional|dedicated view|film|radiograph,
    can|could|may|might|should|would be performed|obtained|done|used|considered|ordered,
    can|could|may|might|should|would be repeated|taken|acquired|arranged|undertaken, obtain,
    is|are warranted, tomography, sonography, scan
"""

PURPOSE = """
    in|for excluding, exclude, to exclude, rule out, to rule out, for? exclusion of,
    may|might|could better? show|reveal|demonstrate|detect|find|identify|disclose|uncover
"""

AIM = """
    to find|identify|see|confirm|verify|establish|determine|document|demonstrate|show|reveal,
    to visualize|diagnose|uncover|discern|clarify|prove|depict,
    could|may|might|would help to? identify|find|detect|show|reveal|confirm|see|determine,
    for confirmation|identification|diagnosis|visualization|demonstration of,
    can|would better? show|reveal|demonstrate|detect|find|identify|disclose|uncover|depict
"""

EXAMINE = "to further|better? evaluate|assess|characterize|examine"

SOUGHT = """
    look|looking|looked|search|searching|check|checking|hunt|hunting|screen|watch for,
    attention on|at followup for, in search of, seek, seeking,
    ensure|sure|certain|confirm|show that? there is|are|was no?,
    whether|if there is|are|was|were, see|determine if, ct|mri|ultrasound for any|a|an?
"""
