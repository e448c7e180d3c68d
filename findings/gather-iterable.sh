#!/bin/sh
# accelerate 1.15.0, two ranks: `gather_for_metrics` drops what filled up the last batch where the data set has a
# length, and where rank 0 hands out an iterable one. With dispatch_batches=False, which lets every rank read for
# itself, ten studies of an iterable set come back as sixteen, the first six twice, with no more than a line at the
# level of info. Guess: ten. Seen: below. So: a validation that streams its films counts its first studies twice, by
# how many ranks there are. Gather the ids too, and drop what came before.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" accelerate==1.15.0 torch==2.13.0 numpy==2.4.6
cat > "$site/ranks.py" <<'EOF'
import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration


class Stream(torch.utils.data.IterableDataset):
    """Ten studies without a length."""

    def __iter__(self):
        return iter(torch.arange(10))


for name, data, how in (("with a length", torch.arange(10), None), ("iterable, handed out", Stream(), True),
                        ("iterable, each for itself", Stream(), False)):
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=how))
    loader = accelerator.prepare(torch.utils.data.DataLoader(data, batch_size=4))
    gathered = sorted(study for batch in loader for study in accelerator.gather_for_metrics(batch).tolist())
    if accelerator.is_main_process:
        print(f"{name}: {gathered}", flush=True)
    assert gathered == sorted([*range(10), *(range(6) if how is False else ())])
accelerator.end_training()
EOF
OMP_NUM_THREADS=1 PYTHONPATH="$site" PYTHONWARNINGS=ignore python3 -m torch.distributed.run --standalone \
    --nproc_per_node 2 "$site/ranks.py" 2>"$site/log" || { cat "$site/log" >&2; exit 1; }
