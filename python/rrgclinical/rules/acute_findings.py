"""List findings of lung and vessels that need treatment at once and have no observation.

In the notation of `PhraseTable`; see `lung_findings`.
"""

from __future__ import annotations

from rrgclinical.rules.concept import LUNG, Concept, finding

ACUTE_FINDINGS: tuple[Concept, ...] = (
    finding(
        "lung abscess",
        "airspace",
        LUNG,
        disease=True,
        phrases="""
            abscess, lung|pulmonary|parenchymal|pleural|mediastinal abscess, abscess cavity,
            cavitary|cavitating abscess
        """,
    ),
    finding(
        "pulmonary contusion",
        "airspace",
        LUNG,
        phrases="contusion, lung|pulmonary|parenchymal contusion, contused lung",
    ),
    finding(
        "pulmonary hemorrhage",
        "airspace",
        LUNG,
        phrases="""
            hemorrhage, lung|pulmonary|alveolar|parenchymal hemorrhage, hemorrhagic contusion,
            alveolar|pulmonary bleeding
        """,
    ),
    finding(
        "acute respiratory distress syndrome",
        "airspace",
        disease=True,
        phrases="""
            ards, acute|adult respiratory distress syndrome, respiratory distress syndrome,
            acute lung injury, diffuse alveolar damage, noncardiogenic pulmonary? edema,
            non cardiogenic pulmonary? edema
        """,
    ),
    finding(
        "pulmonary embolism",
        "pulmonary artery",
        disease=True,
        phrases="""
            embolism, embolus, emboli, pulmonary|septic|thrombo|lung embolism|embolus|emboli,
            thromboembolism, thromboembolic disease, pulmonary thromboembolism|thromboembolus,
            pulmonary|lung infarct|infarction, hampton|hamptons hump
        """,
    ),
)
