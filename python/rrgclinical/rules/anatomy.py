"""Structures a report describes by a predicate: "the heart size is normal", "clear lungs"."""

from __future__ import annotations

from dataclasses import dataclass

from rrgclinical.rules.concepts import CONCEPT_ID
from rrgclinical.rules.trie import phrases_of


@dataclass(frozen=True, eq=False)
class Subject:
    """Meaning of a structure's predicates.

    anatomy: concept id of the structure itself. meanings: predicate -> (concept id, present),
    several where one sentence settles several findings. phrases: its names.
    """

    anatomy: int
    meanings: dict[str, tuple[tuple[int, bool], ...]]
    phrases: tuple[str, ...]


def _subject(anatomy: str, meanings: dict[str, str], phrases: str) -> Subject:
    """A meaning is names of concepts, each after "+" (present) or "-" (absent)."""
    parsed = {
        predicate: tuple((CONCEPT_ID[item[1:]], item[0] == "+") for item in text.split(", "))
        for predicate, text in meanings.items()
    }
    return Subject(CONCEPT_ID[anatomy], parsed, phrases_of(phrases))


SUBJECTS: tuple[Subject, ...] = (
    _subject(
        "heart",
        {"normal": "-cardiomegaly", "large": "+cardiomegaly", "borderline": "+cardiomegaly"},
        """
        heart, heart size|silhouette|shadow|contour|border, cardiac,
        size|contour|border|silhouette|outline|diameter of the? heart, heart|cardiac diameter,
        size|contour|border|diameter of the? cardiac silhouette?,
        cardiac size|silhouette|shadow|contour|border|outline|configuration,
        cardiopericardial silhouette, heart silhouette size, cardiac silhouette size,
        cardiac and? heart? size, cardiothoracic ratio, ventricle, left|right ventricle|atrium,
        cardiopericardial shadow
        """,
    ),
    _subject(
        "mediastinum",
        {"normal": "-enlarged cardiomediastinum", "large": "+enlarged cardiomediastinum"},
        """
        mediastinum, mediastinal, mediastinal contour|silhouette|size|structure|border|shadow|width,
        contour|width|size|border of the? mediastinum, upper|superior mediastinum
        """,
    ),
    _subject(
        "mediastinum",
        {
            "normal": "-enlarged cardiomediastinum, -cardiomegaly",
            "large": "+cardiomegaly, +enlarged cardiomediastinum",
            "borderline": "+cardiomegaly",
        },
        """
        cardiomediastinum, cardiomediastinal, cardiomediastinal silhouette|contour|size|structure,
        cardio mediastinal silhouette|contour|size|structure?,
        cardiomediastinal silhouette and contour, cardiomediastinal size and contour,
        cardiomediastinal shadow|border|outline, cardiothymic silhouette|shadow|contour?
        """,
    ),
    _subject(
        "lung",
        {"normal": "-opacity", "expanded": "-low lung volumes", "hazy": "+opacity"},
        """
        lung, lung field|parenchyma|base|apex|apices|zone, pulmonary parenchyma, airspaces,
        remainder|rest|portion|part|aspect of the? left|right? lung, remaining lung,
        lung fields and bases, hemithorax
        """,
    ),
    _subject(
        "lung",
        {
            "normal": "-low lung volumes",
            "low": "+low lung volumes",
            "expanded": "-low lung volumes",
        },
        "lung|inspiratory volume, lung|pulmonary expansion|aeration, inspiration",
    ),
    _subject(
        "pleura",
        {"normal": "-pleural effusion", "blunted": "+blunted costophrenic angle"},
        """
        pleura, pleural space|surface|cavity, costophrenic angle|sulcus|sulci|recess, cp angle,
        costophrenic, pleural sulcus
        """,
    ),
    _subject(
        "pulmonary vessels",
        {"normal": "-vascular congestion", "large": "+vascular congestion"},
        """
        pulmonary vascularity|vasculature|vessel|vascular, vascularity, vasculature,
        pulmonary vascular pattern|marking, pulmonary vascular? marking
        """,
    ),
    _subject(
        "pulmonary vessels",
        {"normal": "-pulmonary hypertension", "large": "+pulmonary hypertension"},
        "main|central? pulmonary artery",
    ),
    _subject(
        "lung",
        {
            "normal": "-interstitial markings",
            "large": "+interstitial markings",
            "coarse": "+interstitial markings",
        },
        """
        interstitial|bronchovascular|reticular|bronchial marking|pattern, interstitium,
        lung|pulmonary|peribronchial marking, interstitial lung|pulmonary? marking
        """,
    ),
    _subject(
        "bone",
        {"normal": "-bone abnormality"},
        """
        bone, bony|osseous|skeletal structure|thorax|element, bony|osseous, skeleton, rib,
        bones of the thorax, thoracic cage, bony thoracic|rib cage, visualized skeleton, sternum,
        spine, thoracic|lumbar|cervical|thoracolumbar spine, vertebral body|column, vertebra
        """,
    ),
    _subject(
        "soft tissue", {"normal": "-soft tissue abnormality"}, "soft tissue, soft tissue structure"
    ),
    _subject(
        "lymph node",
        {"calcified": "+granuloma", "large": "+lymphadenopathy", "normal": "-lymphadenopathy"},
        """
        lymph node, lymph, node, hilar|mediastinal|paratracheal|subcarinal|perihilar node|lymph,
        hilar|mediastinal|paratracheal|subcarinal|perihilar lymph node
        """,
    ),
    _subject(
        "aorta",
        {
            "normal": "-tortuous aorta",
            "tortuous": "+tortuous aorta",
            "large": "+tortuous aorta",
            "calcified": "+aortic calcification",
        },
        """
        aorta, thoracic|descending|ascending aorta, aortic arch|knob|contour, aortic, great vessel
        """,
    ),
    _subject(
        "hilum",
        {"normal": "-lymphadenopathy", "large": "+lymphadenopathy"},
        "hilum, hila, hilar contour|structure|region, hilar",
    ),
    _subject(
        "diaphragm",
        {
            "normal": "-elevated diaphragm",
            "elevated": "+elevated diaphragm",
            "flat": "+hyperinflation",
        },
        "diaphragm, hemidiaphragm, diaphragmatic contour",
    ),
    _subject("trachea", {"normal": "-tracheal deviation"}, "trachea, tracheal"),
    _subject(
        "lung",
        {"normal": "-acute cardiopulmonary abnormality"},
        """
        chest, chest x ray?, chest radiograph|exam|examination|film|study, exam, radiograph, cxr,
        examination|exam of the? chest
        """,
    ),
)

PREDICATES: dict[str, str] = {
    "normal": """
        normal, within normal limit|range, within limits of normal, unremarkable, clear,
        not enlarged, non enlarged, nonenlarged, intact, sharp, midline, negative,
        upper limit of? normal size?, top normal limit?, upper|high normal limit?,
        top limit of? normal, wnl, normal in? size|contour|appearance|caliber, preserved,
        upper? within normal limits, no abnormality, normalized, normal and stable|unchanged,
        stable|unchanged and normal, normal size|contour|shape|configuration of the?,
        normal size and configuration|contour|shape of the?
    """,
    "large": """
        enlarged, enlargement, large, widen, widened, widening, wide, dilated, dilatation, dilation,
        big, above|beyond|outside|exceed|exceeding the? upper? limit|range? of? normal limit|range?,
        greater|larger|bigger than normal limit?, increased, prominence,
        slightly|mildly|minimally|moderately|markedly|severely increased, grossly|massively enlarged
    """,
    "coarse": """
        coarse, coarsened, accentuated, irregular, thickened, prominent, abnormal, chronic,
        chronic appearing, chronically increased
    """,
    "borderline": """
        borderline, borderline enlarged|large|enlargement|prominent, borderline in? size
    """,
    "expanded": "well|normally aerated|expanded|inflated, expanded, aerated, inflated",
    "low": """
        low, decreased, reduced, diminished, small volume,
        slightly|mildly|minimally|moderately|markedly|severely decreased|low|reduced|diminished
    """,
    "hazy": "hazy",
    "blunted": "blunted, obscured, effaced, obliterated",
    "tortuous": "tortuous, ectatic, unfolded, uncoiled",
    "calcified": "calcified, atherosclerotic",
    "elevated": "elevated, raised",
    "flat": "flattened, flat, flattening",
}
