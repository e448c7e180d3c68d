"""More sentences as in `cases`: rarer words of dictated reports, each in several settings."""

from __future__ import annotations

from tests.rrgclinical.cases import parse

_TEXT = """
Heart size is above normal limits. | CM+
Heart size exceeds normal limits. | CM+
Cardiac silhouette is larger than normal. | CM+
The heart is slightly above the upper limits of normal. | CM+
The heart is greater than normal in size. | CM+
The aorta is larger than normal, the heart is not. |
Heart size has normalized. | CM-
The contours of the heart are normal. | CM-
The contour of the heart is enlarged. | CM+
Size of the cardiac silhouette is enlarged. | CM+
The width of the mediastinum is normal. | EC-
The transverse diameter of the heart is increased. | CM+
Interval increase in the size of the cardiac silhouette. | CM+
Interval enlargement in the diameter of the heart. | CM+
The heart, though difficult to evaluate, is enlarged. | CM+
The heart size, which is hard to assess, is probably normal. | CM-
The heart, great vessels, and mediastinum are normal. | CM- EC-
Visualized portions of the lungs are clear. | LO-
The rest of the left lung is clear. | LO-
The imaged part of the lungs shows consolidation. | CO+
Fluid in the left minor fissure. | PE+
Fluid within both major fissures. | PE+
Fluid is present in the right pleural space. | PE+
Fluid is seen tracking along the fissure. | PE+
There is interlobar fluid. | PE+
Fluid in the posterior costophrenic sulci. | PE+
No fluid within the major fissures or the pleural spaces. | PE-
No pleural-based fluid collection. | PE-
Loss of volume in the right upper lobe. | AT+
No loss of volume within the lower lobe. | AT-
Plate-like opacities at both bases. | AT+
Disc-like atelectasis in the lingula. | AT+
Perihilar haze. | LO+
Pneumonic consolidation in the lingula. | PN+ CO+
No evidence of decompensation. | ED-
Edema of the chest wall. |
Edema in the left arm, no pulmonary edema. | ED-
Small elbow effusion. |
LV enlargement. | CM+
There is a lesion in the left lung. | LL+
Right upper lobe lesion. | LL+
Cavitary right upper lobe lesion. | LL+
No lesion within the right lower lobe. | LL-
A lesion of the left rib. |
Cystic lesion in the right lung. |
Osseous metastases. |
Hepatic metastasis, no pulmonary nodule. | LL-
Metastatic disease of the spine. |
Pulmonary and osseous metastases. | LL+
Post-infectious scarring. |
Scarring post pneumonia. |
NGT and ETT in place. | SD+
CVC tip in the right atrium. | SD+
The OGT has been removed. | SD-
Harrington rods and prior TAVR. | SD+
The chest tube has been pulled. | SD-
Left chest tube was discontinued, no pneumothorax. | SD- PX-
The PICC has been pulled back. | SD+
No pneumothorax status post right IJ placement. | PX- SD+
No pneumothorax s/p chest tube placement. | PX- SD+
Small effusion status post thoracentesis has resolved. | PE-
No evidence of interval resolution of the consolidation. | CO+
No evidence for clearing of the edema. | ED+
No evidence of interval growth of the nodule. | LL+
Follow-up for pleural effusion. |
Peribronchial thickening, viral process versus reactive airways disease. | LO+
Left base opacity, vascular structure versus nodule. | LO+ LL?
Left base opacity, scar versus atelectasis. | LO+ AT?
Increased interstitial markings, chronic versus mild edema. | LO+ ED?
Nodular opacity in the right base, nipple shadow versus nodule. | LO+ LL?
Vertebral collapse at T12, no lobar collapse. | AT-
Collapse of the vertebral body. |
Opacity in the left midlung which was not present in 2009. | LO+
A nodule that was not seen two years ago. | LL+
A pneumothorax, which is not seen on this exam. | PX-
The findings are not incompatible with pneumonia. | PN?
Whether this is pneumonia or atelectasis is uncertain. | PN? AT?
If this is pneumonia, it is mild. |
Small effusion with or without consolidation. | PE+ CO?
The study is nondiagnostic for pneumothorax. |
The apices are not well evaluated for nodules. |
Atelectasis, left base, versus pneumonia. | AT? PN?
Atelectasis, left base versus pneumonia. | AT? PN?
This 80-year-old woman has bilateral effusions. | PE+
54-year-old man with cough; there is a left effusion. | PE+
54 year old man with cough, there is now a left effusion. | PE+
65-year-old man with pneumonia and pleural effusion. |
60 year old man was found with pneumonia. |
History: has pneumonia and effusion. |
History: cough, there is concern for pneumonia. |
Indication: is there pneumonia? |
Reason for exam: was there a pneumothorax? |
Consolidation with air bronchograms versus mass. | LL? CO?
Opacity with indistinct margins versus nodule. | LO? LL?
Pleural effusion with loculation versus pleural thickening. | PE? PO?
Right PICC with tip in the right atrium versus SVC. | SD+
Hepatic decompensation. |
Respiratory decompensation with clear lungs. | LO-
A right chest port terminates in the right atrium. | SD+
Left chest port tip in SVC. | SD+
The chest tube on the left has been taken out. | SD-
Previously noted nodule is a nipple shadow. | LL-
No large effusion, but a small one cannot be ruled out. | PE?
The right-sided effusion is gone, and the left one is smaller. | PE+
Effusion is absent on the right but present on the left. | PE+
Airspace opacities in the right lung have cleared, those on the left persist. | LO+
Right effusion has resolved but the left persists. | PE+
Right effusion has resolved and the left is unchanged. | PE+
Left effusion has resolved, while the right has increased. | PE+
No effusion on the right but a small one on the left. | PE+
No right effusion; a small one on the left. | PE+
No large pneumothorax, but a small one is present. | PX+
Edema has cleared on the right but persists on the left. | ED+
The pneumothorax has resolved on the right and is stable on the left. | PX+
The consolidation on the right has resolved, but the one on the left has not. | CO+
No new opacities, and the old ones are stable. | LO+
No effusion, left or right. | PE-
No pneumothorax on the right and left is seen. | PX-
No effusion on the right and none on the left. | PE-
No effusion seen on the right, and on the left it is not seen either. | PE-
Pneumothorax has resolved and the left hilum is unchanged. | PX-
Effusion has resolved and the left shoulder is unchanged. | PE-
Effusion has resolved and hardware is seen on the left. | PE- SD+
No effusion, but the left costophrenic angle is blunted. | PE-
No pneumothorax, but one view is not enough. | PX-
No pneumothorax, and stable left hilar calcification. | PX-
No fractures except those seen previously. | FX-
The effusions have resolved, the left is clear. | PE-
""".strip()


def dictation_cases() -> list[tuple[str, dict[int, int]]]:
    """(sentence, {column: class id}) of every case."""
    return parse(_TEXT)
