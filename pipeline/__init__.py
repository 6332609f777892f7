"""DeepSeekMath, end to end: one package or module per stage, each an argv program; none imports Snakemake.

Text files and standard streams are UTF-8 in every program, whatever the user's locale.
"""

import locale
import sys
from contextlib import suppress

with suppress(locale.Error):  # decides the encoding of each `open` without one
    locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
for stream in (sys.stdin, sys.stdout, sys.stderr):
    if stream and (stream.encoding or "utf-8").lower() != "utf-8":
        stream.reconfigure(encoding="utf-8")
