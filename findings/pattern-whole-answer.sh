#!/bin/sh
# JSON schema searches for a `pattern`: under `{"pattern": "effusion"}` the answer "small effusion" is valid. A judge or a
# report writer held to that schema can write nothing but "effusion" under outlines_core 0.2.14, lm-format-enforcer 0.11.3 and
# xgrammar 0.2.9, which take the pattern for the whole text; llguidance 1.9.1 lets "small effusion" through. Guess: all do.
# Seen: below. So: one schema, valid for the checker, gives a model of one word by three of four backends. Write both
# ends out, `^.*effusion.*$`, which all read alike.
# PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu brings the small build of torch, which xgrammar loads.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" outlines_core==0.2.14 lm-format-enforcer==0.11.3 llguidance==1.9.1 \
  xgrammar==0.2.9 jsonschema==4.26.0 transformers==5.23.0 torch==2.13.0 numpy==2.4.6
PYTHONPATH="$site" python3 -W ignore - <<'PY'
import json
import re

import jsonschema
import xgrammar
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from lmformatenforcer import JsonSchemaParser
from outlines_core.json_schema import build_regex_from_schema

BYTES = [bytes([k]) for k in range(128)]


class Letters:
    """A tokenizer of one byte a token, as llguidance asks for one."""
    tokens, eos_token_id, bos_token_id, special_token_ids = [*BYTES, b"<eos>"], 128, None, [128]

    def __call__(self, text):
        return list(text if isinstance(text, bytes) else text.encode())


def by_outlines(schema, text):
    return re.fullmatch(build_regex_from_schema(json.dumps(schema)), text) is not None


def by_enforcer(schema, text):
    parser = JsonSchemaParser(schema)
    for letter in text:
        if letter not in parser.get_allowed_characters():
            return False
        parser = parser.add_character(letter)
    return parser.can_end()


def by_llguidance(schema, text):
    matcher = LLMatcher(LLTokenizer(TokenizerWrapper(Letters())), LLMatcher.grammar_from_json_schema(schema))
    return matcher.try_consume_tokens(list(text.encode())) == len(text) and matcher.is_accepting()


def by_xgrammar(schema, text):
    letters = xgrammar.TokenizerInfo([token.decode() for token in BYTES] + ["<eos>"], stop_token_ids=[128])
    matcher = xgrammar.GrammarMatcher(xgrammar.GrammarCompiler(letters).compile_json_schema(schema))
    return all(matcher.accept_token(byte) for byte in text.encode()) and matcher.accept_token(128)


for pattern in ("effusion", "^.*effusion.*$"):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}, "required": ["a"],
              "additionalProperties": False}
    jsonschema.validate({"a": "small effusion"}, schema)
    for allows in (by_outlines, by_enforcer, by_llguidance, by_xgrammar):
        answers = [allows(schema, json.dumps({"a": word})) for word in ("effusion", "small effusion", "edema")]
        print(f"{pattern}, {allows.__name__}: effusion {answers[0]}, small effusion {answers[1]}, edema {answers[2]}")
        assert answers == [True, pattern != "effusion" or allows is by_llguidance, False]
PY
