"""Reports for parity: random ones, and ones that break tokenizers."""

from __future__ import annotations

import torch

from tests.rrgclinical.chexbert.tiny import WORDS

_MARKS = [".", ",", ". ", ":", "/", "-", "%", "%.", ").", "(", "50%,", "1.5", "cm", "\n", "Dr."]
_NAMES = ["cardiomegaly", "Unchanged", "effusions", "LEFT", "xyzzy", "___", "Pneumonia"]

ADVERSARIAL = [
    "",
    "heart",
    "Heart.",
    ".",
    "no effusion",
    "lungs clear).",
    "50%. (25%) 3%, 'ok.' \"quoted\"",
    'line\\none \\f form \\u2122 mark \\"said\\"',
    "Heart\x0bnormal\x1csize\x85small\u2028lungs\u3000clear\xa0mild",
    "no\r\neffusion\n\n\nthe   heart",
    "  leading and trailing  \n",
    "cafe\u0301 na\u00efve CAFÉ \u0130s \ufb01ne stra\u00dfe \u039f\u03a3",
    "soft\u00adhyphen zero\u200bwidth \ufeffbom \ufffd",
    "\u200b \u200b \u200b heart \u200b",
    "lungs clear 😀 👩🏽‍⚕️ 心臓 한글",
    "[SEP] [CLS] [PAD] [MASK] [UNK] lungs[SEP]clear",
    "a" * 100 + " " + "a" * 101,
    "1.5-cm (mild) 50% effusion!? and/or /. /? 2/3",
    "cardiomegaly " * 31 + "effusions",
    "the heart is normal; no effusion. " * 12,
    "NO EFFUSION. NO EFFUSION.",
    "no effusion. No Effusion. nO eFFUSION",
]

# Around one, two and three rows of 64 pieces, special tokens or none.
ADVERSARIAL += [
    "heart " * n for n in (60, 61, 62, 63, 64, 65, 66, 123, 124, 125, 127, 128, 129, 187)
]


def random_reports(count: int, seed: int = 0, longest: int = 50) -> list[str]:
    """`count` strings of words and marks, of 1 to `longest` of them each."""
    generator = torch.Generator().manual_seed(seed)
    words = [*WORDS, *_MARKS, *_NAMES]
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    picks = [torch.randint(len(words), (n,), generator=generator).tolist() for n in lengths]
    return [" ".join(words[i] for i in pick) for pick in picks]
