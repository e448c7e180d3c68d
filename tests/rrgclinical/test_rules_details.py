"""Finer findings, and the doubt, change, size and tip of an entity."""

from __future__ import annotations

import numpy as np
import pytest

from rrgclinical import Entities, build_extractor, build_labeller
from rrgclinical.cached import pack_entities, unpack_entities

EXTRACTOR = build_extractor("rules")

NAMED = """
Known ascending aortic aneurysm. | +aortic aneurysm
The aorta is tortuous. | +tortuous aorta
Left upper lobe collapse. | +left upper lobar collapse
The right middle lobe is collapsed. | +right middle lobar collapse
Complete collapse of the left lung. | +left lobar collapse
Partial collapse of the left upper lobe. | +left upper atelectasis
Segmental collapse. | +atelectasis
Dislocation of the left humerus. | +left dislocation
No fracture or dislocation. | -fracture -dislocation
Lytic lesion in the left fifth rib. | +left lytic lesion
Destructive osseous lesion of the right humerus. | +right lytic lesion
Blastic lesion of a rib. | +bone abnormality
Old left rib fractures. | +left healed fracture
Multiple healed bilateral rib fractures. | +bilateral healed fracture
Left rib fracture, which appears well healed. | +left healed fracture
Rib fracture is remote. | +healed fracture
Acute left rib fracture. | +left fracture
Healing rib fracture. | +fracture
Chronic lung disease and rib fracture. | +emphysema +fracture
Stable old rib fracture and new clavicle fracture. | +healed fracture +fracture
No old or acute fracture. | -fracture
Aortic dissection. | +aortic dissection
Right lower lobe abscess. | +right lower lung abscess
No evidence of pulmonary embolism. | -pulmonary embolism
Left pulmonary contusion. | +left pulmonary contusion
Diffuse alveolar hemorrhage. | +pulmonary hemorrhage
Diffuse alveolar haemorrhage. | +pulmonary hemorrhage
Findings consistent with ARDS. | +acute respiratory distress syndrome
Retained surgical sponge. | +retained object
Clips from left axillary lymph node dissection. | +surgical change
Status post neck dissection. |
Splenic abscess. |
Subphrenic abscess drained. |
Myocardial contusion. |
Contusion of the chest wall. |
Intracranial hemorrhage. |
Embolism coils of the splenic artery. |
Splenic artery aneurysm. |
Aneurysm clip in the brain. | +surgical change
Dissection of the descending aorta. | +aortic dissection
Aneurysm of the ascending aorta. | +aortic aneurysm
Abscess in the right lung. | +right lung abscess
Contusion in the left upper lobe. | +left upper pulmonary contusion
Pulmonary arterial embolism. | +pulmonary embolism
Large right pneumothorax with shift of the mediastinum to the left. | +large right pneumothorax
Left pneumothorax, none on the right. | +left pneumothorax
Opacity in the left base compared with the right. | +left lower opacity
Right pneumothorax seen on the left lateral decubitus film. | +right pneumothorax
Pacemaker with right ventricular lead. | +pacemaker
Retained guidewire. | +retained object
Metallic foreign body. | +foreign body
Rupture of the left hemidiaphragm. | +left diaphragm rupture
The bony structures are intact with no evidence of acute abnormality. | -bone abnormality
The osseous structures are without acute abnormality. | -bone abnormality
No evidence of acute abnormality in the visualized osseous structures. | -bone abnormality
Bones: No acute abnormality. | -bone abnormality
The lungs are clear, and the bones show no acute abnormality. | -opacity -bone abnormality
The lungs and bones show no acute abnormality. | -acute cardiopulmonary abnormality
No acute abnormality. | -acute cardiopulmonary abnormality
Normal CXR. | -acute cardiopulmonary abnormality
The bones are intact with no acute cardiopulmonary abnormality. | -bone abnormality \
-acute cardiopulmonary abnormality
"""

# change, size in mm, tip of the present entities in order
SAID = """
Left pleural effusion, increased in size since the prior study. | 3,0,0
Left effusion has increased and right effusion has decreased. | 3,0,0 1,0,0
New right lower lobe opacity and stable cardiomegaly. | 3,0,0 2,0,0
Right effusion has not increased. | 2,0,0
No change in the right effusion. | 2,0,0
Decreased lung volumes. | 0,0,0
Partially resolved edema. | 1,0,0
Mass in the left upper lobe measuring 3 x 2 cm, 1.5 cm from the hilum. | 0,30,0
A nodule 3 cm from the hilum. | 0,0,0
A 5 mm nodule and a 12-mm nodule. | 0,5,0 0,12,0
Endotracheal tube tip is 4 cm above the carina. | 0,0,1
Endotracheal tube tip is in the right mainstem bronchus. | 0,0,2
An endotracheal tube is present. | 0,0,0
Endotracheal tube in good position and enteric tube coiled in the esophagus. | 0,0,1 0,0,2
Left PICC tip in the right ventricle. | 0,0,2
Pacemaker lead in the right ventricle. | 0,0,1
Right subclavian catheter is not in satisfactory position. | 0,0,2
The enteric tube should be advanced. | 0,0,2
The enteric tube has been repositioned and is now in the stomach. | 0,0,1
Right subclavian line in good position. | 0,0,1
PICC noted in good position. | 0,0,1
Endotracheal tube noted in satisfactory position. | 0,0,1
Endotracheal tube in suboptimal position. | 0,0,2
Right subclavian catheter is no longer in good position. | 0,0,2
Swan-Ganz catheter tip in the main pulmonary artery. | 0,0,0
Endotracheal tube tip in the right main bronchus. | 0,0,2
Enteric tube courses through the esophagus into the stomach. | 0,0,1
Feeding tube tip distal to the gastro-esophageal junction. | 0,0,0
Enteric tube tip in the distal esophagus. | 0,0,2
Central line in the right internal jugular vein with tip in the SVC. | 0,0,1
Catheter tip in the jugular vein. | 0,0,2
PICC previously in the jugular vein, now in the SVC. | 0,0,1
The endotracheal tube is not in the right mainstem bronchus; tip 4 cm above the carina. | 0,0,1
Endotracheal tube is not in the trachea but in the esophagus. | 0,0,2
Cardiac device with leads in the right atrium and right ventricle. | 0,0,1
Right PICC and left pacemaker with leads in the right atrium and right ventricle. | 0,0,0 0,0,1
Bilateral effusions, larger on the left. | 0,0,0
Bibasilar opacities, left worse than right. | 0,0,0
Bibasilar opacities, now worse on the left. | 3,0,0
Left effusion is larger. | 3,0,0
"""


def rows(table: str) -> list[tuple[str, str]]:
    lines = table.replace("\\\n", "").strip().split("\n")
    return [(text.strip(), wanted.strip()) for text, wanted in (x.split(" |") for x in lines)]


def test_finer_findings_are_told_apart():
    wrong = {}
    for text, wanted in rows(NAMED):
        e = EXTRACTOR.extract([text])
        named = zip(e.text, e.presence.tolist(), strict=True)
        said = " ".join(dict.fromkeys("-+"[p] + name for name, p in named if p >= 0))
        if said != wanted:
            wrong[text] = said
    assert not wrong


def test_change_size_and_tip_are_of_the_finding_beside_them():
    wrong = {}
    for text, wanted in rows(SAID):
        e = EXTRACTOR.extract([text])
        columns = zip(e.presence, e.change, e.size, e.tip, strict=True)
        said = " ".join(f"{c},{s:g},{t}" for p, c, s, t in columns if p == 1)
        if said != wanted:
            wrong[text] = said
    assert not wrong


def test_doubt_is_kept_and_denials_carry_nothing():
    e = EXTRACTOR.extract(["Possible pneumonia. New left effusion. No new 3 cm mass."])
    assert [(n, int(d)) for n, d in zip(e.text, e.doubt, strict=True)] == [
        ("pneumonia", 1), ("left pleural effusion", 0), ("lung lesion", 0)]  # fmt: skip
    assert e.change.tolist() == [0, 3, 0] and e.size.tolist() == [0, 0, 0]


def test_what_is_said_survives_packing_and_is_unsaid_where_left_out():
    text = "Possible 4 cm mass, increased since the prior study."
    e = EXTRACTOR.extract([text])
    back = unpack_entities(pack_entities(e), text)
    for name in ("doubt", "change", "size", "tip"):
        assert (getattr(back, name) == getattr(e, name)).all() and len(getattr(e, name)) == len(e)
    assert (e.doubt[0], e.change[0], e.size[0]) == (1, 3, 40)
    old = {k: v for k, v in vars(e).items() if k not in ("doubt", "change", "size", "tip")}
    plain = Entities(**old)
    assert not plain.doubt.any() and not plain.change.any() and not plain.tip.any()
    assert plain.size.dtype == np.float32 and not plain.size.any()
    with pytest.raises(ValueError, match="tip holds"):
        Entities(**{**old, "tip": np.full(len(e), 3, np.int8)})


def test_no_label_depends_on_the_finer_reading():
    labels = build_labeller("rules").label(
        ["Old rib fracture.", "Rib fracture.", "Left upper lobe collapse.", "Atelectasis."]
    )
    assert (labels[0] == labels[1]).all() and (labels[2] == labels[3]).all()
    # without an observation of their own these say nothing to the labels, and not that all is well
    assert not build_labeller("rules").label(["Aortic dissection. Dislocation."]).any()
