"""Sentences that name a failure, an edema, a nodule or a mass, by what they mean."""

from __future__ import annotations

FAILURES = """
Failure to thrive.
Multi-organ failure.
Multiorgan failure.
Liver failure.
Acute renal failure.
Kidney failure.
Hepatic failure.
Chronic respiratory failure.
Acute hypoxic respiratory failure.
Ventilatory failure.
Treatment failure.
Failure of treatment.
Hardware failure.
Graft failure.
Pacemaker failure.
Device failure.
Technical failure.
Equipment failure.
Failure of the hardware.
Failure to wean.
Extubation failure.
Failure to progress.
Antibiotic failure.
Failure of conservative therapy.
Bone marrow failure.
Adrenal failure.
Pulmonary failure.
Valve failure.
Implant failure.
Fixation failure.
Organ failure.
Transplant failure.
Shunt failure.
Wound failure.
Intestinal failure.
Septic shock with multisystem failure.
Leg edema.
Foot edema.
Hand edema.
Ankle edema.
Lower extremity edema.
Pedal edema.
Pitting edema.
Brain edema.
Cerebral edema.
Laryngeal edema.
Edema of the larynx.
Edema of the foot.
Edema in both legs.
Edema of the soft tissues.
Edema of the lower extremities.
Edema of the left upper arm.
Soft tissue edema.
Subcutaneous edema.
Scrotal edema.
Periorbital edema.
Facial edema.
Bone marrow edema.
Marrow edema.
Limb edema.
Arm edema.
Neck edema.
Chest wall edema.
Bowel wall edema.
Skin edema.
Epiglottic edema.
Airway edema.
Vasogenic edema.
Macular edema.
Edema around the knee.
Edema in her ankles.
Leg and foot edema.
Gallbladder wall edema.
Edema of the brain.
Muscle edema.
Bilateral leg edema.
Sacral edema.
Patient with leg edema.
Respiratory decompensation.
Hepatic decompensation.
"""

HEART_FAILURES = """
Congestive heart failure.
Heart failure.
Cardiac failure.
Right heart failure.
Left ventricular failure.
Biventricular failure.
Congestive failure.
Acute failure.
Mild failure.
Failure.
The patient is in failure.
There are signs of failure.
Findings of frank failure.
Decompensated heart failure.
Diastolic heart failure.
CHF.
Edema.
Mild edema.
Pulmonary edema.
Interstitial edema.
Alveolar edema.
Interstitial pulmonary edema.
Perihilar edema.
Edema of the lungs.
Edema in the right lung.
Dependent pulmonary edema.
Flash pulmonary edema.
Asymmetric edema.
Bilateral edema.
Edema in the lower lobes.
Cardiac decompensation.
Failure is present.
Left sided failure.
Failure of the heart.
Renal and heart failure.
"""

CALCIFIED = """
Calcified nodule in the right upper lobe.
Calcified granuloma in the right upper lobe.
Calcified nodules.
Densely calcified nodule.
Calcified right upper lobe nodule.
Calcified pulmonary nodule.
8 mm calcified nodule in the left midlung.
Calcified 5 mm nodule.
Small calcified right upper lobe nodule.
Scattered bilateral calcified pulmonary nodules.
The nodule is calcified.
There is a nodule, calcified.
The nodule appears calcified.
Right upper lobe nodule which is calcified.
There is a calcified nodular density.
Calcified nodular opacity.
Calcified lung nodule.
Calcified hilar nodule.
Calcific nodule.
A calcified, stable nodule.
Granulomatous nodule.
Nodule with central calcification.
The left lower lobe nodule is densely calcified.
Calcified 5-mm left apical nodule.
Calcified tiny nodule.
"""

NOT_CALCIFIED = """
Noncalcified nodule.
Non calcified nodule.
Nodule that is not calcified.
The nodule is not calcified.
The nodule is not definitively calcified.
Uncalcified nodule.
Nodule.
Calcified aorta and a nodule.
Calcified granuloma and a nodule.
Nodule near the calcified granuloma.
The aorta is calcified, nodule in the left lung.
Nodule; the aorta is calcified.
"""

HILAR_MASSES = """
There is a hilar mass.
Hilar mass, probably malignant.
Right hilar mass.
Bilateral hilar masses.
Left perihilar mass.
Left hilar soft tissue mass.
Mass at the left hilum.
A mass projects over the hilum.
Mass in the right hilum.
Hilar neoplasm.
Hilar nodule.
Perihilar nodule.
Hilar tumor.
Hilar carcinoma.
Suprahilar mass.
Infrahilar mass.
Hilar lesion.
Left hilum mass.
Nodule of the right hilum.
Neoplasm of the left hilum.
Mass overlying the right hilum.
Lesion of the left hilum.
Lesion in the right hilum.
Hilar malignancy.
"""
