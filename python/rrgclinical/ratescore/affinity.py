"""Weights of matches between entity types in RaTEScore (its published tables)."""

from __future__ import annotations

import torch
from torch import Tensor

from rrgclinical.common.errors import UserError
from rrgclinical.entities import KINDS

TYPES: tuple[str, ...] = KINDS[:5]
"""RaTE-NER's types in the order of `KINDS`, which is that of rows and columns below."""

# Row: the entity's own type; column: that of its best match. Values of the package's 0.4 to 0.6
# (MAGIC-AI4Med/RaTEScore, affinity_matrix/), fitted by its authors on rated report pairs.
_LONG = """
0.4276119164393705 0.5431049700217344 0.0034478181112993847 0.27005425386213877 0.6240929990607657
0.16546764653692908 0.0009357166071730684 0.719397354576018 0.0927333564267591 0.018670610691852826
0.8396510075734789 0.9820689020512646 0.8460555030578727 0.3789136708096537 0.9950209388542061
0.7759420231214385 0.03860183811876373 0.10073046076318157 0.34065681486566446 0.1839139293714062
0.7487824274337533 0.02097055139911715 0.4592143222158069 0.00013736314126696204 0.2856134859160784
"""
_SHORT = """
0.4070293318365468 0.9479148658006686 0.28342529466226446 0.23875064111146294 0.6952639610605605
0.1712744286898638 7.887930317199857e-4 4.5065329822896076e-4 0.8555432840895761 0.4485149671497294
0.8840397619834857 0.6962283914800402 0.19018958438059513 0.943727057946997 0.9637659445696822
0.9555801066212176 0.05650711141169969 0.6072996585919443 0.3214769399791204 0.13122106162635216
0.5829759950441763 0.794672584951181 0.0006059634829551632 0.27982942400798977 0.7709590751917746
"""
_TABLES = {"long": _LONG, "short": _SHORT}

NEG_WEIGHT = {"long": 0.8716553966489615, "short": 0.3611577852354489}
"""The package's 0.6.0 takes the weight of a crossed polarity from the table; 0.4 and 0.5 (and so
EditGRPO) used the short one's for both."""


def affinity(name: str) -> Tensor:
    """[5, 5] fp64 weights, rows and columns in the order of `TYPES`.

    Args:
        name: "long" (the package's default, for whole reports) or "short".

    Raises:
        UserError: another name.
    """
    if name not in _TABLES:
        raise UserError(f"ratescore: affinity {name!r}; choose {' or '.join(_TABLES)}")
    weights = [float(word) for word in _TABLES[name].split()]
    return torch.tensor(weights, dtype=torch.float64).reshape(len(TYPES), -1)
