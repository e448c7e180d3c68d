"""The findings the rules know: phrases, the observation each counts for, and their relatives.

Phrases are in the notation of `PhraseTable`. Observations follow the mention lists described for
chexpert-labeler (Irvin et al., 2019); a finding outside them (emphysema, a hernia) has none and
is an entity only.
"""

from __future__ import annotations

from dataclasses import dataclass

from rrgtrain.clinical.labels import OBSERVATIONS

LUNG = "lung"
"""Side, zone and severity distinguish one such finding from another."""
SIDED = "sided"
"""Side and severity do; a zone says nothing."""
PLAIN = "plain"
"""Only severity does."""


@dataclass(frozen=True)
class Concept:
    """name: canonical text. family: concepts of one family are related, others unrelated.

    states, suggests: columns of the label matrix it counts for, fully or as uncertain at most.
    layout: LUNG, SIDED or PLAIN. disease: a diagnosis (RaTE's DISEASE) rather than an
    abnormality seen. anatomy: takes no part in presence. phrases: the ways to say it.
    """

    name: str
    family: str
    states: tuple[int, ...]
    suggests: tuple[int, ...]
    layout: str
    phrases: tuple[str, ...]
    disease: bool = False
    anatomy: bool = False


_TABLE: list[Concept] = []


def _finding(
    name: str,
    family: str,
    observation: str | None,
    layout: str,
    *phrases: str,
    disease: bool = False,
    suggests: str | None = None,
) -> None:
    states, hints = (
        () if column is None else (OBSERVATIONS.index(column),) for column in (observation, suggests)
    )
    _TABLE.append(Concept(name, family, states, hints, layout, phrases, disease))


def _anatomy(name: str) -> None:
    _TABLE.append(Concept(name, f"anatomy of {name}", (), (), SIDED, (), anatomy=True))


_finding(
    "enlarged cardiomediastinum", "mediastinum", "Enlarged Cardiomediastinum", PLAIN,
    "mediastinal widening", "widened mediastinum", "wide mediastinum", "mediastinal enlargement",
    "enlarged cardiomediastinum", "enlarged mediastinum", "cardiomediastinal enlargement",
    "widened cardiomediastinal silhouette|contour", "mediastinal prominence",
    "mediastinal shift|mass|hematoma",
)
_finding(
    "cardiomegaly", "heart", "Cardiomegaly", PLAIN,
    "cardiomegaly", "cardiac enlargement", "heart enlargement", "cardiac dilation|dilatation",
    "enlarged heart|cardiac", "megalocardia", "enlarged heart|cardiac size|silhouette|shadow",
    "increase|increased in? heart|cardiac size|silhouette",
    "ventricular|atrial|biventricular|biatrial enlargement|hypertrophy|dilation|dilatation",
    "left|right ventricular|atrial enlargement|hypertrophy", "cardiomyopathy",
)
_finding(
    "opacity", "airspace", "Lung Opacity", LUNG,
    "opacity", "opacification", "lung|pulmonary|airspace|parenchymal? density", "increased density",
    "airspace|airspaces disease|process|opacity|opacification|abnormality|filling",
    "air space disease|process|opacity|opacification|abnormality|filling", "haziness",
    "alveolar disease|process|opacity|filling", "ground glass opacity?", "groundglass opacity?",
    "infiltrate", "infiltration", "infiltrative process|change", "lung|pulmonary shadow|shadowing",
    "decreased translucency", "whiteout", "white out", "bronchovascular|parenchymal opacity",
    "patchy|streaky|hazy|linear|basilar|bibasilar|basal|bandlike|retrocardiac density",
    "interstitial and airspace opacity|disease", "interstitial and alveolar opacity",
)
_finding(
    "interstitial markings", "interstitium", "Lung Opacity", LUNG,
    "interstitial opacity", "interstitial infiltrate", "interstitial process|pattern|prominence",
    "interstitial change|thickening|abnormality", "reticular pattern|marking|opacity|density",
    "reticulonodular opacity|pattern|marking|density", "reticulation",
    "increased|prominent|coarse|coarsened|chronic interstitial? lung? marking",
    "increased|prominent|coarse|coarsened|chronic interstitium",
    "increased|prominent|coarse|coarsened bronchovascular|bronchial|lung|pulmonary marking",
    "peribronchial thickening|cuffing", "bronchial|bronchiolar wall? thickening",
    "airway thickening", "kerley line|b", "septal line|thickening", "peribronchovascular thickening",
)
_finding(
    "interstitial lung disease", "interstitium", "Lung Opacity", LUNG,
    "interstitial lung? disease", "pulmonary|interstitial|lung fibrosis", "fibrosis", "ild",
    "honeycombing", "fibrotic lung? change|disease", "uip", disease=True,
)
_finding(
    "scar", "scarring", None, LUNG,
    "scar", "scarring", "fibrotic scar|scarring|band", "parenchymal|pulmonary? scar|scarring",
    "cicatrix", "cicatrization", "fibronodular scarring|change|disease",
)
_finding(
    "lung lesion", "lesion", "Lung Lesion", LUNG,
    "nodule", "nodularity", "lung|pulmonary nodule|mass|lesion|tumor|tumour|metastasis|malignancy",
    "nodular lesion|focus|metastasis|mass", "mass", "lung|pulmonary neoplasm",
    "masslike opacity|consolidation|density|lesion", "mass like opacity|consolidation|density",
    "cavitary|cavitating|spiculated|parenchymal lesion|mass|nodule", "neoplasm", "tumor", "tumour",
    "carcinoma", "malignancy", "metastasis", "metastatic disease|lesion|focus|process", "lump",
    "bronchogenic carcinoma", "lung cancer", "coin lesion", "cavitation", "cavity",
    "neoplastic process|disease|lesion", "cancer", "lung|pulmonary cyst", "micronodule",
    "calcified|calcific lung|pulmonary? nodule", "fibronodular", "granulomatous nodule",
)
_finding(
    "nodular opacity", "lesion", "Lung Opacity", LUNG,
    "nodular airspace|lung|interstitial? opacity|opacification|density|shadow|infiltrate",
    "rounded|round|ovoid|oval opacity|density", "micronodular opacity|density", "nodular like opacity",
    "reticular nodular opacity|density", suggests="Lung Lesion",
)
_finding(
    "granuloma", "granuloma", None, LUNG,
    "granuloma", "granulomata", "granulomatous disease|change|infection|process|calcification",
    "calcified granuloma|granulomata|granulomatous", "ghon complex", "calcified lymph node",
    "calcified hilar|mediastinal|paratracheal lymph? node|adenopathy|lymphadenopathy",
)
_finding(
    "edema", "edema", "Edema", PLAIN,
    "edema", "oedema", "lung|pulmonary|interstitial|alveolar edema|oedema", "chf", "heart failure",
    "congestive heart failure", "cardiac failure|decompensation", "congestive failure|change",
    "fluid overload", "volume overload", "cardiogenic edema", "congestive change", disease=True,
)
_finding(
    "vascular congestion", "edema", None, PLAIN,
    "vascular congestion|engorgement|prominence|fullness|indistinctness|redistribution",
    "pulmonary|venous|hilar|central|interstitial vascular|venous? congestion|engorgement",
    "pulmonary vascular venous? congestion|engorgement|prominence|redistribution",
    "cephalization", "cephalad redistribution", "pulmonary venous hypertension",
    "prominent|engorged|indistinct|increased central? pulmonary|vascular vascularity|vasculature",
    "prominent|engorged|indistinct|increased pulmonary? vascularity|vasculature|vessel|vascular",
    "congestion", "vascular plethora",
)
_finding(
    "consolidation", "airspace", "Consolidation", LUNG,
    "consolidation", "consolidative opacity|process|change|disease|density|airspace",
    "airspace consolidation", "air space consolidation", "consolidated", "consolidate",
)
_finding(
    "pneumonia", "airspace", "Pneumonia", LUNG,
    "pneumonia", "bronchopneumonia", "pneumonitis", "infection", "infectious process|etiology",
    "infectious infiltrate|consolidation|disease|change", "pneumonic infiltrate|process",
    "lung|pulmonary|respiratory infection", "lobar|aspiration|bacterial|viral pneumonia",
    "multifocal|atypical pneumonia", "aspiration", "infectious", disease=True,
)
_finding(
    "atelectasis", "volume", "Atelectasis", LUNG,
    "atelectasis", "atelectatic change|opacity|lung|band|disease|density|segment", "atelectatic",
    "lung|lobar|lobe|segmental collapse", "collapse", "collapsed", "atelectases",
    "subsegmental|discoid|platelike|linear|streaky|bandlike atelectasis", "plate like atelectasis",
    "platelike|discoid opacity|density", "microatelectasis", "lobe volume loss",
)
_finding(
    "low lung volumes", "volume", None, PLAIN,
    "low|decreased|reduced|small|diminished lung? volume", "hypoinflation", "hypoinflated",
    "shallow|poor inspiration", "hypoventilation", "hypoventilatory change", "underinflation",
    "shallow|low|poor|suboptimal lung? inspiratory|inspiration effort|volume?", "underinflated",
    "hypoaeration", "hypoexpanded", "hypoexpansion", "low inspiratory lung? volume",
    "bronchovascular|vascular crowding", "crowding", "crowded bronchovascular? marking|structure",
)
_finding(
    "pneumothorax", "pneumothorax", "Pneumothorax", LUNG,
    "pneumothorax", "pneumothoraces", "hydropneumothorax", "ptx", "pleural air",
    "tension pneumothorax", "hemopneumothorax", "haemopneumothorax",
)
_finding(
    "pleural effusion", "pleura", "Pleural Effusion", LUNG,
    "effusion", "pleural effusion|fluid", "pleural fluid collection?", "hydrothorax",
    "hemothorax", "haemothorax", "empyema", "parapneumonic|subpulmonic|loculated effusion|fluid",
    "effusion layering", "fissural|loculated fluid", "fluid in the? fissure", "pleural collection",
)
_finding(
    "blunted costophrenic angle", "pleura", None, SIDED,
    "blunting", "blunted|blunting costophrenic angle|sulcus|recess", "costophrenic angle|sulcus|recess blunting|obscuration|effacement|obscured",
)
_finding(
    "pleural thickening", "pleura", "Pleural Other", LUNG,
    "pleural thickening|scar|scarring|fibrosis|plaque|disease|calcification|reaction|based",
    "pleural parenchymal? scar|scarring|thickening", "pleuroparenchymal scar|scarring|thickening",
    "calcified pleural? plaque", "fibrothorax", "thickened pleura", "apical cap|capping",
    "pleural and? parenchymal scar|scarring", "pleural abnormality|change|tag|line|mass",
    "pleuro parenchymal scar|scarring|thickening", "pleural thickened", "pleural nodule|nodularity",
)
_finding(
    "fracture", "bone", "Fracture", SIDED,
    "fracture", "fractured", "rib|clavicle|clavicular|vertebral|humeral|sternal fracture",
    "compression fracture|deformity", "fracture deformity", "fx", "broken rib",
)
_finding(
    "bone abnormality", "bone", None, SIDED,
    "bony|osseous|skeletal|bone|rib abnormality|lesion|finding|destruction|deformity|injury",
    "bony|osseous|skeletal thoracic|structural abnormality", "deformity", "lytic|blastic lesion",
    "bone or? soft? tissue? abnormality", "dislocation", "osseous change", "bony thorax abnormality",
    "sclerotic|destructive bone|bony|osseous? lesion", "vertebral deformity", "wedge deformity",
    "musculoskeletal|skeletal|osseous abnormality|findings",
)
_finding(
    "degenerative change", "degeneration", None, PLAIN,
    "degenerative change|disease|disc|spurring|osteophyte|joint|spondylosis|spine|arthritis",
    "spondylosis", "osteophyte", "osteophytosis", "osteoarthritis", "arthritis", "arthrosis",
    "disc|disk space? narrowing|disease", "degenerative disc|disk|joint disease|change|narrowing",
    "hypertrophic|arthritic|endplate|spondylitic change", "spurring", "dish", "arthropathy",
)
_finding("scoliosis", "spine", None, PLAIN, "scoliosis", "dextroscoliosis", "levoscoliosis",
         "scoliotic curvature", "rotoscoliosis", "s shaped curvature")
_finding("kyphosis", "spine", None, PLAIN, "kyphosis", "kyphotic", "exaggerated kyphosis")
_finding("osteopenia", "osteopenia", None, PLAIN, "osteopenia", "osteoporosis", "osteopenic",
         "demineralization", "bony demineralization", "demineralized", "osteoporotic")
_finding(
    "emphysema", "hyperinflation", None, LUNG,
    "emphysema", "emphysematous change|lung|disease?", "copd", "bulla", "bullae", "bullous disease",
    "chronic obstructive pulmonary|lung? disease", "bullous emphysema|change", "bleb",
    disease=True,
)
_finding(
    "hyperinflation", "hyperinflation", None, PLAIN,
    "hyperinflation", "hyperinflated", "hyperexpansion", "hyperexpanded", "hyperaeration",
    "hyperaerated", "hyperlucent", "hyperlucency", "flattened diaphragm|hemidiaphragm",
    "flattening of the? diaphragm|hemidiaphragm", "overinflation", "air trapping", "hyperdistention",
)
_finding("tuberculosis", "airspace", None, LUNG, "tuberculosis", "tb", "tuberculous disease|change",
         "tuberculosis infection|pneumonia", "active|old|healed tuberculosis|tb", "histoplasmosis",
         "histoplasmosis infection", "mycobacterial disease|infection", disease=True)
_finding("bronchiectasis", "airway", None, LUNG, "bronchiectasis", "bronchiectatic change?",
         disease=True)
_finding("bronchitis", "airway", None, PLAIN, "bronchitis", "bronchitic change",
         "reactive airways? disease", "asthma", disease=True)
_finding(
    "tortuous aorta", "aorta", None, PLAIN,
    "tortuosity", "ectasia", "aortic? tortuosity|ectasia|unfolding|uncoiling",
    "tortuous|ectatic|unfolded|uncoiled|dilated thoracic|descending|ascending? aorta",
    "aortic aneurysm|dilation|dilatation|enlargement", "aneurysm",
)
_finding(
    "aortic calcification", "aorta", None, PLAIN,
    "aortic|arch|atherosclerotic|vascular|arterial|knob|coronary calcification|atherosclerosis",
    "aortic atherosclerotic? vascular? calcification|disease", "atherosclerosis",
    "calcified|atherosclerotic thoracic|descending? aorta|arch|knob", "atherosclerotic change|disease",
    "atherosclerotic vascular|calcific disease|calcification|change", "aortic arch calcification",
)
_finding(
    "lymphadenopathy", "lymph nodes", None, SIDED,
    "lymphadenopathy", "adenopathy", "hilar|mediastinal adenopathy|lymphadenopathy|enlargement",
    "enlarged lymph node", "hilar mass|prominence|fullness", "prominent|enlarged hila|hilum",
)
_finding("pulmonary hypertension", "pulmonary artery", None, PLAIN,
         "pulmonary arterial? hypertension", "prominent|enlarged main? pulmonary artery",
         disease=True)
_finding("hiatal hernia", "hernia", None, PLAIN, "hiatal hernia", "hiatus hernia", "hernia")
_finding(
    "elevated diaphragm", "diaphragm", None, SIDED,
    "elevated diaphragm|hemidiaphragm", "elevation", "eventration", "diaphragmatic elevation",
    "elevation of the? left|right? diaphragm|hemidiaphragm", "hemidiaphragm elevation",
)
_finding("free air", "free air", None, PLAIN, "free air", "free intraperitoneal air",
         "free subdiaphragmatic air", "pneumoperitoneum", "intraperitoneal air", "subdiaphragmatic air",
         "pneumomediastinum", "subcutaneous emphysema|air")
_finding("pericardial effusion", "pericardium", None, PLAIN, "pericardial effusion|fluid")
_finding("tracheal deviation", "trachea", None, PLAIN, "tracheal deviation|shift|narrowing",
         "deviated trachea", "deviation of the? trachea")
_finding(
    "endotracheal tube", "device", "Support Devices", PLAIN,
    "endotracheal|et|tracheostomy tube", "ett", "tracheostomy", "endotracheal tube tip",
)
_finding(
    "enteric tube", "device", "Support Devices", PLAIN,
    "nasogastric|orogastric|enteric|feeding|gastric|ng|og|gastrostomy|nasoenteric tube",
    "dobhoff tube?", "dobbhoff tube?", "enteric catheter", "peg tube?",
)
_finding(
    "chest tube", "device", "Support Devices", SIDED,
    "chest|thoracostomy|pleural tube|drain|catheter", "pigtail catheter|drain?", "drain",
)
_finding(
    "central venous line", "device", "Support Devices", SIDED,
    "central venous? line|catheter", "picc line|catheter?", "port", "mediport", "port a cath",
    "portacath", "infusion|chest port", "port catheter", "dialysis|hemodialysis catheter|line",
    "internal? jugular|subclavian|ij|venous line|catheter", "swan ganz catheter?", "infusion catheter",
    "right|left picc|ij", "catheter",
)
_finding(
    "pacemaker", "device", "Support Devices", SIDED,
    "pacemaker device|lead|generator?", "pacer lead|wire?", "pacing device|lead|wire", "icd lead?",
    "aicd", "defibrillator lead?", "dual|single chamber? lead", "lead of pacemaker",
)
_finding(
    "support device", "device", "Support Devices", SIDED,
    "tube", "balloon pump", "valve replacement|prosthesis", "lvad", "hardware", "line and tube",
    "prosthetic|mechanical|aortic|mitral|bioprosthetic valve", "stent", "generator", "tube and line",
    "fixation|orthopedic|spinal hardware|plate|device|screw|rod", "spinal fusion", "arthroplasty",
    "cardiac|implanted|support|monitoring device|apparatus|equipment|line", "stimulator", "cannula",
    "vagal nerve stimulator", "anchor", "shunt catheter|tubing", "embolization coil", "ekg|ecg lead",
    "loop recorder", "prosthesis", "implant",
)
_finding(
    "surgical change", "surgery", None, PLAIN,
    "sternotomy", "sternotomy wire|change", "median sternotomy", "cabg", "surgical clip|staple|change",
    "postsurgical|postoperative change", "cholecystectomy clip?", "clip", "suture", "surgical suture",
    "lobectomy", "mastectomy", "bypass graft", "thoracotomy", "sternal wire", "postsurgical|postoperative",
    "resection",
)
_finding(
    "acute cardiopulmonary abnormality", "chest", None, PLAIN,
    "acute|active cardiopulmonary|cardiac|pulmonary|intrathoracic|chest|thoracic? disease|abnormality",
    "acute|active cardiopulmonary|intrathoracic|chest|thoracic|pulmonary process|finding|pathology",
    "cardiopulmonary|intrathoracic|intrapulmonary abnormality|disease|process|finding|pathology",
    "acute|active disease|process|finding|abnormality|pathology", "acute radiographic abnormality",
    "acute|active cardiac or? pulmonary disease|process|abnormality|finding", "acute changes",
    "acute|active lung? disease|abnormality|process", "radiographic abnormality|finding|evidence",
    "acute radiographic|radiologic cardiopulmonary process|abnormality|disease|finding",
    "acute cardiac pulmonary or? process|abnormality", "acute infiltrative? process",
    "acute preoperative finding", "acute abdominal? abnormality", "significant abnormality|finding",
    "acute cardio pulmonary process|disease|abnormality|finding", "abnormality",
)
_finding("lung abnormality", "airspace", "Lung Opacity", LUNG,
         "lung|pulmonary|parenchymal abnormality|disease", "focal lung? abnormality|disease")

for _name in ("heart", "mediastinum", "lung", "pleura", "bone", "pulmonary vessels", "aorta",
              "hilum", "diaphragm", "trachea"):
    _anatomy(_name)

CONCEPTS: tuple[Concept, ...] = tuple(_TABLE)
CONCEPT_ID: dict[str, int] = {concept.name: index for index, concept in enumerate(CONCEPTS)}
