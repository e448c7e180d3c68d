"""Findings of lung and pleura: phrases, the observation each counts for, and their relatives.

Observations follow the mention lists described for chexpert-labeler (Irvin et al., 2019), with
two exceptions. A nodular opacity states Lung Opacity and only suggests Lung Lesion. Vascular
congestion (among the heart's findings) is not Edema: curators of IU X-Ray code the two apart.
A finding outside the lists (emphysema, a granuloma) has no observation and is an entity only.
"""

from __future__ import annotations

from rrgclinical.rules.concept import LUNG, SIDED, Concept, finding

LUNG_FINDINGS: dict[Concept, str] = {
    finding("opacity", "airspace", LUNG, states="Lung Opacity"): """
        opacity, opacification, lung|pulmonary|airspace|parenchymal? density, increased density,
        airspace|airspaces disease|process|opacity|opacification|abnormality|filling,
        air space disease|process|opacity|opacification|abnormality|filling, haziness,
        alveolar disease|process|opacity|filling, haze, ground glass opacity?, groundglass opacity?,
        opacified, ggo, infiltrate, infiltration, infiltrative process|change,
        lung|pulmonary shadow|shadowing, decreased translucency, whiteout, white out,
        bronchovascular|parenchymal opacity,
        patchy|streaky|hazy|linear|basilar|bibasilar|basal|bandlike|retrocardiac density,
        interstitial and airspace opacity|disease, interstitial and alveolar opacity
    """,
    finding("interstitial markings", "interstitium", LUNG, states="Lung Opacity"): """
        interstitial opacity, interstitial infiltrate, interstitial process|pattern|prominence,
        interstitial change|thickening|abnormality, reticular pattern|marking|opacity|density,
        reticulonodular opacity|pattern|marking|density, reticulation,
        reticular nodular opacity|pattern|marking|density,
        nodular interstitial opacity|pattern|density|infiltrate,
        increased|prominent|coarse|coarsened|chronic interstitial? lung? marking,
        increased|prominent|coarse|coarsened|chronic interstitium,
        increased|prominent|coarse|coarsened bronchovascular|bronchial|lung|pulmonary marking,
        peribronchial thickening|cuffing, bronchial|bronchiolar wall? thickening, airway thickening,
        kerley line|b, septal line|thickening, peribronchovascular thickening
    """,
    finding(
        "interstitial lung disease", "interstitium", LUNG, states="Lung Opacity", disease=True
    ): """
        interstitial lung? disease, pulmonary|interstitial|lung fibrosis, fibrosis, ild,
        honeycombing, fibrotic lung? change|disease, uip
    """,
    finding("scar", "scarring", LUNG): """
        fibrotic scar|scarring|band, parenchymal|pulmonary? scar|scarring, cicatrix, cicatrization,
        fibronodular scarring|change|disease|thickening|opacity|density?
    """,
    finding("lung lesion", "lesion", LUNG, states="Lung Lesion"): """
        nodule, nodularity, lung|pulmonary nodule|mass|lesion|tumor|metastasis|malignancy,
        nodular lesion|focus|metastasis|mass, mass, lung|pulmonary neoplasm,
        masslike opacity|consolidation|density|lesion,
        mass like opacity|consolidation|density|opacification|area|focus,
        masslike opacification|area|focus, noncalcified|uncalcified nodule,
        non calcified pulmonary|lung? nodule,
        cavitary|cavitating|spiculated|parenchymal lesion|mass|nodule, neoplasm, tumor, tumour,
        carcinoma, malignancy, metastasis, metastatic disease|lesion|focus|process, lump,
        bronchogenic carcinoma, lung cancer, coin lesion, cavitation, cavity,
        neoplastic process|disease|lesion, cancer, lung|pulmonary cyst, micronodule,
        hilar|perihilar|parahilar|suprahilar|infrahilar mass|nodule|neoplasm|tumor,
        hilar|perihilar|parahilar|suprahilar|infrahilar lesion|malignancy|carcinoma|cancer,
        hilar|perihilar|parahilar|suprahilar|infrahilar soft tissue mass|nodule|lesion,
        lesion in|within|of|at|over|overlying the? left|right? hilum,
        upper|middle|lower lobe lesion|tumor|cavity,
        lesion in|within|of the? left|right? lung|upper|middle|lower lobe?,
        cavitary|spiculated left|right? upper|middle|lower lobe lesion|mass|nodule,
        lung|pulmonary and|or|plus osseous|bony|bone|hepatic|liver|nodal metastasis
    """,
    finding("nodular opacity", "lesion", LUNG, states="Lung Opacity", suggests="Lung Lesion"): """
        nodular airspace|lung? opacity|opacification|density|shadow|infiltrate,
        rounded|round|ovoid|oval opacity|density, micronodular opacity|density,
        nodular like opacity, nodular left|right upper|middle|lower lobe|lung? opacity|density,
        nodular left|right basilar|apical|perihilar opacity|density,
        nodular upper|lower|middle|perihilar|basilar|apical lobe|lung? opacity|density
    """,
    finding("granuloma", "granuloma", LUNG): """
        granuloma, granulomatous nodule|disease|change|infection|process|calcification,
        calcified granuloma|granulomata|granulomatous|adenopathy|lymphadenopathy,
        ghon complex|lesion, ranke complex, granulomatous sequela|residual|scar|scarring,
        sequela|sequelae|residual of|to|from prior|old|previous? granulomatous disease,
        sequela|sequelae|residual of|to|from prior|old|previous granulomatous infection,
        sequela prior|old granulomatous disease, calcified lymph? node,
        calcified hilar|mediastinal|paratracheal|subcarinal lymph? node|lymph,
        calcified left|right|bilateral? hilar|mediastinal adenopathy,
        calcified left|right|bilateral hilar|mediastinal|paratracheal|perihilar lymph? node,
        calcified left|right|bilateral hilar|mediastinal|paratracheal lymph|lymphadenopathy,
        nodal calcification,
        left|right|bilateral hilar|mediastinal|paratracheal|perihilar calcification,
        hilar|mediastinal|paratracheal|perihilar|subcarinal lymph? node? calcification,
        lymph node calcification,
        calcified? granulomatous left|right|bilateral? hilar|mediastinal lymph? node
    """,
    finding("calcification", "granuloma", LUNG): "calcification, calcific|calcified focus|foci",
    finding("edema", "edema", states="Edema", disease=True): """
        lung|pulmonary|interstitial|alveolar|cardiogenic? edema, chf, congestive? heart failure,
        cardiac failure|decompensation, congestive failure|change, fluid|volume overload,
        decompensation, acute|early|mild|overt|biventricular|myocardial|pump|diastolic? failure,
        systolic failure, left|right sided? ventricular|heart failure,
        failure of the? left|right? heart|ventricle,
        cardiac|heart and|or renal|respiratory|liver|hepatic|kidney failure
    """,
    finding("vascular congestion", "edema"): """
        vascular congestion|engorgement|prominence|fullness|indistinctness|redistribution,
        pulmonary|venous|hilar|central|interstitial vascular|venous? congestion|engorgement,
        pulmonary vascular venous? congestion|engorgement|prominence|redistribution, cephalization,
        cephalad redistribution, pulmonary venous hypertension,
        prominent|engorged|indistinct|increased central? pulmonary vascularity|vasculature,
        prominent|engorged|indistinct|increased vascularity|vasculature,
        prominent|engorged|indistinct|increased pulmonary? vessel|vascular, congestion, congested,
        vascular plethora, vascular? congestive change
    """,
    finding("consolidation", "airspace", LUNG, states="Consolidation"): """
        consolidation, consolidating airspace? disease|process|opacity|opacification|infiltrate,
        consolidative opacity|process|change|disease|density|airspace, airspace consolidation,
        air space consolidation, consolidated, consolidate, pneumonic consolidation
    """,
    finding("pneumonia", "airspace", LUNG, states="Pneumonia", disease=True): """
        lobar|aspiration|bacterial|viral|multifocal|atypical? pneumonia, pna, bronchopneumonia,
        pneumonitis, lung|pulmonary|respiratory? infection,
        infectious process|etiology|infiltrate|consolidation|disease|change?,
        pneumonic consolidation|infiltrate|process, aspiration
    """,
    finding("atelectasis", "volume", LUNG, states="Atelectasis"): """
        atelectasis, atelectatic change|opacity|lung|band|disease|density|segment, atelectatic,
        lung|lobe|segmental collapse, collapse, collapsed, atelectases,
        subsegmental|discoid|platelike|linear|streaky|bandlike atelectasis,
        platelike|discoid opacity|density, microatelectasis, upper|middle|lower lobe volume loss,
        volume loss in|of|within the? left|right? upper|middle|lower lobe,
        loss of volume in|of|within the? left|right? upper|middle|lower lobe,
        plate|disc|disk|band like atelectasis, plate|disc|disk like opacity|density
    """,
    # others are found by `told_apart`, among the atelectases
    finding("lobar collapse", "volume", LUNG, states="Atelectasis"): "lobar collapse",
    finding("lucency", "lucency", LUNG): """
        lucency, lucent area|focus|lesion, cystic lesion|change|area|space
    """,
    finding("volume loss", "volume", LUNG): "volume loss, loss of? lung? volume",
    finding("low lung volumes", "volume"): """
        low|decreased|reduced|small|diminished lung? volume, hypoinflation, hypoinflated,
        hypoventilation, hypoventilated, hypoventilatory change, underinflation,
        shallow|low|poor|suboptimal lung? inspiratory|inspiration effort|volume?, underinflated,
        hypoaeration, hypoexpanded, hypoexpansion, under expanded|inflated|aerated,
        poorly expanded|inflated|aerated, low inspiratory lung? volume,
        bronchovascular|vascular crowding, crowding, crowded bronchovascular? marking|structure
    """,
    finding("pneumothorax", "pneumothorax", LUNG, states="Pneumothorax"): """
        pneumothorax, pneumothoraces, hydropneumothorax, hydro pneumothorax, ptx, pleural air,
        tension pneumothorax, hemopneumothorax
    """,
    finding("pleural effusion", "pleura", LUNG, states="Pleural Effusion"): """
        effusion layering?, pleural|parapneumonic|subpulmonic|loculated effusion|fluid,
        pleural effusion or|and|nor thickening, hydrothorax, hemothorax, haemothorax, empyema,
        pleural based? fluid collection, fissural|interlobar|loculated fluid, pleural collection,
        fluid in|within|along the|both? left|right? minor|major|oblique|horizontal? fissure,
        fluid is|are? present|seen|noted|identified? in|within the|both? left|right? pleural
        space|cavity, pleural space fluid,
        fluid in|within|at the? posterior|lateral|left|right? costophrenic angle|sulcus|recess,
        fluid is? seen|noted|present? tracking|extending|layering? in|within|along the|both?
        left|right? minor|major? fissure,
        fluid track|extend|layer in|into|within|along the? left|right? minor|major? fissure,
        fluid layer|layering in|within|at the? posterior|lateral|left|right? costophrenic sulcus
    """,
    finding("blunted costophrenic angle", "pleura", SIDED): """
        blunting, blunted|blunting costophrenic angle|sulcus|recess,
        costophrenic angle|sulcus|recess blunting|obscuration|effacement|obscured
    """,
    finding("pleural thickening", "pleura", LUNG, states="Pleural Other"): """
        pleural thickening|scar|scarring|fibrosis|plaque|disease|calcification|reaction|based,
        pleural parenchymal? scar|scarring|thickening, pleuroparenchymal scar|scarring|thickening,
        calcified pleural? plaque, fibrothorax, thickened pleura, apical|pleural cap|capping,
        fissural thickening, pleural and? parenchymal scar|scarring,
        pleural abnormality|change|tag|line|mass, pleuro parenchymal scar|scarring|thickening,
        pleural thickened, pleural effusion or|and|nor thickening, thickening of the? pleura,
        pleura is|are|appear? thickened, pleural nodule|nodularity
    """,
    finding("emphysema", "hyperinflation", LUNG, disease=True): """
        emphysema, emphysematous change|lung|disease?, copd, bulla, bullae, bullous disease,
        chronic? obstructive pulmonary|lung|airway? disease, chronic lung|pulmonary disease,
        bullous emphysema|change, bleb
    """,
    finding("hyperinflation", "hyperinflation"): """
        hyperinflation, hyperinflated, hyperexpansion, hyperexpanded, hyperaeration, hyperaerated,
        hyperlucent, hyperlucency, flattened diaphragm|hemidiaphragm,
        flattening of the? diaphragm|hemidiaphragm, overinflation, air trapping, hyperdistention
    """,
    finding("tuberculosis", "airspace", LUNG, disease=True): """
        tuberculosis, tb, tuberculous disease|change|infection, tuberculosis infection|pneumonia,
        active|old|healed tuberculosis|tb, histoplasmosis, histoplasmosis infection,
        mycobacterial disease|infection
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
        lung|pulmonary|parenchymal|pleural|mediastinal|cavitary|cavitating? abscess, abscess cavity
    """,
    finding("pulmonary contusion", "airspace", LUNG): """
        contusion, lung|pulmonary|parenchymal contusion, contused lung
    """,
    finding("pulmonary hemorrhage", "airspace", LUNG): """
        hemorrhage, lung|pulmonary|alveolar|parenchymal hemorrhage, hemorrhagic contusion,
        alveolar|pulmonary bleeding
    """,
    finding("acute respiratory distress syndrome", "airspace", disease=True): """
        ards, acute|adult? respiratory distress syndrome, acute lung injury,
        diffuse alveolar damage, noncardiogenic pulmonary? edema, non cardiogenic pulmonary? edema
    """,
    finding("pulmonary embolism", "pulmonary artery", disease=True): """
        embolism, embolus, pulmonary|septic|thrombo|lung embolism|embolus|emboli, thromboembolism,
        thromboembolic disease, pulmonary thromboembolism|thromboembolus,
        pulmonary|lung infarct|infarction, hampton|hamptons hump
    """,
}
