"""Findings of lung and pleura: phrases, the observation each counts for, and their relatives.

Observations follow the mention lists described for chexpert-labeler (Irvin et al., 2019), with
two exceptions. A nodular opacity states Lung Opacity and only suggests Lung Lesion. Vascular
congestion (among the heart's findings) is not Edema: curators of IU X-Ray code the two apart.
A finding outside the lists (emphysema, a granuloma) has no observation and is an entity only.
"""

from __future__ import annotations

from dataclasses import dataclass

from rrgclinical.labels import OBSERVATIONS

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
    abnormality seen. anatomy: takes no part in presence. phrases: the ways to say it, in the
    notation of `PhraseTable`.
    """

    name: str
    family: str
    layout: str
    states: tuple[int, ...] = ()
    suggests: tuple[int, ...] = ()
    phrases: tuple[str, ...] = ()
    disease: bool = False
    anatomy: bool = False


def finding(
    name: str,
    family: str,
    layout: str = PLAIN,
    *,
    states: str | None = None,
    suggests: str | None = None,
    disease: bool = False,
) -> Concept:
    """A finding that counts for the observation it `states` and the one it `suggests`."""
    return Concept(
        name, family, layout, states=_columns(states), suggests=_columns(suggests), disease=disease
    )


def structure(name: str) -> Concept:
    """An anatomical structure: an entity of its own, neither present nor absent."""
    return Concept(name, f"anatomy of {name}", SIDED, anatomy=True)


def _columns(observation: str | None) -> tuple[int, ...]:
    return () if observation is None else (OBSERVATIONS.index(observation),)


LUNG_FINDINGS: dict[Concept, str] = {
    finding("opacity", "airspace", LUNG, states="Lung Opacity"): """
        bronchovascular|parenchymal? opacity, opacification,
        lung|pulmonary|airspace|parenchymal|increased? density, airspace
        disease|process|opacity|opacification|abnormality|filling, air space
        disease|process|opacity|opacification|abnormality|filling, haziness,
        alveolar disease|process|opacity|filling, haze, ground glass opacity?, groundglass opacity?,
        opacified, ggo, infiltrate, infiltration, infiltrative process|change,
        lung|pulmonary shadow, decreased translucency, whiteout, white out,
        patchy|streaky|hazy|linear|basilar|bibasilar|bandlike|retrocardiac density,
        interstitial and airspace opacity|disease, interstitial and alveolar opacity
    """,
    finding("interstitial markings", "interstitium", LUNG, states="Lung Opacity"): """
        interstitial opacity|infiltrate|process|pattern|prominence|change|thickening|abnormality,
        reticular pattern|marking|opacity|density, reticulonodular opacity|pattern|marking|density,
        reticulation, reticular nodular opacity|pattern|marking|density, nodular interstitial
        opacity|pattern|density|infiltrate, increased|prominent|coarse|chronic interstitial? lung?
        marking, increased|prominent|coarse|chronic interstitium, increased|prominent|coarse
        bronchovascular|bronchial|pulmonary marking, peribronchial thickening|cuffing,
        bronchial|bronchiolar wall? thickening, airway|peribronchovascular thickening,
        kerley line|b, septal line|thickening
    """,
    finding(
        "interstitial lung disease", "interstitium", LUNG, states="Lung Opacity", disease=True
    ): """
        interstitial lung? disease, pulmonary|interstitial|lung? fibrosis, ild, honeycombing,
        fibrotic lung? change|disease, uip
    """,
    finding("scar", "scarring", LUNG): """
        fibrotic scar|band, parenchymal|pulmonary? scar, cicatrix, cicatrization,
        fibronodular scar|change|disease|thickening|opacity|density?
    """,
    finding("lung lesion", "lesion", LUNG, states="Lung Lesion"): """
        noncalcified|uncalcified? nodule, nodularity, non calcified pulmonary|lung? nodule,
        lung|pulmonary nodule|mass|lesion|metastasis|malignancy|neoplasm|cyst,
        nodular lesion|focus|metastasis|mass, mass|masslike, micronodule, neoplasm, tumour,
        masslike lesion, mass|masslike like? opacity|consolidation|density|opacification|area|focus,
        cavitary|spiculated|parenchymal lesion|mass|nodule, bronchogenic? carcinoma, malignancy,
        metastasis, metastatic disease|lesion|focus|process, lump, lung? cancer, coin lesion,
        cavitation, cavity, neoplastic process|disease|lesion, hilar|perihilar|suprahilar|infrahilar
        soft? tissue? mass|nodule|neoplasm|lesion|malignancy|carcinoma|cancer,
        lesion in|of|at|over|overlying the? left|right? hilum|lung|upper|middle|lower lobe?,
        upper|middle|lower lobe lesion|neoplasm|cavity,
        cavitary|spiculated left|right? upper|middle|lower lobe lesion|mass|nodule,
        lung|pulmonary and|or|plus osseous|bony|bone|hepatic|liver|nodal metastasis
    """,
    finding("nodular opacity", "lesion", LUNG, states="Lung Opacity", suggests="Lung Lesion"): """
        rounded|round|ovoid|oval|micronodular opacity|density,
        nodular like? left|right? airspace|upper|lower|middle|perihilar|basilar|apical? lobe|lung?
        opacity|opacification|density|shadow|infiltrate
    """,
    finding("granuloma", "granuloma", LUNG): """
        granuloma, ghon complex|lesion, ranke complex, calcified granuloma|granulomatous,
        granulomatous nodule|disease|change|infection|process|calcification|sequela|residual|scar,
        sequela|residual of|to|from? prior|old? granulomatous disease|infection,
        calcified lymph? node, calcified left|right|bilateral?
        hilar|mediastinal|paratracheal|subcarinal|perihilar lymph|node|lymphadenopathy node?,
        calcified lymphadenopathy, calcified? granulomatous left|right|bilateral?
        hilar|mediastinal lymph? node, lymph? node|nodal calcification, left|right|bilateral?
        hilar|mediastinal|paratracheal|perihilar|subcarinal lymph? node? calcification
    """,
    finding("calcification", "granuloma", LUNG): "calcification, calcific|calcified focus|foci",
    finding("edema", "edema", states="Edema", disease=True): """
        lung|pulmonary|interstitial|alveolar|cardiogenic? edema, chf, congestive? heart failure,
        cardiac failure|decompensation, congestive failure|change, fluid|volume overload,
        decompensation, acute|early|mild|overt|biventricular|myocardial|pump|diastolic|systolic?
        failure, left|right sided? ventricular|heart failure, failure of the? left|right?
        heart|ventricle, cardiac|heart and|or renal|respiratory|liver|hepatic|kidney failure
    """,
    finding("vascular congestion", "edema"): """
        vascular congestion|engorgement|prominence|indistinctness|redistribution|plethora,
        pulmonary|venous|hilar|central|interstitial vascular|venous? congestion|engorgement,
        pulmonary vascular venous? congestion|engorgement|prominence|redistribution, cephalization,
        cephalad redistribution, pulmonary venous hypertension,
        prominent|engorged|indistinct|increased central? pulmonary vasculature,
        prominent|engorged|indistinct|increased vasculature,
        prominent|engorged|indistinct|increased pulmonary? vessel|vascular, congestion, congested,
        vascular? congestive change
    """,
    finding("consolidation", "airspace", LUNG, states="Consolidation"): """
        consolidation, consolidating airspace? disease|process|opacity|opacification|infiltrate,
        consolidative opacity|process|change|disease|density|airspace, airspace consolidation,
        air space consolidation, consolidated, consolidate, pneumonic consolidation
    """,
    finding("pneumonia", "airspace", LUNG, states="Pneumonia", disease=True): """
        lobar|aspiration|bacterial|viral|multifocal|atypical? pneumonia, pna, bronchopneumonia,
        pneumonitis, lung|pulmonary|respiratory? infection, infectious
        process|etiology|infiltrate|consolidation|disease|change?, pneumonic
        consolidation|infiltrate|process, aspiration
    """,
    finding("atelectasis", "volume", LUNG, states="Atelectasis"): """
        subsegmental|discoid|platelike|linear|streaky|bandlike? atelectasis,
        atelectatic change|opacity|lung|band|disease|density|segment?, lung|lobe|segmental?
        collapse, collapsed, platelike|discoid opacity|density, microatelectasis,
        upper|middle|lower lobe volume loss, volume loss in|of the? left|right? upper|middle|lower
        lobe, loss of volume in|of the? left|right? upper|middle|lower lobe,
        plate|disc|band like atelectasis, plate|disc like opacity|density
    """,
    # others are found by `told_apart`, among the atelectases
    finding("lobar collapse", "volume", LUNG, states="Atelectasis"): "lobar collapse",
    finding("lucency", "lucency", LUNG): """
        lucency, lucent area|focus|lesion, cystic lesion|change|area|space
    """,
    finding("volume loss", "volume", LUNG): "volume loss, loss of? lung? volume",
    finding("low lung volumes", "volume"): """
        low|decreased|reduced|small lung? volume, hypoinflation, hypoinflated, hypoventilation,
        hypoventilated, hypoventilatory change, underinflation, shallow|low|poor|suboptimal lung?
        inspiratory|inspiration effort|volume?, underinflated, hypoaeration, hypoexpanded,
        hypoexpansion, under|poorly expanded|inflated|aerated, low inspiratory lung volume,
        bronchovascular|vascular? crowding, crowded bronchovascular? marking|structure
    """,
    finding("pneumothorax", "pneumothorax", LUNG, states="Pneumothorax"): """
        hydro|tension? pneumothorax, pneumothoraces, hydropneumothorax, ptx, pleural air,
        hemopneumothorax
    """,
    finding("pleural effusion", "pleura", LUNG, states="Pleural Effusion"): """
        effusion layering?, pleural|parapneumonic|subpulmonic|loculated effusion|fluid,
        pleural effusion or|and|nor thickening, hydrothorax, hemothorax, haemothorax, empyema,
        pleural based? fluid collection, fissural|interlobar fluid, pleural collection,
        fluid in|along the|both? left|right? oblique|horizontal fissure, fluid is? present|seen? in
        the|both? left|right? pleural space|cavity, pleural space fluid, fluid in|at the?
        posterior|lateral|left|right? costophrenic angle|sulcus|recess, fluid is? seen|present?
        tracking|extending|layering? in|along the|both? left|right? minor|major? fissure,
        fluid track|extend|layer in|into|along the? left|right? minor|major? fissure,
        fluid layer|layering in|at the? posterior|lateral|left|right? costophrenic sulcus
    """,
    finding("blunted costophrenic angle", "pleura", SIDED): """
        blunting, blunted|blunting costophrenic angle|sulcus|recess, costophrenic
        angle|sulcus|recess blunting|obscuration|effacement|obscured
    """,
    finding("pleural thickening", "pleura", LUNG, states="Pleural Other"): """
        pleural fibrosis|plaque|disease|calcification|reaction|based|thickened|nodule|nodularity,
        pleural parenchymal? scar|thickening, pleuroparenchymal scar|thickening,
        calcified pleural? plaque, fibrothorax, thickened pleura, apical|pleural cap|capping,
        fissural thickening, pleural and parenchymal scar, pleural abnormality|change|tag|line|mass,
        pleuro parenchymal scar|thickening, pleural effusion or|and|nor thickening,
        thickening of the? pleura, pleura is|appear? thickened
    """,
    finding("emphysema", "hyperinflation", LUNG, disease=True): """
        emphysema, emphysematous change|lung|disease?, copd, bulla, bullous
        disease|emphysema|change, chronic? obstructive pulmonary|lung|airway? disease,
        chronic lung|pulmonary disease, bleb
    """,
    finding("hyperinflation", "hyperinflation"): """
        hyperinflation, hyperinflated, hyperexpansion, hyperexpanded, hyperaeration, hyperaerated,
        hyperlucent, hyperlucency, flattened diaphragm|hemidiaphragm, flattening of the?
        diaphragm|hemidiaphragm, overinflation, air trapping, hyperdistention
    """,
    finding("tuberculosis", "airspace", LUNG, disease=True): """
        tuberculosis infection|pneumonia?, tb, tuberculous disease|change|infection,
        active|old|healed tuberculosis|tb, histoplasmosis infection?, mycobacterial
        disease|infection
    """,
    finding("bronchiectasis", "airway", LUNG, disease=True): """
        bronchiectasis, bronchiectatic change?
    """,
    finding("bronchitis", "airway", disease=True): """
        bronchitis, bronchitic change, reactive airways? disease, asthma
    """,
    finding("lung abnormality", "airspace", LUNG, states="Lung Opacity"): """
        lung|pulmonary|parenchymal abnormality|disease, focal lung? abnormality|disease
    """,
    # Of lung and vessels, need treatment at once and have no observation.
    finding("lung abscess", "airspace", LUNG, disease=True): """
        lung|pulmonary|parenchymal|pleural|mediastinal|cavitary? abscess, abscess cavity
    """,
    finding("pulmonary contusion", "airspace", LUNG): """
        lung|pulmonary|parenchymal? contusion, contused lung
    """,
    finding("pulmonary hemorrhage", "airspace", LUNG): """
        lung|pulmonary|alveolar|parenchymal? hemorrhage, hemorrhagic contusion,
        alveolar|pulmonary bleeding
    """,
    finding("acute respiratory distress syndrome", "airspace", disease=True): """
        ards, acute|adult? respiratory distress syndrome, acute lung injury,
        diffuse alveolar damage, noncardiogenic pulmonary? edema, non cardiogenic pulmonary? edema
    """,
    finding("pulmonary embolism", "pulmonary artery", disease=True): """
        pulmonary|septic|thrombo|lung? embolism, thromboembolism, thromboembolic disease,
        pulmonary thromboembolism|thromboembolus, pulmonary|lung infarct|infarction, hampton hump
    """,
}
