#!/bin/sh
# xmltodict 1.0.4, untangle 1.3.0, pandas 3.1.1 with lxml: a narrative of a clinical document, "There is
# <content>no</content> effusion.", is text around an element. The first two hand over "There is  effusion." and,
# apart from it, "no"; `read_xml` hands over "There is " and drops the rest. Guess: the words in their order. Seen:
# below.
# So: whoever takes the text of such a report gets a denial without its "no", or no finding at all. Join
# `itertext()` of the element.
set -eu
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
python3 -m pip install -qq --target "$site" xmltodict==1.0.4 untangle==1.3.0 pandas==3.1.1 lxml==6.1.3
PYTHONPATH="$site" python3 - <<'EOF'
import io

import pandas
import untangle
import xmltodict
from lxml import etree

TEXT = "<text>There is <content>no</content> effusion.</text>"
by_xmltodict = xmltodict.parse(TEXT)["text"]
of_untangle = untangle.parse(f"<study>{TEXT}</study>").study.text
by_pandas = pandas.read_xml(io.StringIO(f"<studies><study>{TEXT}</study></studies>"))["text"][0]
whole = "".join(etree.fromstring(TEXT).itertext())
print("xmltodict:", by_xmltodict, "\nuntangle:", repr(of_untangle.cdata), "\nread_xml:", repr(by_pandas), "\nitertext:", whole)
assert by_xmltodict == {"content": "no", "#text": "There is  effusion."}
assert of_untangle.cdata == "There is  effusion." and by_pandas == "There is "
assert whole == "There is no effusion."
EOF
