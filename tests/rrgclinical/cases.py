"""Hand-written sentences with the class ids a radiologist reads in them.

Each line is `sentence | labels`; labels are `Column sign`, + positive, - negative, ? uncertain.
An observation not named is blank. No Finding follows from the rest and is not written.
"""

from __future__ import annotations

COLUMNS = {
    "EC": 0, "CM": 1, "LO": 2, "LL": 3, "ED": 4, "CO": 5, "PN": 6, "AT": 7, "PX": 8, "PE": 9,
    "PO": 10, "FX": 11, "SD": 12,
}  # fmt: skip
SIGNS = {"+": 1, "-": 2, "?": 3}

_TEXT = """
Heart size is normal. | CM-
The heart is normal in size. | CM-
Normal heart size. | CM-
Heart size within normal limits. | CM-
Cardiac silhouette is unremarkable. | CM-
The heart is not enlarged. | CM-
Cardiomegaly. | CM+
There is stable cardiomegaly. | CM+
Mildly enlarged heart. | CM+
The heart is mildly enlarged. | CM+
The heart size is moderately enlarged. | CM+
Enlargement of the cardiac silhouette. | CM+
The heart is large. | CM+
No cardiomegaly. | CM-
Borderline heart size. | CM?
The cardiac silhouette is borderline enlarged. | CM?
Heart size is at the upper limits of normal. | CM-
Possible cardiomegaly. | CM?
Heart size and mediastinal contours are normal. | CM- EC-
The cardiomediastinal silhouette is within normal limits. | CM- EC-
The cardiomediastinal silhouette is enlarged. | CM+ EC+
The mediastinum is widened. | EC+
No mediastinal widening. | EC-
Mediastinal contours are unremarkable. | EC-
The heart and lungs are normal. | CM- LO-
The lungs are clear. | LO-
Lungs are clear bilaterally. | LO-
Clear lungs. | LO-
Both lungs are clear and expanded. | LO-
The lungs are clear without focal consolidation. | LO- CO-
Lungs are clear of focal airspace disease. | LO-
Lungs are grossly clear of focal airspace disease, pneumothorax, or effusion. | LO- PX- PE-
The lungs are free of infiltrate. | LO-
Left lower lobe opacity. | LO+
Hazy opacity in the right base. | LO+
Patchy airspace disease in the lingula. | LO+
No focal airspace disease. | LO-
Increased interstitial markings. | LO+
Diffuse reticular opacities are present. | LO+
There is no infiltrate. | LO-
No focal consolidation, pleural effusion, or pneumothorax. | CO- PE- PX-
No focal consolidation, pleural effusion or pneumothorax is seen. | CO- PE- PX-
No pneumothorax or pleural effusion. | PX- PE-
There is no pleural effusion and no pneumothorax. | PE- PX-
There is neither pleural effusion nor pneumothorax. | PE- PX-
No evidence of pneumonia. | PN-
There is no evidence of acute pneumonia or edema. | PN- ED-
Negative for pneumothorax. | PX-
The lungs are clear without evidence of effusion. | LO- PE-
Absence of pneumothorax. | PX-
Pneumothorax is not seen. | PX-
Pleural effusion is not identified. | PE-
Pneumothorax, effusion, or consolidation is not seen. | PX- PE- CO-
The effusion has resolved. | PE-
Resolved right pleural effusion. | PE-
Interval resolution of the pneumothorax. | PX-
The previously seen pneumothorax is no longer visible. | PX-
There is no longer any effusion. | PE-
Pneumonia is unlikely. | PN-
Pneumothorax has been ruled out. | PX-
No change in the effusion. | PE+
No significant interval change in the left pleural effusion. | PE+
The pneumothorax is not significantly changed. | PX+
Pleural effusion is unchanged. | PE+
The effusion has decreased compared to the prior study. | PE+
Persistent left lower lobe atelectasis as compared to prior. | AT+
Bibasilar atelectasis. | AT+
Streaky bibasilar opacities compatible with atelectasis. | LO+ AT+
Right middle lobe collapse. | AT+
No atelectasis. | AT-
Small left pleural effusion. | PE+
Small bilateral pleural effusions with adjacent atelectasis. | PE+ AT+
Large right hydropneumothorax. | PX+
Tiny left apical pneumothorax. | PX+
Loculated pleural fluid on the right. | PE+
Blunting of the costophrenic angle. |
Costophrenic angles are sharp. | PE-
The pleural spaces are clear. | PE-
Pleural thickening at the left apex. | PO+
Biapical pleural-parenchymal scarring. | PO+
No pleural thickening. | PO-
Pulmonary edema. | ED+
Mild interstitial edema. | ED+
Findings consistent with congestive heart failure. | ED+
No pulmonary edema. | ED-
No overt edema is present. | ED-
Left lower lobe consolidation. | CO+
Right lower lobe pneumonia. | PN+
Findings are compatible with pneumonia. | PN+
Pulmonary nodule in the right upper lobe. | LL+
Calcified nodule in the left lung. |
Spiculated mass in the left upper lobe. | LL+
No pulmonary nodules or masses. | LL-
Nodular opacity in the right upper lobe. | LO+ LL?
Calcified granuloma in the right lung. |
Healed right rib fractures. | FX+
No acute fracture. | FX-
No rib fracture is identified. | FX-
Compression deformity of T12. | FX+
Left-sided pacemaker with leads in the right ventricle. | SD+
Right PICC line tip in the SVC. | SD+
Endotracheal tube has been removed. | SD-
Endotracheal tube in good position. | SD+
No support devices. | SD-
Pneumonia cannot be excluded. | PN?
A small effusion is not excluded. | PE?
Cannot exclude a small pneumothorax. | PX?
Difficult to exclude underlying pneumonia. | PN?
Possible left effusion. | PE?
Probable left lower lobe pneumonia. | PN?
Questionable nodule in the left lung. | LL?
Findings suspicious for pneumonia. | PN?
Findings concerning for edema. | ED?
Opacity which may represent pneumonia. | LO+ PN?
Opacity may represent atelectasis or pneumonia. | LO+ AT? PN?
Opacity that could be secondary to atelectasis. | LO+ AT?
Atelectasis versus pneumonia. | AT? PN?
Left basilar opacity, atelectasis versus infiltrate. | LO+ AT?
There may also be a small effusion. | PE?
A right effusion is suspected. | PE?
Pneumonia should be considered in the appropriate clinical setting. | PN?
No opacity to suggest pneumonia. | LO- PN-
No findings suspicious for malignancy. | LL-
No effusion, stable cardiomegaly. | PE- CM+
No pneumothorax, but there is a small effusion. | PX- PE+
Cardiomegaly without pulmonary edema. | CM+ ED-
Stable cardiomegaly, no effusion. | CM+ PE-
There is cardiomegaly; no effusion is seen. | CM+ PE-
No effusion; there is cardiomegaly. | PE- CM+
No pneumothorax; small left effusion. | PX- PE+
Although the heart is enlarged, there is no edema. | CM+ ED-
No pneumothorax, and the heart is enlarged. | PX- CM+
Except for a small effusion, the lungs are clear. | PE+ LO-
No acute disease other than a small effusion. | PE+
Rather than pneumonia, this is atelectasis. | PN- AT+
History of pneumonia. |
History of CHF, no edema. | ED-
Status post treatment for pneumonia. |
Evaluate for pneumonia. |
Clinical correlation for infection is recommended. |
There is no mass effect. |
Pericardial effusion. |
Soft tissue edema. |
Degenerative changes of the thoracic spine. |
The lungs are hyperinflated. |
No acute cardiopulmonary abnormality. |
There is no pneumothorax or large pleural effusion. | PX- PE-
Right pleural effusion has increased and is now moderate. | PE+
Left effusion is smaller, right effusion has resolved. | PE+
Interval improvement in bibasilar atelectasis. | AT+
Interval removal of the chest tube without pneumothorax. | SD- PX-
Interval chest tube removal. | SD-
Tip of the endotracheal tube is 4 cm above the carina. | SD+
Lung volumes are low, which accentuates the heart size. |
Low lung volumes with bronchovascular crowding. |
Cardiomediastinal silhouette is stable. |
Heart size is stable. |
Opacity likely reflects atelectasis, although pneumonia cannot be excluded. | LO+ AT? PN?
No definite focal consolidation is seen. | CO-
Lungs are well expanded and clear. | LO-
There is no evidence of free air beneath the diaphragm. |
The right costophrenic angle is blunted. |
Mild prominence of the pulmonary vasculature without frank edema. | ED-
Pulmonary vascular congestion. |
No effusion or pneumothorax. Heart is top normal in size. | PE- PX- CM-
Bilateral pleural effusions, left greater than right. | PE+
There is a right pleural effusion but no left pleural effusion. | PE+
Unchanged position of the right internal jugular catheter. | SD+
No new focal consolidation. | CO-
No interval change in moderate cardiomegaly. | CM+
Without evidence of pneumothorax or pleural effusion, the lungs are clear. | PX- PE- LO-
Right lower lobe opacity, not significantly changed, may reflect atelectasis. | LO+ AT?
Given the clinical history, pneumonia is possible. | PN?
Concern for developing pneumonia. | PN?
No focal opacity concerning for pneumonia. | LO- PN-
Compared with prior, there is new right lower lobe consolidation. | CO+
In comparison with the previous study, there is little change in the bilateral effusions. | PE+
Resolving pneumonia. | PN+
Improved but persistent edema. | ED+
Pulmonary edema has improved. | ED+
Pulmonary edema has nearly resolved. | ED+
Previously noted right lower lobe opacity has cleared. | LO-
No effusion, pneumothorax, or focal consolidation, and the heart is normal. | PE- PX- CO- CM-
No acute osseous abnormality. |
No displaced rib fractures. | FX-
Old left clavicle fracture. | FX+
Nasogastric tube courses below the diaphragm. | SD+
There is no evidence for pneumonia. | PN-
Lungs are hyperexpanded but clear. | LO-
Lungs are hyperexpanded and clear. | LO-
No significant pleural effusion. | PE-
No significant change in cardiomegaly. | CM+
Without significant interval change in the right effusion. | PE+
No residual pneumothorax. | PX-
Pneumothorax: None. | PX-
Pleural effusion: absent. | PE-
Lungs: Left lower lobe consolidation. | CO+
There is no focal air space opacity. | LO-
The lungs are without consolidation. | CO-
The trachea is midline, the lungs are clear, and there is no effusion. | LO- PE-
Left PICC terminates in the SVC, no pneumothorax. | SD+ PX-
Enlarged cardiac silhouette is again seen, with no effusion. | CM+ PE-
Interstitial markings are increased. | LO+
Mediastinal and hilar contours are normal. | EC-
Cardiac, mediastinal and hilar contours are within normal limits. | CM- EC-
The cardiac and mediastinal silhouettes are unremarkable. | CM- EC-
The aorta is calcified and tortuous. The cardiac silhouette is not enlarged. | CM-
Heart size cannot be evaluated. |
Heart size is difficult to assess due to effusion. | PE+
Underlying consolidation cannot be excluded given the effusion. | CO? PE+
No focal consolidation or evidence of pulmonary edema. | CO- ED-
There are no focal consolidations, pleural effusions, or pneumothoraces. | CO- PE- PX-
Hazy opacities, right more than left, may be edema versus multifocal pneumonia. | LO+ ED? PN?
The opacity seen previously in the right lung has resolved. | LO-
The previously identified effusion is not seen on this exam. | PE-
The radiograph does not demonstrate pneumothorax. | PX-
Pneumonia is not excluded. | PN?
Infection would be difficult to exclude. | PN?
Increased opacity at the right base consistent with effusion and atelectasis. | LO+ PE+ AT+
Tubes and lines are unchanged. | SD+
Multiple bilateral pulmonary nodules, consistent with metastatic disease. | LL+
The heart, mediastinum and hila are normal. | CM- EC-
Upper limits of normal heart size. | CM-
The heart is not significantly enlarged. | CM-
No enlargement of the cardiac silhouette. | CM-
No cardiac enlargement. | CM-
Cardiac size is increased. | CM+
Pneumothorax has not developed. | PX-
There is no sign of a pneumothorax. | PX-
No radiographic evidence of pneumonia. | PN-
The lungs show no consolidation. | CO-
Both costophrenic angles are clear. | PE-
No pleural abnormality. | PO-
Small left effusion, unchanged, and no pneumothorax. | PE+ PX-
The left effusion is gone. | PE-
Left lung base atelectasis, less likely pneumonia. | AT+ PN?
Cardiomegaly is not present. | CM-
Neither consolidation nor edema is present. | CO- ED-
Consolidation is absent. | CO-
Pneumonia or edema cannot be excluded. | PN? ED?
Question of a small pneumothorax. | PX?
Stable right apical pneumothorax despite chest tube. | PX+ SD+
The left lower lobe is collapsed. | AT+
Consolidated left lower lobe. | CO+
Fractured right clavicle. | FX+
Cardiac pacemaker is in normal position. | SD+
Opacity that may be consistent with pneumonia. | LO+ PN?
No opacity consistent with pneumonia. | LO- PN-
Possible atelectasis with small effusion. | AT? PE+
Status post valve replacement. | SD+
External cardiac monitor leads overlie the chest. | SD+
Fissural thickening. | PO+
Borderline cardiomegaly. | CM?
Borderline heart size and a small effusion. | CM? PE+
Stable enlarged heart, stable mediastinal contours. | CM+
Scarring from prior tuberculous infection. |
Correlate for signs or symptoms of infection. |
Vascular congestive changes. |
In the appropriate clinical setting, this is compatible with pneumonia. | PN?
Pulmonary edema is difficult to entirely exclude. | ED?
RLL opacity, PNA not excluded. | LO+ PN?
Opacified left hemithorax. | LO+
? pneumonia | PN?
XXXX right-sided effusion, XXXX increased from prior. | PE+
no focal consolidation , pleural effusion , or pneumothorax . | CO- PE- PX-
the heart is normal in size . | CM-
NO PNEUMOTHORAX OR EFFUSION. | PX- PE-
1. Cardiomegaly. 2. No effusion. | CM+ PE-
Heart: Normal size. Lungs: Clear. | CM- LO-
""".strip()


def cases() -> list[tuple[str, dict[int, int]]]:
    """(sentence, {column: class id}) of every case."""
    return parse(_TEXT)


def parse(text: str) -> list[tuple[str, dict[int, int]]]:
    """(sentence, {column: class id}) of every line."""
    parsed = []
    for line in text.splitlines():
        sentence, _, labels = line.partition(" |")
        wanted = {COLUMNS[item[:2]]: SIGNS[item[2]] for item in labels.split()}
        parsed.append((sentence, wanted))
    return parsed
