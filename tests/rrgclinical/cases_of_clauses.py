"""More sentences as in `cases`: what cues reach over commas, asides and relative clauses."""

from __future__ import annotations

from tests.rrgclinical.cases import parse

_TEXT = """
There is bibasilar atelectasis, likely. | AT?
Edema less likely than pneumonia. | ED? PN?
Right effusion likely with atelectasis. | PE? AT+
Pneumonia, likely aspiration. | PN+
Interval development of pneumothorax, likely small. | PX+
Atelectasis is likely but pneumonia cannot be excluded. | AT? PN?
No fracture, likely degenerative change. | FX-
Left chest wall device is unchanged. | SD+
Dual chamber cardiac conduction device. | SD+
No devices. | SD-
Stable valve artifact. | SD+
Valvular calcification. |
No effusion, pneumonia cannot be excluded. | PE- PN?
No effusion, mass suspicious for malignancy. | PE- LL-
No nodule, opacity concerning for pneumonia, or effusion. | LL- LO- PN- PE-
No effusion, pneumonia, or nodule is likely. | PE- PN- LL-
No effusion, likely atelectasis. | PE- AT?
No pneumothorax, left opacity likely atelectasis. | PX- LO+ AT?
No effusion, left base opacity is likely atelectasis. | PE- LO+ AT?
No effusion, left base opacity is possible. | PE- LO?
No effusion, atelectasis is likely. | PE- AT?
No effusion and likely atelectasis. | PE- AT?
No consolidation, likely no pneumonia. | CO- PN-
No effusion, in the right clinical setting pneumonia. | PE- PN?
Cardiomegaly and widened mediastinum are stable. | CM+ EC+
Left lower lobe opacities, a combination of atelectasis and effusion, are unchanged. | LO+ AT+ PE+
Right lower lobe opacities have markedly improved, consistent with resolving pneumonia. | LO+ PN+
There is no evident pneumothorax or pleural effusion. | PX- PE-
There is no evidence of pneumothorax. Small left effusion is grossly unchanged. | PX- PE+
Left lower lobe opacity, likely a combination of atelectasis and effusion. | LO+ AT? PE?
Small left pneumothorax and left chest tube are stable. | PX+ SD+
Cardiomediastinal contours are unchanged with mild cardiomegaly. | CM+
No pulmonary edema or other evidence of cardiac decompensation. | ED-
Severe cardiomegaly is long standing. | CM+
Heavy mediastinal fat and vascular engorgement widen the mediastinum. | EC+
Lungs are grossly clear. Pleural effusion is minimal, if any. No pneumothorax. | LO- PE? PX-
Previous pulmonary edema has cleared. | ED-
Previous mild pulmonary edema has improved. | ED+
The previous large right pleural effusion has almost entirely resolved. | PE+
Right lower lobe consolidation could be atelectasis, but pneumonia is more likely. | CO+ AT? PN?
Heterogeneous opacification in the right lung could be pneumonia or asymmetric edema. | LO+ PN? ED?
Consolidation in the left lower lobe is either atelectasis or pneumonia. | CO+ AT? PN?
No lung nodules suspicious for malignancy. | LL-
No findings to suggest acute infection. | PN-
No radiographic findings suggestive of pneumonia. | PN-
There are no findings suspicious for pulmonary edema or infection. | ED- PN-
There is interval worsening of bilateral airspace opacities with air bronchograms. | LO+
New opacification of the right hemithorax with mediastinal shift to the left. | LO+ EC+
Left PICC tip projects at the cavoatrial junction, without evidence of pneumothorax. | SD+ PX-
No pneumothorax. New right PICC tip in the mid SVC. | PX- SD+
Nodules on CT are below the resolution of radiography. | LL+
The right upper lobe nodule is not clearly seen on this exam. | LL-
Bones are demineralized without acute fracture. | FX-
No compression deformity. | FX-
No acute compression fracture is identified. | FX-
There are no acute skeletal findings. |
There is mild loss of vertebral body height. |
No free intraperitoneal air. |
There is no subdiaphragmatic free air. |
Bowel gas is noted beneath the left hemidiaphragm. |
The stomach is distended. |
There is gaseous distension of bowel without free air. |
Tracheostomy tube and PEG tube in place. | SD+
Feeding tube has been advanced into the stomach. | SD+
The Dobbhoff tube is coiled in the esophagus. | SD+
The nasogastric tube is no longer seen. | SD-
Previously seen right IJ catheter is no longer present. | SD-
No pacemaker leads. | SD-
Cardiac silhouette within normal limits for portable technique. | CM-
Prominent cardiac silhouette. |
The cardiac silhouette appears prominent, though this may be due to AP technique. |
Cardiac enlargement with left ventricular configuration. | CM+
Left ventricular prominence. |
Mild left atrial enlargement. | CM+
Globular enlargement of the heart suggests pericardial effusion. | CM+
The cardiac silhouette is not significantly changed and remains enlarged. | CM+
No change in the enlarged cardiac silhouette. | CM+
The heart size is not enlarged. | CM-
There is no cardiomegaly or mediastinal widening. | CM- EC-
Normal mediastinum and hila. | EC-
The superior mediastinum is prominent but unchanged. |
Mediastinal widening, which may be related to technique. | EC+
No consolidation, but streaky atelectasis at the bases. | CO- AT+
No focal consolidation, though there is bibasilar atelectasis. | CO- AT+
Other than mild basilar atelectasis, the lungs are clear. | AT+ LO-
Aside from minor atelectasis, no focal pulmonary abnormality. | AT+ LO-
Lungs are clear except for a calcified granuloma. | LO-
Clear lungs apart from scarring. | LO-
Lungs demonstrate bibasilar atelectasis but are otherwise clear. | AT+ LO-
No consolidation, pneumothorax, or effusion. Atelectasis at the right base. | CO- PX- PE- AT+
Neither effusion nor consolidation, but mild edema. | PE- CO- ED+
Without overt edema, effusion or pneumothorax. | ED- PE- PX-
No evidence of pneumonia with persistent small left effusion. | PN- PE+
Stable exam without pneumonia. | PN-
Improved. No residual pneumonia. | PN-
1) No acute process. 2) Old rib fractures. | FX+
1. Possible small left effusion 2. No pneumothorax 3. ET tube 2 cm above carina | PE? PX- SD+
Findings could be due to atelectasis, aspiration, or early pneumonia. | AT? PN?
Findings may be secondary to atelectasis, although infection cannot be excluded. | AT? PN?
Suspected small pneumothorax on the left. | PX?
Suspicion of small left effusion. | PE?
There is concern for right lower lobe pneumonia. | PN?
There is suggestion of a small left effusion. | PE?
There appears to be a small left effusion. | PE+
There seems to be mild edema. | ED+
It is difficult to exclude a small right effusion. | PE?
An early infiltrate cannot be excluded. | LO?
Early pneumonia is not ruled out. | PN?
Early pneumonia is hard to rule out. | PN?
Cannot exclude pneumonia in the left lower lobe, but no effusion. | PN? PE-
No definite pneumonia, but early infection cannot be excluded. | PN?
No pneumothorax, though a small effusion cannot be excluded. | PX- PE?
No large effusion, small effusion cannot be excluded. | PE?
No obvious pneumothorax, but tiny one cannot be excluded. | PX?
Pneumonia cannot be excluded but is unlikely. | PN?
Mild edema cannot be excluded. | ED?
Atelectasis is most likely. | AT?
Pneumonia is the most likely diagnosis. | PN?
Pneumonia is most likely, with atelectasis less likely. | PN? AT?
Likely pneumonia. | PN?
Highly suspicious for pneumonia. | PN?
Highly suggestive of malignancy. | LL?
Pathognomonic for pneumothorax. | PX+
Indicative of edema. | ED+
Reflecting edema. | ED+
Opacities reflecting atelectasis. | LO+ AT+
Representing atelectasis or pneumonia. | AT+ PN+
The opacity represents atelectasis, not pneumonia. | LO+ AT+ PN-
Atelectasis and not pneumonia. | AT+ PN-
Not pneumonia. | PN-
Nothing to suggest pneumonia. | PN-
Pneumonia less likely. | PN?
Atelectasis, edema less likely. | AT+ ED?
Atelectasis; pneumonia is less likely. | AT+ PN-
Edema or less likely infection. | ED+ PN?
Left effusion, slightly larger, and right effusion, unchanged. | PE+
The right pneumothorax, which measured 2 cm, is now resolved. | PX-
The left effusion, previously moderate, is now small. | PE+
The opacity, which was seen on CT, is not visible. | LO-
Consolidation (left lower lobe) has cleared. | CO-
Effusion, better seen on CT, cannot be excluded. | PE?
Pneumonia, if present, is mild. | PN?
Nodule, not previously seen, is suspicious. | LL+
Cardiomegaly, pacemaker unchanged, effusion has resolved. | CM+ SD+ PE-
There is cardiomegaly, and there are effusions, which have resolved. | CM+ PE-
Edema has resolved, effusions, small, remain. | ED- PE+
Atelectasis has improved, effusion, unchanged, is small. | AT+ PE+
No change in cardiomegaly, effusion has resolved. | CM+ PE-
Pneumonia after aspiration. | PN+
No pneumothorax after biopsy. | PX-
No effusion following drainage. | PE-
Status post removal of left chest tube with no pneumothorax. | SD- PX-
Following extubation, atelectasis has increased. | AT+
No effusions after thoracentesis, small pneumothorax. | PE- PX+
No consolidation following treatment of pneumonia. | CO-
Removed lines. |
The chest tube was removed and the pneumothorax is unchanged. | SD- PX+
The catheter was removed; no pneumothorax. | SD- PX-
Sternal wires removed, heart enlarged. | CM+
Left lung removed. |
There is a likely small effusion. | PE?
The likely small effusion is unchanged. | PE?
A likely effusion is noted. | PE?
The nodule is likely a granuloma. | LL+
The opacity is likely chronic. | LO+
Cardiomegaly is likely exaggerated by technique. | CM+
The heart is likely enlarged. | CM?
The heart is likely normal. | CM-
Pneumothorax is likely resolved. | PX-
Effusions are likely small. | PE+
Consolidation is likely, and effusion is present. | CO? PE+
Is likely atelectasis. | AT?
This is very likely atelectasis. | AT?
Consolidation is very likely. | CO?
Pneumonia thought likely. | PN?
It is felt likely that this is atelectasis. | AT?
Volume loss in the right lung. |
Volume loss in the right upper lobe. | AT+
Mild volume loss. |
Left lower lobe volume loss. | AT+
No volume loss. |
There is no volume loss in the left lower lobe. | AT-
Postoperative volume loss of the left lung with effusion. | PE+
Irregular interstitial markings, unchanged. | LO+
The interstitial markings are not prominent. | LO-
No prominent interstitial markings. | LO-
Mildly prominent interstitium. | LO+
Prominent aortic knob with normal interstitial markings. | LO-
Irregular contour of the aorta. |
Thickened fissure. |
Chronic interstitial markings without edema. | LO+ ED-
Coarse calcifications of the breast. |
Coarse lung markings without consolidation. | LO+ CO-
Abnormal heart. |
Fractured sternal wire. |
Fractured sternal wire and rib fracture. | FX+
Catheter fracture is not seen. |
Old fracture of the sternum. | FX+
Breast implants with effusion. | PE+
Aortic valve replacement. | SD+
Aortic valve disease. |
Bioprosthetic mitral valve. | SD+
Atelectasis could account for the opacity. | LO+ AT?
Edema may explain these opacities. | LO+ ED?
Small effusions may be contributing to the opacity. | LO+ PE?
Heart failure could be responsible. | ED?
Overlying soft tissue may account for the opacity. | LO+
Pneumonia could cause this. | PN?
These may represent pneumonia or may be due to edema. | PN? ED?
Low lung volumes may contribute to the cardiac enlargement. | CM+
Doubtful pneumonia. | PN?
Signs of effusion are absent. | PE-
There are no signs of effusion or edema. | PE- ED-
With signs of volume overload. | ED+
Correlate with signs of infection. |
No symptoms of infection. |
Uncertain if this is a nodule. | LL?
History: pneumonia. |
Clinical history: effusion. Now resolved. |
Reason for exam: pneumothorax. |
Obstructive airway disease. |
Lung disease is obstructive. | LO+
Restrictive lung disease. | LO+
Septal occluder in place. | SD+
Density over the left shoulder. |
Nodule in the left breast. |
Mass in the left axilla, no lung nodule. | LL-
Opacity in the left upper lobe near the shoulder. | LO+
Small effusions likely. | PE?
Small effusions likely present bilaterally. | PE?
Atelectasis likely. | AT?
Likely small effusions. | PE?
Interval improvement in pulmonary edema with residual mild interstitial edema. | ED+
Interval near resolution of the left effusion. | PE+
The effusions have nearly entirely resolved. | PE+
Effusion is barely visible. | PE+
Effusions are not as large as before. | PE+
Pneumothorax is smaller but persists. | PX+
Pneumothorax is not larger. | PX+
No enlarging pneumothorax. | PX-
There is no increase in size of the pneumothorax. | PX+
Unchanged bilateral effusions, cardiomegaly, and edema. | PE+ CM+ ED+
No pneumonia, vascular congestion, or pleural effusion. | PN- PE-
No CHF, pneumonia, or effusion. | ED- PN- PE-
No acute intrathoracic process, including pneumonia. | PN-
No evidence of acute pneumonia, vascular congestion, or pleural effusion. | PN- PE-
The heart is normal in size and there is no vascular congestion or pleural effusion. | CM- PE-
The right hemidiaphragm is obscured, consistent with effusion. | PE+
Mild indistinctness of pulmonary vessels could reflect elevated venous pressure. |
Pulmonary vessels are engorged and indistinct, consistent with pulmonary edema. | ED+
Ill defined opacification at the left base could represent aspiration. | LO+ PN?
Streaks of atelectasis at the bases. | AT+
Mild atelectatic streaks. | AT+
There is a poor definition of the left hemidiaphragm, suggestive of atelectasis. | AT?
The left hemidiaphragm is not well seen, suggesting volume loss in the left lower lobe. | AT?
Mediastinal drains have been removed. | SD-
Swan-Ganz catheter tip is in the right pulmonary artery. | SD+
The endotracheal tube has been removed; the right IJ catheter remains. | SD+
After removal of chest tube, there is no pneumothorax. | SD- PX-
Following chest tube removal, there is a tiny pneumothorax. | SD- PX+
There has been placement of a pacer with leads in the right atrium. | SD+
Hardware in the cervical spine. | SD+
Metallic hardware projects over the left clavicle. | SD+
Surgical plate and screws in the clavicle. | SD+
Left humeral head prosthesis. | SD+
There is a vascular catheter in the right neck. | SD+
An esophageal stent is present. | SD+
Aortic stent graft is unchanged. | SD+
Watchman device. | SD+
Nerve stimulator is in place. | SD+
EKG leads overlie the chest. | SD+
No lines or tubes. | SD-
Bibasilar opacities, which may represent atelectasis or aspiration. | LO+ AT? PN?
Bibasilar opacities, which are consistent with atelectasis. | LO+ AT+
Left effusion, which is small, and right effusion, which has resolved. | PE+
Right lower lobe consolidation, which has improved. | CO+
Cardiomegaly, which is stable. | CM+
A nodule, which is not seen on the lateral view. | LL+
A right pneumothorax, which is not definitely present. | PX-
Effusion, which has resolved, with persistent atelectasis. | PE- AT+
An opacity which is likely atelectasis. | LO+ AT?
The findings, which suggest edema, are new. | ED?
Right upper lobe opacity, unchanged since prior, likely scarring. | LO+
The effusion, if anything, is larger. | PE+
Mass effect on the trachea. |
Tracheal deviation to the right due to a thyroid goiter. |
Right hilar fullness, possibly adenopathy. |
Bilateral hilar lymphadenopathy consistent with sarcoidosis. |
No hilar mass. | LL-
Large hiatal hernia with adjacent atelectasis. | AT+
Elevated right hemidiaphragm with adjacent linear atelectasis. | AT+
Gynecomastia. |
Nipple shadows are noted. |
Healed granulomatous disease. |
Apical capping. | PO+
Calcified pleural plaques are noted. | PO+
Fibrothorax on the left. | PO+
No pleural thickening or effusion. | PO- PE-
No pleural effusion or thickening. | PE- PO-
Pleural spaces are clear without effusion. | PE-
Thickening of the pleura. | PO+
Pleural-based opacity in the right mid lung. | PO+ LO+
Pleural based mass. | PO+ LL+
The pleura is thickened. | PO+
""".strip()


def clause_cases() -> list[tuple[str, dict[int, int]]]:
    """(sentence, {column: class id}) of every case."""
    return parse(_TEXT)
