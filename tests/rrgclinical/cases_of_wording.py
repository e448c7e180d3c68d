"""More sentences as in `cases`, in the wordings of intensive care and of dictated reports."""

from __future__ import annotations

from tests.rrgclinical.cases import parse

_TEXT = """
As compared to the previous radiograph, the patient has received a nasogastric tube. | SD+
There is no evidence of complications, notably no pneumothorax. | PX-
The monitoring and support devices are in constant position. | SD+
Monitoring and support devices remain in place. | SD+
Low lung volumes, with crowding of the bronchovascular structures at the lung bases. |
The lung volumes are low. Borderline size of the cardiac silhouette. | CM?
Normal size of the cardiac silhouette. Normal hilar and mediastinal structures. | CM- EC-
No pneumonia, no pulmonary edema, no pleural effusions. | PN- ED- PE-
Imaged osseous structures are intact. No free air below the right hemidiaphragm is seen. |
AICD is again seen with leads extending to the region of the right atrium and right ventricle. | SD+
Dialysis catheter tips are in the right atrium. | SD+
The patient has been extubated. |
The patient has been extubated and the nasogastric tube removed. | SD-
Interval extubation. Bibasilar atelectasis has slightly increased. | AT+
Swan-Ganz catheter has been removed. | SD-
Right internal jugular line has been withdrawn; tip is now in the mid SVC. | SD+
In the appropriate clinical setting, superimposed pneumonia would have to be considered. | PN?
Engorgement of indistinct pulmonary vessels is consistent with elevated pulmonary venous pressure. |
Heart size is top-normal. | CM-
Small right pleural effusion is likely. | PE?
There is likely a small left pleural effusion. | PE?
A trace left effusion would be difficult to exclude. | PE?
Trace right pleural effusion may be present. | PE?
Blunting of the posterior costophrenic angles suggests trace pleural effusions. | PE?
Blunting of the left costophrenic angle, likely due to a small effusion. | PE?
Streaky bibasilar opacities are most compatible with atelectasis. | LO+ AT+
Interval resolution of previously seen right pneumothorax. | PX-
A right apical pneumothorax is tiny, if present. | PX?
Small right apical pneumothorax, slightly smaller than yesterday. | PX+
Linear lucency at the right apex may represent a skin fold rather than pneumothorax. | PX-
No appreciable pneumothorax. | PX-
There is no pneumothorax or appreciable pleural effusion. | PX- PE-
No pneumothorax or pleural effusion, the heart is mildly enlarged. | PX- PE- CM+
There is no large pleural effusion, although trace effusions are difficult to exclude. | PE?
Status post esophagectomy with gastric pull-up. |
Patient is status post right upper lobectomy with expected volume loss. |
Status post left pneumonectomy with complete opacification of the left hemithorax. | LO+
Chain sutures are seen in the left upper lobe, consistent with prior wedge resection. |
Post-surgical changes in the right hemithorax are stable. |
Compression deformity of a mid thoracic vertebral body is of indeterminate age. | FX+
Loss of height of a lower thoracic vertebral body. |
Mild anterior wedging of a mid thoracic vertebral body. |
Mild wedge deformity of T12, unchanged. |
Deformity of the left clavicle, likely from prior fracture. | FX?
Calcified granuloma in the right upper lobe is unchanged. |
Nodular opacities projecting over both lower lungs likely represent nipple shadows. | LO+ LL?
Large right hilar mass with postobstructive collapse of the right upper lobe. | LL+ AT+
Left upper lobe mass is again demonstrated, better assessed on recent CT. | LL+
History of lung cancer status post resection. |
Assess for interval change in pneumothorax. |
Biapical pleural thickening and scarring is unchanged. | PO+
Pleural plaques are seen. | PO+
Unchanged scarring in the left costophrenic angle, no effusion. | PE-
Diffuse interstitial abnormality likely represents chronic fibrosis. | LO+
Emphysema is severe. No superimposed pneumonia. | PN-
Mild elevation of the right hemidiaphragm. |
Right hemidiaphragm is elevated with adjacent atelectasis. | AT+
Bibasilar atelectasis, right greater than left, is unchanged. | AT+
The right lung is well expanded and clear. | LO-
The lungs are clear without consolidation, effusion or edema. | LO- CO- PE- ED-
There are no focal consolidations concerning for pneumonia. | CO- PN-
No focal opacity to suggest pneumonia is seen. | LO- PN-
There is no evidence of pulmonary vascular congestion. |
Cardiac and mediastinal silhouettes are stable with the cardiac silhouette mildly enlarged. | CM+
The cardiac silhouette size is mildly enlarged but unchanged. | CM+
The heart continues to be enlarged. | CM+
The mediastinum is not widened. | EC-
Right paratracheal opacity is likely due to tortuous vessels. | LO+
Moderate right and small left pleural effusions are stable. | PE+
Right pleural effusion has been drained. | PE-
There has been no interval development of pleural effusion. | PE-
Left chest tube has been removed, and there is a new small left pneumothorax. | SD- PX+
Left PICC has been repositioned. | SD+
IABP is in appropriate position. | SD+
Left-sided AICD device is noted with leads in unchanged positions. | SD+
Endotracheal and nasogastric tubes have been removed. | SD-
Pacemaker leads are intact without evidence of lead fracture. | SD+
Mitral valve annular calcification is present. |
Coronary stents are noted. | SD+
IVC filter is noted. | SD+
1. Right lower lobe opacity compatible with pneumonia 2. No pulmonary edema | LO+ PN+ ED-
No pneumothroax. | PX-
Atelectesis at the left base. | AT+
Left lower lobe consoldation. | CO+
No evidence of pnuemonia. | PN-
Cervical ribs are incidentally noted. |
Prominent epicardial fat pad mimics right middle lobe opacity. |
Eventration of the right hemidiaphragm. |
Aeration of the right lung has improved. |
Asymmetric pulmonary edema or, less likely, multifocal pneumonia. | ED+ PN?
This could be either pneumonia or atelectasis. | PN? AT?
Aspiration is a possibility. | PN?
Possibility of superimposed infection cannot be excluded. | PN?
It is unclear whether this represents atelectasis or pneumonia. | AT? PN?
No definite signs of pneumonia. | PN-
Neither pneumonia nor edema. | PN- ED-
If clinical concern for pneumonia persists, CT could be performed. |
Recommend follow-up chest radiograph in 6 weeks to document resolution of pneumonia. |
Nondisplaced fracture of the right seventh rib cannot be excluded. | FX?
Subtle lucency through the left ninth rib may represent a fracture. | FX?
Widespread parenchymal opacities have cleared. | LO-
Substantial enlargement of the cardiac silhouette with elevated pulmonary venous pressure. | CM+
Both lungs are fully expanded and clear. | LO-
Apparent cardiomegaly is likely due to low lung volumes and AP technique. | CM?
The cardiac silhouette is likely accentuated by low lung volumes. |
Nodule has been stable since 2012 and is likely benign. | LL+
No radiographic evidence of intrathoracic metastatic disease. | LL-
There is a hiatal hernia. |
Pneumomediastinum has resolved. No pneumothorax. | PX-
Left hydropneumothorax is unchanged. | PX+
Bronchiectasis in the lower lobes with bronchial wall thickening. | LO+
Cavitary lesion in the left upper lobe. | LL+
Right upper lobe cavitation. | LL+
Rounded density at the left base likely reflects rounded atelectasis. | LO+ LL? AT?
No new parenchymal infiltrates. | LO-
No evidence of acute pulmonary infiltrate. | LO-
Pneumonia is not clearly excluded. | PN?
Pneumonia felt unlikely. | PN-
Pneumonia is considered less likely given the absence of fever. | PN-
No convincing signs of failure. | ED-
No overt CHF. | ED-
Mild decompensated congestive heart failure. | ED+
The effusion, seen on the prior study, has resolved. | PE-
The nodule (seen on CT) is not visualized. | LL-
The right pleural effusion, previously described, is no longer seen. | PE-
Right effusion, cardiac border not seen. | PE+
Small effusion, the diaphragm is not seen. | PE+
This may represent atelectasis, small effusion, or pneumonia. | AT? PE? PN?
May represent atelectasis with superimposed pneumonia. | AT? PN?
Possible pneumonia, small effusion. | PN? PE+
Scattered chronic appearing irregular interstitial markings. | LO+
Accentuated interstitial markings. | LO+
The interstitial markings are coarse. | LO+
The interstitial markings are accentuated. | LO+
Chronic appearing right basilar interstitial markings. | LO+
Interstitial markings are normal. | LO-
The heart, pulmonary vessels and mediastinum are within normal limits. | CM- EC-
Heart, lungs, and mediastinum are normal. | CM- LO- EC-
Left shoulder density. |
There is a density in the soft tissues of the neck. |
No displaced fractures. Sclerotic density in the humerus. | FX-
There is an effusion, which has not changed. | PE+
There is a tiny effusion, if any. | PE?
Small, if any, pleural effusion. | PE?
Pneumonia is very likely. | PN?
Pneumonia is not likely. | PN-
Pneumonia is less likely. | PN-
A small effusion is likely, no pneumothorax. | PE? PX-
A small effusion is likely present. | PE?
Left base opacity is likely atelectasis. | LO+ AT?
Opacities are most likely vascular. | LO+
The effusions are likely and atelectasis is unchanged. | PE? AT+
There are signs of pulmonary edema. | ED+
No signs of heart failure. | ED-
No clinical signs of infection. | PN-
Opacity compatible with pneumonia in the appropriate clinical setting. | LO+ PN?
Consolidation could be pneumonia in the correct clinical context. | CO+ PN?
Chest tube since removed. | SD-
The NG tube was removed. | SD-
Aortic valve prosthesis. | SD+
Aortic valve calcification. |
Mitral valve replacement. | SD+
Fracture of the sternal wire. |
Sternal wire fracture. |
The lungs are clear of consolidation or pulmonary vascular congestion. | CO-
There is no pneumothorax, vascular congestion, or pleural effusion. | PX- PE-
The small right effusion has decreased in size, with minimal residual. | PE+
Left effusion has largely resolved. | PE+
Nearly resolved right pleural effusion. | PE+
Almost complete resolution of the edema. | ED+
Pulmonary edema has cleared substantially. | ED+
Pneumonia is resolved. | PN-
Interval clearance of right lower lobe consolidation. | CO-
No recurrent pneumothorax. | PX-
No reaccumulation of the pleural effusion. | PE-
Pleural effusion has not reaccumulated. | PE-
There is little if any pleural effusion. | PE?
There is little if any residual pneumothorax. | PX?
Right pneumothorax, if any, is very small. | PX?
Question small left effusion. | PE?
Small left effusion cannot be entirely excluded. | PE?
Cannot rule out a small effusion. | PE?
I cannot exclude a small left effusion. | PE?
A component of atelectasis is possible. | AT?
A component of edema is likely. | ED?
An element of pulmonary edema may be present. | ED?
There is probably a small effusion on the left. | PE?
Presumed atelectasis at the right base. | AT?
Presumably atelectasis. | AT?
Opacity most consistent with atelectasis. | LO+ AT+
Opacity that most likely represents atelectasis. | LO+ AT?
Increased opacification in the left lower lobe, which is worrisome for pneumonia. | LO+ PN?
Bilateral opacities, worrisome for aspiration pneumonia. | LO+ PN?
New right infrahilar opacity raises concern for infection. | LO+ PN?
Opacity in the lingula, pneumonia versus atelectasis. | LO+ PN? AT?
Right basilar opacity, atelectasis vs pneumonia. | LO+ AT? PN?
Pneumonia vs. aspiration. | PN?
Differential includes atelectasis or pneumonia. | AT? PN?
Infection must be excluded. | PN?
Superimposed pneumonia should be considered. | PN?
Superimposed infection is difficult to exclude. | PN?
Infectious process is not excluded. | PN?
Infection is in the differential. | PN?
Atelectasis is favored over pneumonia. | AT? PN?
Atelectasis, less likely pneumonia. | AT+ PN?
Likely atelectasis, though pneumonia cannot be excluded. | AT? PN?
Likely atelectasis; however, in the proper clinical setting, pneumonia is possible. | AT? PN?
Doubt pneumonia. | PN?
Pneumonia doubtful. | PN?
There is no evidence to suggest pneumonia. | PN-
No evidence for active or acute pneumonia. | PN-
There is no suspicious nodule. | LL-
No new nodules or consolidations. | LL- CO-
No focal pneumonia or overt edema. | PN- ED-
No frank pulmonary edema. | ED-
No radiopaque foreign body. |
No consolidation or effusion is identified; there is no pneumothorax. | CO- PE- PX-
No pneumothorax is identified on this supine radiograph. | PX-
Supine positioning limits evaluation for pneumothorax. |
Limited assessment for pneumothorax on this supine film. |
No definite pneumothorax on this supine study, though evaluation is limited. | PX-
The apices are obscured by the chin, limiting assessment for pneumothorax. |
Assessment for subtle pneumonia is limited. |
There is no large pneumothorax, though the apices are not included. | PX-
The cardiac silhouette is partially obscured by effusion. | PE+
Heart size is normal, allowing for low lung volumes. | CM-
Heart size cannot be assessed because of adjacent consolidation. | CO+
Heart is upper normal in size. | CM-
Heart is slightly enlarged. | CM+
Heart is not well seen. |
Heart is mildly to moderately enlarged. | CM+
The heart is of normal size. | CM-
Heart size remains at the upper limits of normal. | CM-
Mild-to-moderate cardiomegaly persists. | CM+
The cardiac silhouette is top normal to mildly enlarged. | CM+
The cardiomediastinal silhouette is stable and within normal limits. | CM- EC-
The cardiomediastinal and hilar contours are normal. | CM- EC-
The cardiomediastinal and hilar silhouettes are unchanged. |
The cardiac and mediastinal contours are unchanged with moderate cardiomegaly. | CM+
The mediastinal and hilar contours are stable. |
The mediastinum remains widened. | EC+
Mediastinum is widened likely due to vascular engorgement. | EC+
Slight widening of the right paratracheal stripe. |
Mediastinal lymphadenopathy is better seen on CT. |
New moderate left pleural effusion. | PE+
Effusions are small. | PE+
Effusions bilaterally, small. | PE+
Pleural effusions, if present, are small. | PE?
Bilateral effusions with basilar atelectasis, left greater than right. | PE+ AT+
Left pleural effusion and atelectasis have increased, right effusion has resolved. | PE+ AT+
Layering right pleural effusion. | PE+
Fluid tracks along the minor fissure. | PE+
Fluid in the fissure. | PE+
There is a trace amount of pleural fluid bilaterally. | PE+
Costophrenic angles are clear. | PE-
Blunting of both costophrenic angles. |
Sharp costophrenic angles, no effusion. | PE-
No blunting to suggest effusion. | PE-
Pleural thickening or effusion at the left base. | PO+ PE+
Scarring or small effusion may account for blunting. | PE?
No pneumothorax after chest tube placement. | PX- SD+
Status post chest tube placement with decreased pneumothorax. | SD+ PX+
Status post thoracentesis with no pneumothorax. | PX-
Interval removal of endotracheal tube, nasogastric tube, and left chest tube. | SD-
Interval removal of the left chest tube. The right chest tube remains in place. | SD+
Removal of the Swan-Ganz catheter, with the sheath remaining. | SD-
Endotracheal tube terminates 3 cm above the carina; NG tube courses into the stomach. | SD+
Lines and tubes unchanged. | SD+
Support lines and tubes are unchanged in position. | SD+
Monitoring leads project over the chest. | SD+
Right PICC line ends in mid SVC without pneumothorax. | SD+ PX-
Right subclavian line tip is in the upper right atrium. | SD+
Vascular stent in the left axilla. | SD+
Sternal wires are intact. |
Sternal wires are intact. Prosthetic aortic valve is noted. | SD+
Cholecystectomy clips in the right upper quadrant. |
Surgical clips project over the left axilla. |
Left mastectomy. |
Right breast implant. |
Gastric band in place. |
Status post CABG with stable cardiomegaly. | CM+
Prior median sternotomy. No edema. | ED-
Old healed fractures of the left ribs. | FX+
Healing right rib fractures. | FX+
No evidence of rib fracture or pneumothorax. | FX- PX-
Acute fracture of the left clavicle. | FX+
Chronic deformity of the proximal right humerus. |
Vertebral compression fractures are stable. | FX+
Mild compression of a midthoracic vertebral body. |
Age-indeterminate compression deformities. | FX+
Degenerative changes of the spine without fracture. | FX-
Rib fractures are better assessed on CT. | FX+
Old granulomatous disease. No active TB. |
Calcified hilar lymph nodes consistent with prior granulomatous disease. |
Pulmonary nodules are unchanged since CT. | LL+
8 mm nodule. | LL+
Nodule in the left upper lobe for which CT is recommended. | LL+
Possible right upper lobe nodule for which CT is recommended. | LL?
Bilateral pulmonary metastases. | LL+
Metastases are not visualized. | LL-
Mass in the left hilum. | LL+
Lung mass, not significantly changed. | LL+
Known right lung mass. | LL+
Post-radiation fibrosis in the right upper lobe. | LO+
Radiation changes in the left lung. |
Interstitial lung disease with honeycombing. | LO+
Chronic interstitial changes. | LO+
Diffuse interstitial opacities suggest edema. | LO+ ED?
Increased interstitial markings consistent with interstitial edema. | LO+ ED+
Prominent interstitial markings may be due to edema. | LO+ ED?
Hazy opacities bilaterally. | LO+
Airspace opacities are worse. | LO+
Consolidation has progressed. | CO+
Multifocal consolidations, unchanged. | CO+
There is improving consolidation in the right upper lobe. | CO+
Consolidative opacity in the right middle lobe. | CO+
Right upper lobe collapse has resolved. | AT-
Complete collapse of the left lung. | AT+
Plate-like atelectasis. | AT+
Linear atelectasis or scarring at the left base. | AT+
Subsegmental atelectasis bilaterally. | AT+
Left lung is reexpanded. |
Right lung has fully re-expanded with no residual pneumothorax. | PX-
Persistent small right apical pneumothorax. | PX+
Pneumothorax is unchanged. | PX+
Tiny pneumothorax is less conspicuous. | PX+
Small apical pneumothorax is no longer appreciated. | PX-
Stable tiny pneumothorax versus skin fold. | PX?
Skin fold mimics a pneumothorax. |
Pneumonia has improved but not resolved. | PN+
Persistent but improved right lower lobe pneumonia. | PN+
Recurrent pneumonia. | PN+
New pneumonia in the left lower lobe. | PN+
Findings have the appearance of pneumonia. | PN+
Findings typical of pneumonia. | PN+
The findings are compatible with mild congestive heart failure. | ED+
Findings suggest congestive heart failure with small effusions. | ED? PE+
No evidence of decompensated heart failure. | ED-
Interstitial pulmonary edema is new. | ED+
Edema is unchanged. | ED+
The degree of pulmonary edema has decreased. | ED+
Pulmonary edema, which has worsened, is moderate. | ED+
Perihilar haziness and vascular indistinctness suggest mild edema. | LO+ ED?
Volume overload. | ED+
History: 65M with cough. Question pneumonia. | PN?
Indication: shortness of breath, rule out effusion. Findings: No effusion. | PE-
COPD with no acute process. |
Chest pain, assess for pneumonia. |
Fever and hypoxia, evaluate for pneumonia or effusion. |
Known effusion, assess for change. | PE+
As above, no pneumonia. | PN-
Wet read: no pneumothorax. | PX-
Findings discussed with Dr. Smith regarding the pneumothorax. | PX+
Treated pneumonia. |
Resolved pneumonia, with residual scarring. | PN-
Evidence of prior rib fractures. | FX+
Evidence of left lower lobe pneumonia. | PN+
""".strip()


def wording_cases() -> list[tuple[str, dict[int, int]]]:
    """(sentence, {column: class id}) of every case."""
    return parse(_TEXT)
