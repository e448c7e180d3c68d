#!/bin/sh
# A judge held to a JSON schema: `{"type": "integer", "minimum": 0, "maximum": 5}` lets 7 and -1 through in
# outlines_core 0.2.14 and lm-format-enforcer 0.11.3, which read neither bound and say nothing; llguidance 1.9.1
# refuses both. All three obey maxLength. Guess: all obey the bounds, or refuse the schema. Seen: below. So: a
# server's answers change with its backend for structured output, and a score of -1 can reach a reward that
# believes in its schema. Check the range again behind the parser.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" outlines_core==0.2.14 lm-format-enforcer==0.11.3 llguidance==1.9.1
PYTHONPATH="$site" python3 -W ignore - <<'EOF'
import json
import re

from llguidance import LLMatcher, LLTokenizer
from lmformatenforcer import JsonSchemaParser
from outlines_core.json_schema import build_regex_from_schema


def by_outlines(schema, answer):
    """Return whether the schema's regular expression takes the answer."""
    return re.fullmatch(build_regex_from_schema(json.dumps(schema)), answer) is not None


def by_enforcer(schema, answer):
    """Return whether the parser allows each character of the answer and its end."""
    parser = JsonSchemaParser(schema)
    for letter in answer:
        if letter not in parser.get_allowed_characters():
            return False
        parser = parser.add_character(letter)
    return parser.can_end()


def by_llguidance(schema, answer):
    """Return whether the matcher takes each byte of the answer and its end."""
    matcher = LLMatcher(LLTokenizer("byte"), LLMatcher.grammar_from_json_schema(json.dumps(schema)))
    return all(matcher.try_consume_tokens([byte]) == 1 for byte in answer.encode()) and matcher.is_accepting()


errors = {"type": "integer", "minimum": 0, "maximum": 5}
short = {"type": "string", "maxLength": 3}
taken = {}
for judge in (by_outlines, by_enforcer, by_llguidance):
    taken[judge.__name__] = [judge(errors, answer) for answer in ("3", "7", "-1")]
    print(judge.__name__, "3, 7, -1:", taken[judge.__name__])
    assert judge(short, '"abc"') and not judge(short, '"abcd"')
assert taken["by_outlines"] == taken["by_enforcer"] == [True, True, True]
assert taken["by_llguidance"] == [True, False, False]
EOF
