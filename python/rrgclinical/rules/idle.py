"""Phrases that hold a word of another table and say nothing of a finding.

In the notation of `PhraseTable`. Being longer, they are read instead of the word they hold.
"""

from __future__ import annotations

IDLE = """
    consistent|compatible|concordant|compared|comparison with, in keeping with,
    mass effect, air bronchogram, nipple shadow, body mass|habitus, no comparison,
    thoracic|chest|abdominal|peritoneal|nasal cavity, air fluid level, no prior|previous,
    prior|previous|remote|treated pneumonia|infection|tuberculosis, not available,
    prior|old|previous|remote|treated tuberculosis|tuberculous|fungal infection,
    prior|old|previous|remote|past infectious|inflammatory process|disease|change|insult,
    old|past|chronic infection, prior|old|previous|remote infection or inflammation,
    neck|axillary|paraspinal|hepatic|liver|splenic|skin mass|lesion,
    neck|shoulder|humeral|abdominal|breast|vertebral|sclerotic density|opacity,
    density|opacity|nodule|mass in|within|over the? left|right? neck|shoulder|abdomen|breast,
    density|opacity|nodule|mass in|within|over the? left|right? axilla|humerus,
    density|opacity|nodule|mass in|within|over the? soft tissue,
    no change exam, bowel|abdominal mass|air,
    has|have? nearly|almost|largely|partially|mostly|incompletely resolved|cleared,
    almost|nearly completely|entirely|totally|fully resolved|cleared,
    not completely? resolved|cleared, heart rate,
    near|nearly|almost complete? interval? resolution|clearing of?, heart disease,
    has|have cleared|resolved substantially|considerably|significantly|partially|mostly|largely,
    partial|incomplete|some|continued|further|ongoing|gradual interval? resolution|clearing of?,
    marked|significant|substantial|considerable interval? clearing of?,
    not seen|present|identified|visualized|noted|evident|demonstrated previously|before,
    not seen|present|identified|visualized|noted|evident on|in the? prior|previous|comparison,
    not definitely|clearly|well seen|present|appreciated|identified on|in the? prior|previous,
    not definitely|clearly|well? seen|present on|in the? earlier, not clearly seen previously,
    not definitely|clearly|well? seen|visualized|identified|appreciated on the? lateral|frontal,
    not previously seen|present|identified|visualized|noted|evident|described,
    respiratory|renal|hepatic|hardware|treatment failure, joint|knee effusion,
    non specific, accounting|allowing|adjusting for technical? factors?,
    without a|any? comparison|prior|previous|contrast,
    absence of prior|previous|comparison,
    left|right heart border|margin, heart border, dr, may of, not limited, costal cartilage,
    bone density|island|mineralization,
    no additional|further imaging|evaluation|views|followup, cardiac apex|border,
    aortic|mitral valve? annular|annulus? calcification|disease|stenosis, bone scan,
    lead|wire|hardware|catheter fracture, sternal|sternotomy wire fracture,
    fracture of the? lead|wire|hardware|catheter|sternal|sternotomy wire?,
    fractured|broken sternal|sternotomy? lead|wire|catheter, breast implant|prosthesis,
    breast mass|shadow|tissue, mediastinal fat,
    thyroid|pericardial|adrenal|renal|breast mass|nodule|lesion|enlargement|cancer|carcinoma,
    soft tissue edema|oedema|mass|density|nodule, laryngeal|subcutaneous edema|oedema,
    peripheral|extremity|leg|bone|marrow|mucosal|cerebral edema|oedema,
    lung cancer screening, port of entry,
    not well seen|visualized|evaluated|assessed|included,
    not optimally|fully|completely|adequately seen|visualized|evaluated|included|assessed,
    limit|limited evaluation of, right|left chest port, iv line
"""
