"""Templates of assertions that were misread, by kind; `{}` is any finding of the tables."""

from __future__ import annotations

POSITIVE_TWICE_DENIED = """
The lungs are not without {}.
The chest is not free of {}.
The lungs are not entirely free from {}.
Lungs are not completely clear of {}.
The film is not devoid of {}.
There is no lack of {}.
There is no absence of {}.
Never without {}.
The study is not negative for {}.
No effusion, nor is it clear of {}.
No clearing of the {}.
No significant clearing of the {}.
There has been no interval improvement of the {}.
No resolution of the {}.
Without clearing of the {}.
No appreciable regression of the {}.
No change in the {}.
No evidence of resolution of the {}.
The {} is not absent.
The {} is by no means gone.
The {} has by no means resolved.
The {} has not disappeared.
The {} has not yet cleared.
The {} has failed to resolve.
Failure of the {} to resolve.
The lungs are by no means free of {}.
The patient is not lacking {}.
The presence of {} cannot be denied.
There is no doubt about the {}.
The chest is by no means clear of {}.
The lungs are far from free of {}.
There is not a lack of {}.
No improvement is seen in the {}.
The {} has shown no resolution.
Neither lung is free of {}.
No denial of {}.
No further clearing of the {}.
It cannot be said that there is no {}.
It is not true that there is no {}.
Without significant improvement of the {}.
No considerable reduction in the {}.
We cannot deny the {}.
The right side is not spared from {}.
It would be wrong to say that there is no {}.
It is not the case that there is no {}.
It is incorrect that there is no {}.
I do not agree that there is no {}.
No evidence that the {} has resolved.
There is no definite sign that the {} has cleared.
No suggestion that {} is absent.
"""

UNCERTAIN_TWICE_DENIED = """
{} is not unlikely.
{} is not impossible.
{} is not improbable.
{} is by no means excluded.
{} is by no means ruled out.
{} is by no means impossible.
{} cannot be excluded.
{} cannot be ruled out.
{} has not been excluded.
{} is not entirely excluded.
{} is not implausible.
{} is not out of the question.
{} is not inconceivable.
It is not unlikely that this is {}.
It is not impossible that there is {}.
Not unlikely to represent {}.
This is not improbably {}.
The study fails to exclude {}.
This does not rule out {}.
It is by no means unlikely that this is {}.
Not impossible is {}.
It is not improbable that this represents {}.
{} is not at all unlikely.
{} is hardly excluded.
{} cannot be dismissed.
{} would not be unlikely.
It is possible that there is {}.
Can neither confirm nor exclude {}.
{} is neither confirmed nor excluded.
{} cannot be confirmed or excluded.
Without excluding {}.
Not excluded: {}.
"""

LIMITED = """
No more than mild {}.
There is no more than a trace {}.
No more than minimal {} is seen.
Not more than mild {}.
No larger than small {}.
No greater than mild {}.
No less than moderate {}.
Not less than moderate {}.
Nothing more than mild {}.
Nothing worse than mild {}.
None more than mild {}.
No worse than mild {}.
Not exceeding a small {}.
At most small {}.
Nothing beyond mild {}.
Nothing but mild {}.
No greater in size than a small {}.
Without more than mild {}.
No pneumoperitoneum, no more than mild {}.
No scoliosis, at most mild {}.
No scoliosis and no more than mild {}.
The {} is no larger than before.
The {} is no more than mild.
The {} is not larger than before.
No more extensive than mild {}.
No bigger than small {}.
Not larger than small {}.
At most, small {}.
{} not exceeding mild.
No scoliosis; no more than mild {}.
"""

NO_MORE = """
No more {}.
There is no more {}.
There is no more {} seen.
No {} larger than before.
"""

EXCEPTED = """
No {} except on the left.
No {} except small left.
No {} except for a trace on the left.
No {} save for a small one.
No {} save on the right.
No {} apart from a trace on the left.
No {} other than on the left.
No {} aside from a tiny left one.
No {} with the exception of the left.
No {} with the exception of a small amount on the right.
No {}, with the exception of a tiny one on the left.
No {} but for a trace on the right.
No {} excepting the right.
No {} barring a small one on the right.
No {} besides a trace on the left.
There is no {} except in the right lower lobe.
There is no evidence of {} except at the right base.
No {} is seen except at the left apex.
No {}, except on the left side.
No {}; except on the left.
No scoliosis or {} except on the left.
Without {} except on the left.
No {} (except on the left).
Free of {} except on the left.
No {} except for minimal on the right.
No {} except for a little on the left.
Except on the left, no {}.
Apart from a trace on the left, there is no {}.
Other than a small one on the left, no {}.
No {} except on the right where it is small.
No {} bar a small one on the left.
No {} excluding the left.
No {}, other than a trace on the right.
With the exception of the left base, there is no {}.
No {} outside of the left base.
No {} elsewhere than on the left.
No {} anywhere but the left base.
No {} beyond a trace.
"""

EXCEPTED_POSSIBLY = """
No {} except perhaps on the left.
No {} except for a possible trace on the left.
"""

EXCEPTED_OTHER = """
No {} except for scoliosis.
No {} other than left scoliosis.
No {} aside from mild rotation.
Aside from mild rotation, no {}.
No {} except for a small left hiatal hernia.
Apart from scoliosis, no {}.
No {} except as stated.
No {} other than the pacemaker.
No {} apart from an enlarged heart.
"""

DENIED_FIRST = """
No longer seen is the {}.
No longer seen is the right {}.
Gone is the {}.
Gone are the {}.
Not seen today is the prior {}.
Not seen on today's study is any {}.
Not identified are {}.
Not identified is {}.
Not present is {}.
Not visualized is the previous {}.
Nowhere seen is {}.
Nowhere is {} seen.
Absent is {}.
Absent is the prior {}.
Resolved is the {}.
Resolved since the prior exam is the {}.
Cleared has the {}.
Disappeared has the {}.
Vanished is the {}.
No longer present is the {}.
No longer evident on the current exam is the {}.
No longer visible is the left {}.
Not demonstrated is a {}.
Ruled out is {}.
Excluded is {}.
Missing is any {}.
No longer is there {}.
Completely resolved is the {}.
There is scoliosis, but gone is the {}.
The scoliosis is unchanged and no longer seen is the {}.
The scoliosis is unchanged; not seen is the {}.
Gone now is the {}.
Gone from the left base is the {}.
Cleared since yesterday is the {}.
Not there is the {}.
Not to be seen is the {}.
Missing today is the {}.
No longer can the {} be seen.
Not identified: {}.
Absent: {}.
Pertinent negatives: {}.
Excluded: {}.
No evidence that this is {}.
"""

SOUGHT = """
CT can be performed to look for {}.
CT can be performed to look for a {}.
A CT may be done to evaluate for {}.
CT could be obtained to exclude {}.
Recommend CT to exclude {}.
Recommend CT to assess for {}.
Recommend CT to rule out {}.
Recommend CT to detect {}.
Recommend CT to search for {}.
Recommend CT to screen for {}.
CT may be helpful to rule out {}.
CT would be useful to look for {}.
Further evaluation with CT for possible {}.
Recommend CT for possible {}.
Consider CT for suspected {}.
Recommend further imaging to determine whether there is {}.
CT is suggested to see if there is {}.
MRI is advised in search of {}.
Ultrasound could be performed to confirm {}.
A lateral view may be obtained to look for {}.
Lateral decubitus views can be obtained to check for {}.
Followup radiograph is recommended to ensure there is no {}.
Recommend repeat radiograph to make sure there is no {}.
To exclude {}, CT is recommended.
To look for {}, a CT could be performed.
CT may show {}.
CT might reveal {}.
An expiratory film could demonstrate {}.
CT can be obtained to find {}.
CT to identify {}.
Consider CT to establish whether {} is present.
CT is recommended to look for an underlying {}.
Please look for {}.
CT to assess the chest for {}.
CT to evaluate the right base for {}.
Chest CT for exclusion of {}.
Follow up imaging to verify {}.
{} should be sought by CT.
{} could be looked for by CT.
CT might be helpful in excluding {}.
A chest CT could help identify {}.
Attention on followup for {}.
CT to confirm or exclude {}.
In order to exclude {}, CT could be performed.
Recommend CT for {}.
Should {} be suspected clinically, CT is advised.
The clinical question is {}.
"""

STANDING = """
{} on the right; CT recommended to evaluate the {}.
{} on the right. CT is recommended to further evaluate.
There is {}, for which CT is recommended.
{}; recommend CT to evaluate the {}.
Right {}, CT recommended.
The {} should be evaluated by CT.
Recommend CT of the {}.
CT shows {}.
CT is recommended to evaluate the {}.
Comparison CT shows a {}.
The cause of the {} is uncertain.
The age of the {} is in question.
Some signs of {}.
This should be {}.
"""

HEDGED = """
{}, borderline.
{}, possible.
{}, possibly.
{}, likely.
{}, probable.
{}, probably.
{}, questionable.
{}, suspected.
{}, equivocal.
{}, doubtful.
{}, maybe.
{}, perhaps.
{}, presumably.
{}, conceivably.
{}, potentially.
{}, uncertain.
{}, not excluded.
{}, cannot be excluded.
{}, most likely.
{}, less likely.
{}, if any.
{}, borderline; no scoliosis.
{}, possibly, on the left.
{} (possible).
{} (borderline).
{} - possible.
{} is borderline.
{} - borderline.
{}, small, possible.
{}, query.
{}, indeterminate.
Borderline {}.
Borderline mild {}.
{} -- possible.
{}, suggested.
{}, potential.
{}, ?
{}: possible.
Left {}, likely.
{} is in question.
{} is uncertain.
{} is not certain.
It is unclear whether there is {}.
We do not know whether there is {}.
Cannot tell whether the {} has resolved.
Query {}.
"""

EARLIER = """
The {} of the right base was on an earlier CT.
The {} was on a prior CT.
The {} was on an earlier film.
The right {} was on the previous study.
The {} was only on the prior radiograph.
The {} was there on the previous CT.
The {} of the right base was seen on an earlier CT.
"""

STILL = """
The {} was seen on the prior CT and is unchanged.
The {} is unchanged from an earlier CT.
Stable {} compared to prior CT.
"""
