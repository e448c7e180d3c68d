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
        heart size|silhouette|shadow|contour|border?, cardiac
        silhouette|shadow|contour|border|configuration?, size|contour|border|silhouette|diameter of
        the? heart, heart|cardiac diameter, size|contour|border|diameter of the? cardiac
        silhouette?, cardiopericardial silhouette|shadow, heart|cardiac silhouette size,
        cardiac and? heart? size, cardiothoracic ratio, ventricle, left|right ventricle|atrium
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
        cardiomediastinum, cardiomediastinal silhouette|contour|size|structure|shadow|border?,
        cardio mediastinal silhouette|contour|size|structure?, cardiomediastinal silhouette|size and
        contour, cardiothymic silhouette|shadow|contour?
        """,
    ),
    _subject(
        "lung",
        {"normal": "-opacity", "expanded": "-low lung volumes", "hazy": "+opacity"},
        """
        lung field|parenchyma|base|apex|apices|zone?, pulmonary parenchyma, airspaces,
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
        pleura, pleural space|surface|cavity|sulcus, costophrenic angle|sulcus|recess?, cp angle
        """,
    ),
    _subject(
        "pulmonary vessels",
        {"normal": "-vascular congestion", "large": "+vascular congestion"},
        """
        pulmonary vasculature|vessel|vascular, vasculature, pulmonary vascular pattern,
        pulmonary vascular? marking
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
        lung|pulmonary|peribronchial marking, interstitial lung|pulmonary marking
        """,
    ),
    _subject(
        "bone",
        {"normal": "-bone abnormality"},
        """
        bone, bony|osseous|skeletal structure|thorax|element, bony|osseous, seen? skeleton, rib,
        bones of the thorax, thoracic cage, bony thoracic|rib cage, sternum,
        thoracic|lumbar|cervical|thoracolumbar? spine, vertebral body|column, vertebra
        """,
    ),
    _subject(
        "soft tissue", {"normal": "-soft tissue abnormality"}, "soft tissue, soft tissue structure"
    ),
    _subject(
        "lymph node",
        {"calcified": "+granuloma", "large": "+lymphadenopathy", "normal": "-lymphadenopathy"},
        """
        lymph node?, node, hilar|mediastinal|paratracheal|subcarinal|perihilar node|lymph,
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
        thoracic|descending|ascending? aorta, aortic arch|knob|contour?, great vessel
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
        chest radiograph|exam|examination|film|study?, chest x ray?, exam, radiograph, cxr,
        examination|exam of the? chest
        """,
    ),
)

PREDICATES: dict[str, str] = {
    "normal": """
        normal, in normal range, in limits of normal, unremarkable, clear, not|non enlarged,
        nonenlarged, intact, sharp, midline, is central, negative, upper limit of? normal size?,
        top|upper|high normal limit?, top limit of? normal, wnl, normal in?
        size|contour|appearance|caliber, preserved, upper? in normal limits, no abnormality,
        normalized, normal and stable|unchanged, stable|unchanged and normal,
        normal size|contour|shape|configuration of the?, normal size and configuration|contour|shape
        of the?
    """,
    "large": """
        grossly|massively? enlarged, enlargement, large, widen, widened, widening, dilated,
        dilation, big, above|beyond|outside|exceed|exceeding the? upper? limit|range? of? normal
        limit|range?, greater|larger|bigger than normal limit?,
        slightly|mildly|minimally|moderately|markedly|severely? increased, prominence
    """,
    "coarse": """
        coarse, accentuated, irregular, thickened, prominent, abnormal, chronic appearing?,
        chronically increased
    """,
    "borderline": """
        borderline enlarged|large|enlargement|prominent?, borderline in? size
    """,
    "expanded": "well|normally aerated|expanded|inflated, expanded, aerated, inflated",
    "low": """
        low, decreased, reduced, small volume,
        slightly|mildly|minimally|moderately|markedly|severely decreased|low|reduced
    """,
    "hazy": "hazy",
    "blunted": "blunted, obscured, effaced, obliterated",
    "tortuous": "tortuous, ectatic, unfolded, uncoiled",
    "calcified": "calcified, atherosclerotic",
    "elevated": "elevated, raised",
    "flat": "flattened, flat, flattening",
}
