"""More sentences as in `cases`: how wordings of one kind are read next to their opposites."""

from __future__ import annotations

from tests.rrgclinical.cases import parse

_TEXT = """
Heart size is mildly increased. | CM+
The heart is mildly prominent. |
The heart remains enlarged. | CM+
Heart enlarged. | CM+
Heart size mildly to moderately enlarged. | CM+
There has been interval increase in size of the cardiac silhouette. | CM+
There is a marked interval increase in heart size. | CM+
Interval enlargement of the cardiac silhouette. | CM+
The heart has increased in size. | CM+
The heart is enlarged but stable. | CM+
Heart size is stable and enlarged. | CM+
The heart size is slightly enlarged. | CM+
Heart size normal, aorta enlarged. | CM-
Normal heart size, enlarged main pulmonary artery. | CM-
Heart is normal in size with a tortuous and enlarged aorta. | CM-
The heart is normal in size and the aorta is dilated. | CM-
The aorta is enlarged and the heart is normal. | CM-
Enlarged aorta, normal heart. | CM-
No effusion; heart is enlarged. | PE- CM+
Cardiomegaly has resolved. | CM-
Cardiomegaly is unlikely. | CM-
Heart size is not abnormally enlarged. | CM-
No evidence for cardiac enlargement. | CM-
There is suggestion of cardiomegaly. | CM?
Heart size may be mildly enlarged. | CM?
Possible mild cardiac enlargement. | CM?
The cardiac silhouette may be enlarged. | CM?
Heart is probably enlarged. | CM?
Heart size difficult to assess. |
Heart size is not well evaluated due to effusions. | PE+
No pneumothorax or effusion is identified, bibasilar atelectasis. | PX- PE- AT+
No pleural effusion, left basilar opacity may represent atelectasis. | PE- LO+ AT?
No pneumothorax, the effusion is unchanged. | PX- PE+
No pneumothorax, left effusion has increased. | PX- PE+
No pneumothorax and the effusion has decreased. | PX- PE+
No pneumothorax, effusion unchanged. | PX- PE+
No pneumothorax, small left effusion. | PX- PE+
No pneumothorax, large left effusion. | PX- PE+
No pneumothorax, large effusion. | PX- PE-
No consolidation, effusion, large pneumothorax. | CO- PE- PX-
No consolidation, pneumothorax, or significant effusion. | CO- PX- PE-
No focal consolidation, effusions, edema. | CO- PE- ED-
No evidence of pneumonia, no effusion. | PN- PE-
Without pneumothorax, large effusion, or focal consolidation. | PX- PE- CO-
Negative for pneumonia, large effusion, or pneumothorax. | PN- PE- PX-
Does not appear to represent pneumonia. | PN-
This does not have the appearance of pneumonia. | PN-
This does not look like pneumonia. | PN-
Appearance is not typical for pneumonia. | PN-
Findings do not suggest pneumonia. | PN-
Findings are not suggestive of edema. | ED-
These findings are not consistent with pneumonia. | PN-
The findings are unlikely to represent pneumonia. | PN-
This is not felt to represent pneumonia. | PN-
It is not thought to be a pneumothorax. | PX-
This argues against pneumonia. | PN-
There is nothing to suggest pneumonia. | PN-
No findings to support pneumonia. | PN-
I see no effusion. | PE-
We do not see a pneumothorax. | PX-
A pneumothorax cannot be identified. | PX-
A pneumothorax could not be seen. | PX-
No pneumothorax can be seen. | PX-
Unable to identify a pneumothorax. | PX-
Fails to reveal any consolidation. | CO-
The chest is without effusion. | PE-
Patient denies pneumonia. | PN-
Prior pneumonia resolved. |
The right pleural effusion has since resolved. | PE-
The right pleural effusion resolved. | PE-
The right effusion has now completely resolved. | PE-
Pneumothorax has resolved since the prior study. | PX-
The left lower lobe pneumonia has cleared. | PN-
Interval clearing of the right lower lobe pneumonia. | PN-
Complete resolution of pneumonia. | PN-
There has been complete resolution of the effusion. | PE-
The edema shows interval resolution. | ED-
The nodule is no longer evident. | LL-
The nodule is no longer apparent. | LL-
Pneumonia partially resolved. | PN+
The pneumonia has partially cleared. | PN+
Pneumonia is resolving. | PN+
Resolving left lower lobe pneumonia. | PN+
The effusion has not resolved. | PE+
The pneumonia has not cleared. | PN+
Incomplete resolution of the pneumonia. | PN+
Improving edema. | ED+
Nodule suspected in the right upper lobe. | LL?
Small effusion possible. | PE?
A small effusion is questioned. | PE?
Pneumonia suspected. | PN?
Pneumonia probable. | PN?
Pneumonia possible, clinical correlation suggested. | PN?
Atelectasis, pneumonia not excluded. | AT+ PN?
Atelectasis; pneumonia cannot be ruled out. | AT+ PN?
Pneumonia can't be excluded. | PN?
A small effusion could not be excluded. | PE?
It would be hard to exclude a small effusion. | PE?
Superimposed pneumonia is not ruled out. | PN?
Raises the possibility of pneumonia. | PN?
Raising concern for pneumonia. | PN?
Findings raise the question of pneumonia. | PN?
There is a possibility of effusion. | PE?
Opacity suggesting pneumonia. | LO+ PN?
Opacity suspicious for mass. | LO+ LL?
CT is recommended to evaluate for nodules. |
CT is recommended to exclude a mass. |
Recommend CT to rule out malignancy. |
Follow up to document resolution of pneumonia. |
Follow-up radiographs are recommended to ensure resolution of the pneumonia. |
Chest radiograph is insensitive for detection of small nodules. |
CT has greater sensitivity for small nodules. |
Radiographs are less sensitive than CT for pulmonary nodules. |
CT would be more sensitive for detecting a mass. |
If there is concern for effusion, decubitus views may help. |
If pneumonia is suspected, follow-up is recommended. |
Clinical suspicion for pneumonia. |
Signs of infection should be sought clinically. |
Overlying structures may obscure a nodule. |
Nipple shadows mimic nodules. |
Rule out pneumonia. | PN?
R/O pneumonia. |
Dense nodule in the left lung suggests prior granulomatous disease. | LL+
No effusion, dense nodule in the left lung suggests prior granulomatous disease. | PE- LL+
No effusion is seen, hilar calcifications are present. | PE-
Left base atelectasis, right effusion, no pneumothorax. | AT+ PE+ PX-
Bibasilar atelectasis and effusions, no pneumothorax. | AT+ PE+ PX-
Lungs are clear, no effusion. | LO- PE-
Lungs: no consolidation, effusion, or pneumothorax. | CO- PE- PX-
No evidence of pneumothorax, pleural effusion is small. | PX- PE+
There is no edema, effusion or focal consolidation, but cardiomegaly is present. | ED- PE- CO- CM+
Neither effusion nor pneumothorax. | PE- PX-
Stable nodule, no new nodules. | LL+
No new nodules, stable 5 mm nodule in the right lung. | LL+
No pneumonia. Prior left effusion no longer seen. | PN- PE-
No radiographic evidence of active tuberculosis, stable left apical scarring. |
The right lung is clear. Left basilar atelectasis without effusion. | LO- AT+ PE-
Chronic atelectasis without consolidation or effusion. | AT+ CO- PE-
Atelectasis is seen without pneumothorax, effusion has increased. | AT+ PX- PE+
No change in effusion, no pneumothorax. | PE+ PX-
No significant change in the small left effusion and bibasilar atelectasis. | PE+ AT+
No interval change of nodule. | LL+
No effusion or pneumothorax seen, stable nodule. | PE- PX- LL+
Opacity is not significantly changed. | LO+
Pleural effusions are not significantly changed. | PE+
No acute infiltrate or effusion, mild cardiomegaly. | LO- PE- CM+
No acute infiltrates, cardiomegaly. | LO- CM-
Mass is not seen. | LL-
Right lower lobe mass, not seen on prior. | LL+
Nodule, not seen on the prior study. | LL+
Nodule which was not seen previously. | LL+
Consolidation not present on prior exam. | CO+
There is a nodule not previously seen. | LL+
Atelectasis rather than pneumonia. | AT+ PN-
Favor atelectasis over pneumonia. | AT? PN?
Opacity, likely atelectasis. | LO+ AT?
Probable atelectasis. | AT?
Minimal atelectasis or scarring. | AT+
Blunting of the costophrenic angles may be due to small effusions. | PE?
No blunting of the costophrenic angles to suggest effusion. | PE-
Both lungs are clear, no evidence of effusion or pneumothorax, heart is normal. | LO- PE- PX- CM-
Heart size, mediastinal contours normal, lungs clear. | CM- EC- LO-
Heart and lungs normal. | CM- LO-
Heart is enlarged, lungs are clear. | CM+ LO-
Heart is not enlarged, lungs clear, no effusion. | CM- LO- PE-
Heart mildly enlarged, no edema, no effusion. | CM+ ED- PE-
Cardiomegaly and small bilateral effusions without edema. | CM+ PE+ ED-
Pulmonary edema or pneumonia. | ED+ PN+
No pneumonia or CHF. | PN- ED-
No CHF. | ED-
No failure. | ED-
Mild CHF. | ED+
Mild congestive failure. | ED+
There is no evidence of mass, nodule, or infiltrate. | LL- LO-
Solitary pulmonary nodule. | LL+
Tiny calcified nodule. |
Multiple nodules bilaterally consistent with metastases. | LL+
There is a 2 cm mass. | LL+
Right hilar mass. | LL+
No suspicious nodules. | LL-
There is subsegmental atelectasis. | AT+
Left basilar discoid atelectasis. | AT+
No lobar collapse. | AT-
There is consolidation of the right lower lobe. | CO+
Pneumonia in the right middle lobe. | PN+
Right middle lobe pneumonia versus atelectasis. | PN? AT?
Bilateral effusions, right larger than left. | PE+
Small amount of pleural fluid. | PE+
Trace effusions. | PE+
Trace pleural effusion cannot be excluded. | PE?
No large effusion. | PE-
No definite effusion. | PE-
No obvious effusion. | PE-
No gross effusion. | PE-
Effusion: none. | PE-
Mild-to-moderate cardiomegaly. | CM+
Heart is mild to moderately enlarged. | CM+
There is mild enlargement of the heart. | CM+
There is enlargement of the cardiac silhouette with clear lungs. | CM+ LO-
Cardiac silhouette enlarged. | CM+
Mild enlargement of the cardiac and mediastinal silhouettes. | CM+ EC+
The cardiomediastinal silhouette is mildly enlarged. | CM+ EC+
The heart is generous in size. |
Heart size within normal limits, no mediastinal enlargement. | CM- EC-
The heart is normal in size without effusion. | CM- PE-
The heart size and pulmonary vascularity appear within normal limits. | CM-
The heart size and pulmonary vascularity are not enlarged. | CM-
Cardiomegaly is again noted. | CM+
Again seen is cardiomegaly. | CM+
Cardiomegaly noted, unchanged. | CM+
Stable cardiomegaly and tortuous aorta. | CM+
Cardiomegaly with pulmonary vascular congestion, no overt edema. | CM+ ED-
Heart size is top normal, no effusions. | CM- PE-
Heart size normal; enlarged pulmonary arteries. | CM-
The pulmonary arteries are enlarged, the heart size is normal. | CM-
Heart size is normal for AP technique. | CM-
Apparent enlargement of the heart is due to technique. | CM?
The heart size is exaggerated by the AP projection. |
No definite cardiomegaly, though the lateral view is limited. | CM-
No evidence of pneumothorax or pneumoperitoneum. | PX-
No visible pneumothorax. | PX-
No pneumothorax or large pleural effusions. | PX- PE-
No large pneumothorax or effusion, lungs clear. | PX- PE- LO-
No pneumothorax following line placement. | PX-
No pneumothorax status post chest tube removal. | PX- SD-
There is no evidence for effusion, consolidation, or pneumothorax. | PE- CO- PX-
There is no convincing evidence of pneumonia. | PN-
There are no findings of pneumonia. | PN-
There is no radiographic evidence for pneumonia or edema. | PN- ED-
There is no focal consolidation to indicate pneumonia. | CO- PN-
No opacity to suggest a developing pneumonia. | LO- PN-
No acute findings, specifically no pneumonia. | PN-
No acute abnormality, no evidence for pneumothorax. | PX-
No pleural effusions or pneumothoraces are evident. | PE- PX-
No focal infiltrate or pleural effusion is demonstrated. | LO- PE-
Pleural effusions are absent. | PE-
The costophrenic angles are sharp, no effusion. | PE-
There is no blunting of the costophrenic sulci. |
Lungs are free of focal consolidation. | CO-
Lungs are negative for consolidation. | CO-
The lungs are well-aerated without consolidation or effusion. | CO- PE-
Lungs appear clear without infiltrate, effusion, or mass. | LO- PE- LL-
Lungs demonstrate no consolidation or effusion. | CO- PE-
Neither lung shows consolidation. | CO-
Neither pneumonia nor effusion is evident. | PN- PE-
Effusion and pneumothorax are not seen. | PE- PX-
Effusion is not seen, nor is pneumothorax. | PE- PX-
Consolidation, effusion and pneumothorax are absent. | CO- PE- PX-
No mass lesions. | LL-
No discrete mass. | LL-
No dominant nodule or mass. | LL-
No suspicious appearing lung nodules or masses. | LL-
No focal lung lesion. | LL-
Nodules are not seen. | LL-
No worrisome pulmonary nodules or suspicious lesions. | LL-
Stable right upper lobe nodule, consistent with granuloma. | LL+
6 mm nodule in the right mid lung, likely granuloma. | LL+
Small nodule in the left apex is unchanged since 2009, compatible with benign etiology. | LL+
Rounded density in the right base may represent nipple shadow versus nodule. | LO+ LL?
Nodular density in the left lung base, likely nipple shadow. | LO+ LL?
There is a nodule versus vessel on end. | LL?
Mass in the right upper lobe, suspicious for carcinoma. | LL+
Right upper lobe mass concerning for malignancy. | LL+
Multiple pulmonary nodules consistent with metastases. | LL+
Right lung mass has increased in size. | LL+
Previously noted nodule is not identified. | LL-
Previously seen nodule is stable. | LL+
The previously described right pleural effusion has decreased. | PE+
The right pleural effusion has nearly completely resolved. | PE+
Interval decrease in right pleural effusion. | PE+
Interval resolution of right effusion with persistent left effusion. | PE+
Interval improvement of pulmonary edema. | ED+
Interval development of small bilateral pleural effusions. | PE+
New small right pleural effusion. | PE+
Small right pleural effusion with associated atelectasis. | PE+ AT+
Small pleural effusions bilaterally, left greater than right. | PE+
There are small bilateral effusions. | PE+
Tiny bilateral pleural effusions are present. | PE+
Minimal fluid in the right costophrenic angle. | PE+
Fluid is seen in the minor fissure. | PE+
Effusion layering on the lateral view. | PE+
Left pleural effusion with compressive atelectasis or consolidation. | PE+ AT+ CO+
Left retrocardiac consolidation and/or atelectasis. | CO+ AT+
Left basilar opacity consistent with atelectasis or pneumonia. | LO+ AT+ PN+
Left basilar opacity, which could be atelectasis or early pneumonia. | LO+ AT? PN?
Left basilar atelectasis, otherwise clear lungs. | AT+ LO-
Otherwise clear, bibasilar atelectasis. | AT+
Low lung volumes with bibasilar atelectasis. | AT+
Low lung volumes, bibasilar subsegmental atelectasis, no effusion. | AT+ PE-
Mild bibasilar atelectasis, no focal consolidation. | AT+ CO-
Linear opacities at the bases, consistent with subsegmental atelectasis. | LO+ AT+
Streaky opacities in the left base suggestive of atelectasis. | LO+ AT?
Mild dependent atelectasis. | AT+
Minimal basilar atelectatic changes. | AT+
Atelectasis at the left base without focal infiltrate. | AT+ LO-
Collapse of the right middle lobe. | AT+
Right upper lobe collapse. | AT+
Right lower lobe partial collapse. | AT+
Focal consolidation in the left lower lobe compatible with pneumonia. | CO+ PN+
Right lower lobe pneumonia is present. | PN+
Findings consistent with pneumonia in the right upper lobe. | PN+
Lingular pneumonia. | PN+
Bilateral pneumonia. | PN+
Left lower lobe infiltrate, pneumonia cannot be excluded. | LO+ PN?
Lobar consolidation. | CO+
Consolidation is present in the right middle lobe. | CO+
Dense consolidation in the lingula. | CO+
Airspace consolidation, most likely pneumonia. | CO+ PN?
Findings most consistent with pulmonary edema. | ED+
Mild pulmonary edema, improved. | ED+
Interstitial edema with small effusions. | ED+ PE+
Bilateral interstitial opacities consistent with edema. | LO+ ED+
Bilateral interstitial edema versus atypical pneumonia. | ED? PN?
Congestive heart failure with interstitial edema. | ED+
No congestive failure. | ED-
No evidence of congestive heart failure or pneumonia. | ED- PN-
No evidence of failure. | ED-
The heart is enlarged without evidence of failure. | CM+ ED-
Right apical pneumothorax measuring 2 cm. | PX+
Small residual left pneumothorax. | PX+
Tiny right apical pneumothorax is unchanged. | PX+
Large left pneumothorax with mediastinal shift. | PX+ EC+
Left apical pneumothorax has resolved. | PX-
Previously seen pneumothorax is not visualized. | PX-
Previously seen pneumothorax is not as well visualized. | PX+
The pneumothorax is less apparent. | PX+
The effusion is not as large. | PE+
The pneumonia is not as dense as before. | PN+
The pneumothorax is no larger. | PX+
There is no increase in the pleural effusion. | PE+
There is no change in the nodule. | LL+
There has been no resolution of the pneumonia. | PN+
Without change in effusion. | PE+
No improvement in the pneumonia. | PN+
No evidence of progression of the nodules. | LL+
Unchanged pneumonia without effusion. | PN+ PE-
Lungs are clear, specifically no consolidation, pneumothorax, or effusion. | LO- CO- PX- PE-
Specifically, no evidence of pneumonia, effusion. | PN- PE-
No focal consolidation. No visualized pneumothorax. No large pleural effusions. | CO- PX- PE-
Clear lungs, no effusion or pneumothorax, normal heart. | LO- PE- PX- CM-
No acute cardiopulmonary disease, cardiomegaly. | CM-
Cardiomegaly, no acute pulmonary disease. | CM+
No acute pulmonary disease, however cardiomegaly persists. | CM+
No pneumonia, although atelectasis is present. | PN- AT+
Clear lungs other than minimal atelectasis. | LO- AT+
No abnormality apart from a small effusion. | PE+
Lungs are clear aside from minimal left basilar atelectasis. | LO- AT+
Lungs are otherwise clear. | LO-
The lungs are clear with the exception of left basilar atelectasis. | LO- AT+
With the exception of atelectasis, no consolidation. | AT+ CO-
In the interval, effusion has developed. | PE+
Interval placement of left chest tube with resolution of pneumothorax. | SD+ PX-
After thoracentesis, there is no pneumothorax. | PX-
Small effusion persists. | PE+
Effusion remains. | PE+
Effusion has recurred. | PE+
Pneumothorax has not recurred. | PX-
The lungs are clear (no effusion). | LO- PE-
Bibasilar opacities (atelectasis versus infiltrate). | LO+ AT?
Left lower lobe opacity (pneumonia not excluded). | LO+ PN?
Small left pleural effusion (unchanged). | PE+
No effusion (small or large). | PE-
Heart: mildly enlarged. Lungs: no consolidation. | CM+ CO-
Pleura: no effusion; no pneumothorax. | PE- PX-
Pleural spaces: clear. Heart: enlarged. | PE- CM+
Cardiac: enlarged. | CM+
Effusions: small bilateral. | PE+
Impression: no pneumonia, effusion, or pneumothorax. | PN- PE- PX-
1. No acute disease 2. Cardiomegaly | CM+
Pneumothorax is small. | PX+
No new or enlarging nodules. | LL-
No new, enlarging, or suspicious nodules. | LL-
No new effusion, and the left lower lobe atelectasis has improved. | PE- AT+
Improved aeration without new consolidation. | CO-
There is improved atelectasis with no residual effusion. | AT+ PE-
No interval development of effusion. | PE-
No developing consolidation. | CO-
No worsening consolidation. | CO-
There is no interval change in the appearance of the chest, cardiomegaly is stable. | CM+
There is no change in cardiomegaly, effusion, or atelectasis. | CM+ PE+ AT+
No significant change in cardiomegaly and no new effusion. | CM+ PE-
There are no acute changes, chronic atelectasis. | AT+
Since the prior study, the effusion has resolved and atelectasis has improved. | PE- AT+
Since the prior study, the effusion has increased and the pneumothorax has resolved. | PE+ PX-
The effusion has resolved but atelectasis remains. | PE- AT+
Atelectasis has resolved, effusion persists. | AT- PE+
Effusion and atelectasis have resolved. | PE- AT-
Pneumonia, resolved. | PN-
The previously described consolidation, now resolved. | CO-
Nodule is not definitely identified on the lateral view. | LL+
The nodule seen on CT is not visible radiographically. | LL-
Possible nodule, recommend CT. | LL?
Nodule; recommend CT for further evaluation. | LL+
Nodule, CT recommended for further characterization. | LL+
Consolidation is consistent with pneumonia, follow-up to resolution recommended. | CO+ PN+
Right base consolidation, follow-up is recommended to exclude underlying mass. | CO+
Underlying mass is not excluded. | LL?
An underlying mass cannot be excluded on this exam. | LL?
Superimposed infection is a possibility. | PN?
Underlying infection would be a consideration. | PN?
Infection is felt less likely. | PN-
Edema more likely than pneumonia. | ED? PN?
This most likely represents atelectasis. | AT?
This likely represents atelectasis rather than pneumonia. | AT? PN-
Findings represent atelectasis. | AT+
Findings are thought to represent atelectasis. | AT?
Findings are felt to represent edema. | ED?
Findings believed to represent pneumonia. | PN?
Findings are most compatible with pneumonia. | PN+
Findings are in keeping with pulmonary edema. | ED+
Findings diagnostic of pneumothorax. | PX+
Findings represent either atelectasis or pneumonia. | AT? PN?
Differential includes pneumonia, edema, and hemorrhage. | PN? ED?
Considerations include pneumonia or aspiration. | PN?
Clinical correlation is needed to exclude pneumonia. | PN?
Indication: evaluate for pneumonia. No pneumonia is seen. | PN-
The patient has a history of lung cancer with no nodules today. | LL-
Status post lobectomy for cancer. |
Status post right upper lobectomy without recurrent mass. | LL-
No hilar or mediastinal adenopathy, no nodules. | LL-
Calcified granuloma, no suspicious nodule. | LL-
Nondisplaced right rib fracture. | FX+
Non-displaced right rib fracture. | FX+
Non-specific right basilar opacity. | LO+
No displaced fracture. | FX-
Nonspecific opacity, not typical of pneumonia. | LO+ PN-
There isn't any effusion. | PE-
There aren't any nodules. | LL-
Doesn't appear to be pneumonia. | PN-
Cardiomegaly isn't present. | CM-
Heart isn't enlarged. | CM-
The heart isn't significantly enlarged. | CM-
Heart size and pulmonary edema are within normal limits. | CM- ED-
Please note that fractures may not be demonstrated. |
Pneumonia should be excluded clinically. | PN?
The heart has a normal contour and effusion is seen. | CM- PE+
Heart size normal, small effusion is present, lungs are otherwise clear. | CM- PE+ LO-
Cardiomegaly and the lungs are clear. | CM+ LO-
The heart is normal, effusion has resolved, and the lungs are clear. | CM- PE- LO-
Heart and mediastinum are normal, there is atelectasis and the bones are normal. | CM- EC- AT+
The heart and opacity are normal. | CM- LO-
Heart size within normal limits, stable mediastinal contours, enlarged pulmonary arteries. | CM-
Heart size moderately enlarged, stable mediastinal and hilar contours. | CM+
Heart size at upper limits of normal, dilated and tortuous aorta, no edema. | CM- ED-
Mild blunting of right costophrenic recess, may indicate scarring versus small effusion. | PE?
No focal alveolar consolidation, small left effusion seen. | CO- PE+
Large left pleural effusion, associated atelectasis, no pneumothorax seen. | PE+ AT+ PX-
Cardiomegaly, prominent perihilar vascularity, no overt edema, small effusions. | CM+ ED- PE+
Cardiomegaly and interstitial prominence may reflect edema. | CM+ LO+ ED?
Pulmonary vascularity within normal limits, no effusion, heart size enlarged. | PE- CM+
No edema, effusion, or consolidation; the heart is mildly enlarged. | ED- PE- CO- CM+
There is no pneumothorax, there is a small effusion. | PX- PE+
There is no pneumothorax. There is small effusion on the left, none on the right. | PX- PE+
No pneumothorax on the left, small pneumothorax on the right. | PX+
No left effusion, small right effusion. | PE+
Small right effusion, no left effusion. | PE+
Right effusion without left effusion. | PE+
Right lower lobe opacity is consistent with pneumonia or aspiration, no effusion. | LO+ PN+ PE-
Right lower lobe pneumonia with small parapneumonic effusion. | PN+ PE+
Right pleural effusion versus pleural thickening, no pneumothorax. | PE? PO? PX-
Opacities are present in both bases, atelectasis or infiltrate, no effusion. | LO+ AT+ PE-
Atelectasis and/or infiltrate in the left base. | AT+ LO+
Streaky opacities, probably atelectasis, in both bases with no effusion. | LO+ AT? PE-
Probable scarring or atelectasis in the left base, no consolidation. | AT? CO-
Scarring or atelectasis in the lingula. | AT+
Scarring and atelectasis, no acute process. | AT+
Bony structures intact, lungs clear, heart normal in size, no effusion. | CM- LO- PE-
No acute bony abnormality, no pneumothorax, heart size is enlarged. | PX- CM+
Heart size and pulmonary vascularity are increased. | CM+
Heart size and pulmonary vascularity are increased, no effusion. | CM+ PE-
Pulmonary vascularity is increased, heart size is normal. | CM-
Increased heart size and pulmonary vascularity. | CM+
Increased pulmonary vascularity, normal heart size. | CM-
Increased interstitial markings, heart size normal. | LO+ CM-
Interstitial markings are prominent, heart size is normal. | LO+ CM-
Prominent pulmonary vasculature with normal heart size. | CM-
Enlarged pulmonary arteries and normal heart. | CM-
Normal heart, enlarged aorta. | CM-
Aorta is tortuous and enlarged, heart is normal. | CM-
Aorta tortuous, heart enlarged. | CM+
Tortuous aorta, enlarged heart. | CM+
Tortuous aorta and mild cardiomegaly. | CM+
Ectatic aorta and cardiac enlargement, no edema. | CM+ ED-
Moderate cardiac enlargement, tortuous aorta. | CM+
Right lung is clear, left lung shows consolidation. | LO- CO+
Right lung clear, left basilar atelectasis. | LO- AT+
The left lung is clear, while the right shows atelectasis. | LO- AT+
The lungs are clear except for left basilar atelectasis and a small effusion. | LO- AT+ PE+
Both lungs are clear, except atelectasis in the left base. | LO- AT+
The lungs are otherwise clear, no effusions. | LO- PE-
Lungs: clear, no effusion. Heart: mildly enlarged, no edema. | LO- PE- CM+ ED-
Pneumonia not seen, effusion small. | PN- PE+
Pneumonia not seen; small effusion. | PN- PE+
Edema is not present, cardiomegaly is. | ED- CM+
Consolidation has resolved, small residual effusion. | CO- PE+
Left base consolidation resolved, small effusion persists. | CO- PE+
Resolution of pneumonia, persistent atelectasis. | PN- AT+
Interval resolution of edema, cardiomegaly remains. | ED- CM+
Interval resolution of edema with residual effusion. | ED- PE+
Interval resolution of edema, effusion, and atelectasis. | ED- PE- AT-
Clearing of previously seen pneumonia. | PN-
Near complete resolution of effusion. | PE+
Partial clearing of pneumonia. | PN+
Left pneumothorax no longer present, left chest tube remains. | PX- SD+
Nodules previously seen are no longer visualized. | LL-
Prior nodule not seen today. | LL-
Prior effusion no longer seen. | PE-
The lungs have cleared, no residual pneumonia. | PN-
Nodule in left lung, granuloma versus metastasis. | LL+
Nodules may represent metastases. | LL+
Nodules, possibly metastases. | LL+
A 1 cm nodule is seen, which could represent a granuloma. | LL+
Nodular opacity, possible nodule versus confluence of shadows. | LO+ LL?
Calcified nodule, likely granuloma. |
Calcified granuloma, likely benign. |
Old granulomatous disease, no nodules. | LL-
Scarring from remote infectious process. |
Findings consistent with prior infectious process. |
Scarring from old infection or inflammation. |
No axillary mass. |
Hepatic lesion is better seen on CT. |
Acute infectious process. | PN+
No acute infectious process. | PN-
""".strip()


def scope_cases() -> list[tuple[str, dict[int, int]]]:
    """(sentence, {column: class id}) of every case."""
    return parse(_TEXT)
