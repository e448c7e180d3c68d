"""Sentences that were misread once, each with the labels of a radiologist's reading."""

from __future__ import annotations

import re

import pytest

from rrgclinical import ClassId
from tests.rrgclinical.test_rules_families import said

MISREAD = {
    "No evidence of consolidation, large pleural effusion.": "Consolidation- Pleural Effusion-",
    "Does not appear to be a hydropneumothorax or empyema.": "Pneumothorax- Pleural Effusion-",
    "Pneumonia resolved.": "Pneumonia-",
    "The patient denied any pneumonia.": "Pneumonia-",
    "small bilateral pleural effusions suspected.": "Pleural Effusion?",
    "CT scan is more sensitive in detecting small nodules.": "",
    "Stable heart size, moderately enlarged and tortuous calcified aorta.": "",
    "No focal alveolar consolidation, no definite pleural effusion seen, left hilar calcifications "
    "and dense nodule in the left lung suggest a previous granulomatous process.": (
        "Consolidation- Pleural Effusion- Lung Lesion+"
    ),
    "Findings would not support a diagnosis of pneumonia.": "Pneumonia-",
    "Accounting for technical factors heart size within normal limits, heavily calcified and "
    "mildly tortuous aorta.": "Cardiomegaly-",
    "No focal alveolar consolidation, no definite pleural effusion seen, streaky left base "
    "atelectasis.": "Consolidation- Pleural Effusion- Atelectasis+",
    "The heart is not enlarged and there is no effusion, atelectasis is seen in the left base.": (
        "Cardiomegaly- Pleural Effusion- Atelectasis+"
    ),
    "The lungs are clear without evidence of acute infiltrate, effusion, pneumothorax or mass, "
    "cardiomegaly is noted.": (
        "Lung Opacity- Pleural Effusion- Pneumothorax- Lung Lesion- Cardiomegaly+"
    ),
    # A heading states nothing where what follows tells of it.
    "Cardiomegaly: The heart is normal in size.": "Cardiomegaly-",
    "Support devices: No support devices are seen.": "Support Devices-",
    "Fractures: The ribs are intact.": "Fracture-",
    "Consolidation: No focal opacity.": "Consolidation- Lung Opacity-",
    "Atelectasis: Left base.": "Atelectasis+",
    "Pneumothorax: No, Effusion: Yes, Edema: No": "Pneumothorax- Pleural Effusion+ Edema-",
    "| Pneumothorax | No |": "Pneumothorax-",
    "Atelectasis: yes; consolidation: no.": "Atelectasis+ Consolidation-",
    "There is pneumonia: no consolidation elsewhere.": "Pneumonia+ Consolidation-",
    "Effusion: decreased, no pneumothorax.": "Pleural Effusion+ Pneumothorax-",
    "Consolidation, effusion, pneumothorax: none.": (
        "Consolidation- Pleural Effusion- Pneumothorax-"
    ),
    "Moderate effusion: no change.": "Pleural Effusion+",
    # "No abnormality" denies what stands beside it.
    "No abnormalities, masses or effusions are noted.": "Lung Lesion- Pleural Effusion-",
    # A verb ends a denial within its subject.
    "Consolidation without volume loss is concerning for pneumonia.": "Consolidation+ Pneumonia?",
    "Bilateral opacities without effusion are compatible with pneumonia.": (
        "Lung Opacity+ Pleural Effusion- Pneumonia+"
    ),
    "Opacities with no effusion likely represent pneumonia.": (
        "Lung Opacity+ Pleural Effusion- Pneumonia?"
    ),
    "Left base opacity without air bronchograms may be atelectasis.": "Lung Opacity+ Atelectasis?",
    "No opacity or effusion suspicious for pneumonia.": (
        "Lung Opacity- Pleural Effusion- Pneumonia-"
    ),
    # What ends in a subordinate clause says nothing of the statement before.
    "The left effusion has increased since chest tube removal.": (
        "Pleural Effusion+ Support Devices-"
    ),
    "Consolidation following aspiration has cleared.": "Consolidation- Pneumonia-",
    # A removal denies devices alone, and a tip out of sight none.
    "Effusion since chest tube placement has resolved.": "Pleural Effusion- Support Devices-",
    "Small pneumothorax following chest tube removal.": "Pneumothorax+ Support Devices-",
    "NG tube in place, chest tube removed.": "Support Devices+",
    "The tip of the nasogastric tube is not seen.": "Support Devices+",
    "The nasogastric tube is not seen.": "Support Devices-",
    "Pulmonary edema in the absence of cardiomegaly.": "Edema+ Cardiomegaly-",
    "Assessment of the cardiac silhouette is limited by the moderate right effusion.": (
        "Pleural Effusion+"
    ),
    # Dashes and bullets.
    "No acute process - mild cardiomegaly unchanged.": "Cardiomegaly+",
    "No pneumothorax \u2013 small left effusion.": "Pneumothorax- Pleural Effusion+",
    "\u2022 No consolidation \u2022 Effusion \u2022 No pneumothorax": (
        "Consolidation- Pleural Effusion+ Pneumothorax-"
    ),
    "No right - sided effusion or port - a - cath.": "Pleural Effusion- Support Devices-",
    "Effusion - none.": "Pleural Effusion-",
    # A place before the structure or its verb.
    "No pneumothorax, right lung is collapsed.": "Pneumothorax- Atelectasis+",
    "No pneumothorax, left lower lobe is collapsed.": "Pneumothorax- Atelectasis+",
    "There is fluid in the left pleural space.": "Pleural Effusion+",
    "Right effusion not definitely present on the earlier exam.": "Pleural Effusion+",
    "There has been marked clearing of bilateral airspace opacities.": "Lung Opacity+",
    "A repeat view is suggested to exclude pneumonia.": "",
    "Recommend repeat imaging to document resolution and exclude pneumonia.": "",
    "Left lower lobe pneumonia, in the appropriate clinical setting.": "Pneumonia?",
}
SIGNS = {"+": ClassId.POSITIVE, "-": ClassId.NEGATIVE, "?": ClassId.UNCERTAIN}


@pytest.mark.parametrize(("sentence", "wanted"), MISREAD.items(), ids=MISREAD)
def test_sentences_that_were_misread(sentence, wanted):
    labels = re.findall(r"([A-Z][A-Za-z ]+)([-+?])", wanted)
    assert said(sentence) == {name: SIGNS[sign] for name, sign in labels}
