"""Every concept the rules know, numbered: findings of lung and pleura, of all else, structures.

Phrases are in the notation of `PhraseTable`; see `lung_findings` for what the observations follow.
"""

from __future__ import annotations

from dataclasses import replace

from rrgclinical.rules.lung_findings import (
    LUNG,
    LUNG_FINDINGS,
    PLAIN,
    SIDED,
    Concept,
    finding,
    structure,
)
from rrgclinical.rules.trie import phrases_of

CHEST_FINDINGS: dict[Concept, str] = {
    finding("enlarged cardiomediastinum", "mediastinum", states="Enlarged Cardiomediastinum"): """
        mediastinal widening|enlargement|prominence|shift|mass|hematoma, widened|enlarged
        mediastinum, enlarged cardiomediastinum, cardiomediastinal enlargement,
        widened cardiomediastinal silhouette|contour
    """,
    finding("cardiomegaly", "heart", states="Cardiomegaly"): """
        cardiomegaly, cardiac|heart|lv|rv|la|ra enlargement, cardiac dilation|hypertrophy,
        enlarged heart|cardiac size|silhouette|shadow?, megalocardia, increase|increased in?
        heart|cardiac size|silhouette, interval? increase|enlargement in the? size|diameter of the?
        heart|cardiac silhouette?, slight|mild|moderate|marked|significant interval? increase in
        heart|cardiac size, slight|mild|moderate|marked interval? increase in size of the?
        heart|cardiac, ventricular|atrial|biventricular|biatrial enlargement|hypertrophy|dilation,
        left|right ventricular|atrial enlargement|hypertrophy, cardiomyopathy
    """,
    finding("fracture", "bone", SIDED, states="Fracture"): """
        rib|clavicle|clavicular|vertebral|humeral|sternal? fracture, fractured,
        compression fracture|deformity, fracture deformity, fx, broken rib
    """,
    # others are found by `told_apart`, among the fractures
    finding("healed fracture", "bone", SIDED, states="Fracture"): "healed fracture",
    finding("dislocation", "bone", SIDED): "dislocation, subluxation, dislocated",
    finding("lytic lesion", "bone", SIDED): """
        lytic|destructive bone|bony|osseous? lesion|focus|area|process|metastasis,
        lytic|destructive change, bone|bony|osseous destruction, lytic lucency, osteolysis
    """,
    finding("bone abnormality", "bone", SIDED): """
        bony|osseous|skeletal|bone|rib abnormality|lesion|finding|deformity|injury,
        skeletal|rib destruction, bony|osseous|skeletal thoracic|structural abnormality,
        vertebral|wedge? deformity, blastic lesion, bone or? soft? tissue? abnormality,
        osseous change, bony thorax abnormality, sclerotic bone|bony|osseous? lesion,
        musculoskeletal abnormality|findings, deformed rib, posttraumatic change|deformity
    """,
    finding("degenerative change", "degeneration", SIDED): """
        degenerative change|disease|disc|spurring|osteophyte|joint|spondylosis|spine|arthritis,
        spondylosis, osteophyte, osteophytosis, osteoarthritis, arthritis, arthrosis,
        disc space? narrowing|disease, degenerative disc|joint disease|change|narrowing,
        hypertrophic|arthritic|endplate|spondylitic change, spurring, dish, arthropathy
    """,
    finding("scoliosis", "spine"): """
        scoliosis, dextroscoliosis, levoscoliosis,
        scoliotic|dextro|levo|dextroconvex|levoconvex|thoracolumbar curvature, rotoscoliosis,
        s shaped curvature, dextrocurvature, levocurvature
    """,
    finding("kyphosis", "spine"): "kyphosis, kyphotic curvature?, exaggerated kyphosis",
    finding("osteopenia", "osteopenia"): """
        osteopenia, osteoporosis, osteopenic, bony? demineralization, demineralized, osteoporotic
    """,
    finding("tortuous aorta", "aorta"): """
        aortic? tortuosity|ectasia|unfolding|uncoiling, tortuous|unfolded|uncoiled|dilated
        thoracic|descending|ascending? aorta, aortic dilation|enlargement, tortuous and?
        calcified|atherosclerotic thoracic? aorta, calcified|atherosclerotic and? tortuous thoracic?
        aorta
    """,
    finding("aortic aneurysm", "aorta"): """
        aortic|thoracic|arch|descending|ascending? aortic? aneurysm, aneurysmal
        dilation|enlargement?, pseudoaneurysm
    """,
    finding("aortic dissection", "aorta", disease=True): """
        aortic? dissection, dissecting aorta|aneurysm, dissected|ruptured aorta, intimal flap,
        aortic rupture|transection|tear
    """,
    finding("aortic calcification", "aorta"): """
        arch|atherosclerotic|vascular|arterial|knob|coronary calcification,
        aortic|vascular|arterial|coronary? atherosclerosis, aortic atherosclerotic? vascular?
        calcification|disease, calcified|atherosclerotic thoracic|descending? aorta|arch|knob,
        atherosclerotic change|disease, atherosclerotic vascular|calcific
        disease|calcification|change, aortic arch calcification, calcified
        vasculature|vessel|artery, calcified left? coronary artery, calcification of|in the?
        thoracic? aorta|aortic arch|knob?, tortuous and? calcified|atherosclerotic thoracic? aorta,
        calcified|atherosclerotic and? tortuous thoracic? aorta
    """,
    finding("lymphadenopathy", "lymph nodes", SIDED): """
        lymphadenopathy, hilar|mediastinal lymphadenopathy|enlargement, enlarged lymph node,
        hilar|bihilar prominence, prominent|enlarged hilum, enlarged hilar|mediastinal|paratracheal
        lymph? node, prominence of the? left|right|bilateral? hilum, prominence of the?
        left|right|bilateral? hilar region, paratracheal prominence|thickening
    """,
    finding("pulmonary hypertension", "pulmonary artery", disease=True): """
        pulmonary arterial|artery? hypertension, prominent|enlarged main|central? pulmonary artery,
        prominence|enlargement of the? main|central? pulmonary artery
    """,
    finding("hiatal hernia", "hernia"): "hiatal hernia, hiatus hernia, hernia",
    finding("elevated diaphragm", "diaphragm", SIDED): """
        elevated diaphragm|hemidiaphragm, diaphragmatic|hemidiaphragm? elevation, eventration,
        elevation of the? left|right? diaphragm|hemidiaphragm
    """,
    finding("diaphragm rupture", "diaphragm", SIDED): """
        diaphragm|diaphragmatic|hemidiaphragm rupture|tear|injury, hemidiaphragmatic rupture,
        ruptured left|right? diaphragm|hemidiaphragm, traumatic diaphragmatic hernia,
        rupture|tear of the? left|right? diaphragm|hemidiaphragm
    """,
    finding("free air", "free air"): """
        free intraperitoneal|subdiaphragmatic? air, pneumoperitoneum,
        intraperitoneal|subdiaphragmatic air, pneumomediastinum, subcutaneous emphysema|air
    """,
    finding("pericardial effusion", "pericardium"): "pericardial effusion|fluid",
    finding("tracheal deviation", "trachea"): """
        tracheal deviation|shift|narrowing, deviated trachea, deviation of the? trachea
    """,
    finding("endotracheal tube", "device", states="Support Devices"): """
        endotracheal|et|tracheostomy tube, ett, trach, tracheostomy, endotracheal tube tip
    """,
    finding("enteric tube", "device", states="Support Devices"): """
        ngt, ogt, dht, nasogastric|orogastric|enteric|feeding|gastric|ng|og|gastrostomy|nasoenteric
        tube, dobhoff|dobbhoff|peg tube?, enteric catheter
    """,
    finding("chest tube", "device", SIDED, states="Support Devices"): """
        chest|thoracostomy|pleural tube|drain|catheter, pigtail catheter|drain?, drain
    """,
    finding("central venous line", "device", SIDED, states="Support Devices"): """
        central venous? line|catheter, picc line|catheter?, infusion|chest? port, mediport,
        port a cath, portacath, port|infusion? catheter, dialysis|hemodialysis catheter|line, cvc,
        cvl, rij, lij, internal? jugular|subclavian|ij|venous line|catheter, swan ganz catheter?,
        right|left picc|ij
    """,
    finding("pacemaker", "device", SIDED, states="Support Devices"): """
        ppm, pacemaker device|lead|generator?, pacer lead|wire?, pacing device|lead|wire,
        icd|defibrillator lead?, aicd, dual|single chamber? lead, lead of pacemaker
    """,
    finding("support device", "device", SIDED, states="Support Devices"): """
        tube, balloon pump, iabp, ivc|cava filter, septal? occluder, valve
        replacement|prosthesis|artifact, lvad, hardware, line and tube,
        prosthetic|mechanical|aortic|mitral|bioprosthetic valve, stent, generator, tube and line,
        fixation|orthopedic|spinal hardware|plate|device|screw|rod, spinal|cervical|lumbar|thoracic
        fusion, anterior cervical fusion, arthroplasty, cardiac|implanted|support|monitoring
        device|apparatus|equipment|line, stimulator, tavr, tavi, impella, fusion|harrington rod,
        cannula, vagal nerve stimulator, bone? anchor, shunt catheter|tubing, embolization coil,
        ekg|ecg lead, loop recorder, external? cardiac? monitor|monitoring|telemetry lead,
        cardiac monitor, surgical|metallic? screw, surgical|metallic plate, plate and screw,
        watchman device?, device, internal fixation, prosthesis, implant
    """,
    finding("surgical change", "surgery", SIDED): """
        sternotomy wire|change?, median sternotomy, cabg, surgical clip|staple|change|suture,
        postsurgical|postoperative change?, cholecystectomy clip?, clip, suture, lobectomy,
        mastectomy, bypass graft, thoracotomy, sternal wire, resection, vertebroplasty, kyphoplasty
    """,
    finding("foreign body", "foreign body", SIDED): """
        foreign body, radiopaque|metallic foreign body|object, bullet fragment?, shrapnel,
        gunshot pellet, metallic|ballistic fragment
    """,
    finding("retained object", "foreign body", SIDED): """
        retained surgical? foreign? body|object|sponge|needle|instrument|item|material,
        retained guide? wire|guidewire, retained lap|laparotomy sponge|pad, retained
        catheter|tube|drain|line? fragment, surgical|laparotomy sponge, gossypiboma
    """,
    finding("chest wall deformity", "chest wall"): """
        pectus excavatum|carinatum|deformity?, chest wall deformity
    """,
    finding("azygos lobe", "azygos lobe"): "azygos lobe|fissure, azygous lobe|fissure",
    finding("soft tissue abnormality", "soft tissue", SIDED): """
        soft tissue abnormality|swelling|injury
    """,
    finding("acute cardiopulmonary abnormality", "chest"): """
        acute|active cardiopulmonary|cardiac|pulmonary|intrathoracic|chest|thoracic
        disease|abnormality, acute|active cardiopulmonary|pulmonary|intrathoracic|chest|thoracic
        process|finding|pathology, cardiopulmonary|intrathoracic|intrapulmonary|acute|active
        abnormality|disease|process|finding|pathology, acute radiographic|abdominal abnormality,
        acute|active cardiac or? pulmonary disease|process|abnormality|finding, acute changes,
        acute|active lung disease|abnormality|process, radiographic abnormality|finding|evidence,
        acute radiographic|radiologic cardiopulmonary process|abnormality|disease|finding,
        acute cardiac pulmonary or process|abnormality, acute infiltrative process,
        acute preoperative finding, significant abnormality|finding, acute cardio pulmonary
        process|disease|abnormality|finding, abnormality
    """,
}


STRUCTURES: tuple[Concept, ...] = tuple(
    structure(name)
    for name in phrases_of("""
        heart, mediastinum, lung, pleura, bone, pulmonary vessels, aorta, hilum, diaphragm, trachea,
        lymph node, soft tissue
    """)
)

CONCEPTS: tuple[Concept, ...] = (
    *(replace(c, phrases=phrases_of(t)) for c, t in (LUNG_FINDINGS | CHEST_FINDINGS).items()),
    *STRUCTURES,
)
CONCEPT_ID: dict[str, int] = {concept.name: index for index, concept in enumerate(CONCEPTS)}

__all__ = ["CONCEPTS", "CONCEPT_ID", "LUNG", "PLAIN", "SIDED", "STRUCTURES", "Concept"]
