#!/bin/sh
# torchvision 0.28.0: v2's `Resize` of a uint16 film by bicubic interpolation does not cut what overshoots below 0:
# beside a bright edge 2 % of the pixels of an enlarged film become 65,000, white on black. uint8 is cut, int32
# goes below 0. `ToTensor` gives mode I;16 as int16, so that 40000 is -25536; `PILToTensor` and `ToImage` give it
# right. Guess: cut at 0, and 40000. Seen: below. So: small films, enlarged to the size of a tower, get specks of
# white along bright edges and markers; resize as float32 and clamp.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" torch==2.13.0 numpy==2.4.6 Pillow==13.0.0
python3 -m pip install -qq --no-deps --target "$site" torchvision==0.28.0
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import numpy as np
import torch
from PIL import Image

# where the two are of unlike builds the C++ operators are absent; nothing here calls one
register, torch.library.register_fake = torch.library.register_fake, lambda *_, **__: lambda made: made
from torchvision.transforms import InterpolationMode, ToTensor, v2

torch.library.register_fake = register
film = torch.full((1, 64, 64), 50)
film[:, 16:48, 16:48] = 4000
resize = v2.Resize((200, 200), interpolation=InterpolationMode.BICUBIC)
for kind in (torch.uint16, torch.int32, torch.float32):
    values = resize(film.to(kind)).double()
    white = (values > 10_000).double().mean().item()
    print(f"{kind}: from {values.min():.0f} to {values.max():.0f}, {white:.1%} above 10,000")
    assert (values.max() > 65_000 and white > 0.01) if kind is torch.uint16 else (values.min() < 0 and white == 0)
image = Image.fromarray(np.array([[100, 40_000]], np.uint16))
for change in (ToTensor(), v2.PILToTensor(), v2.ToImage()):
    values = change(image)
    print(f"{type(change).__name__}: {values.dtype} {values.flatten().tolist()}")
    assert values.flatten().tolist() == [100, -25_536 if isinstance(change, ToTensor) else 40_000]
EOF
