"""Lists of domains whose pages are never kept: files of one domain a line, and the list that datatrove has
for its URLFilter (UT1's categories of adult, phishing and other unwanted sites).

A listed domain covers its subdomains. datatrove's filter also drops URLs by words in them, such as "sex" in
Essex; that is not done here.
"""

import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from datatrove.utils._import_utils import ASSETS_PATH

from pipeline.config.corpus import CorpusSection
from pipeline.data.database import Database
from pipeline.protocol.stage import InputError, Stage

BUNDLE = "url_filterblacklistsv0_3_0.tar.gz"
LISTED = """
CREATE TABLE blocklist AS SELECT DISTINCT lower(trim(domain)) AS domain
FROM read_csv($files, header = false, auto_detect = false, delim = '\\t', quote = '', escape = '',
    comment = '#', columns = {'domain': 'VARCHAR'});
"""
BLOCKED = """
CREATE TABLE blocked AS
WITH hosts AS (SELECT DISTINCT root(place(url)) AS host FROM pages),
split AS (SELECT host, string_split(regexp_replace(host, ':[0-9]*$', ''), '.') AS parts FROM hosts),
parents AS (
    SELECT host, unnest(list_transform(range(1, len(parts)), start -> array_to_string(parts[start:], '.')))
        AS domain FROM split)
SELECT id FROM pages WHERE root(place(url)) IN (SELECT host FROM parents JOIN blocklist USING (domain))
"""


def files_of(stage: Stage[CorpusSection]) -> list[Path]:
    """Return the lists that a stage is given; datatrove's is unpacked to the stage's work folder."""
    files = [Path(path) for path in stage.inputs.get("blocklists", [])]
    if stage.config.unwanted_sites:
        target = stage.work / "unwanted_sites.txt"
        with tarfile.open(Path(ASSETS_PATH) / BUNDLE) as bundle, target.open("wb") as file:
            shutil.copyfileobj(bundle.extractfile("domains"), file)
        files.append(target)
    return files


def add_blocked(database: Database, files: Sequence[Path]) -> None:
    """Create `blocked` (id): the rows of `pages` on listed domains. Raises InputError."""
    if not files:
        database.execute("CREATE TABLE blocked (id VARCHAR)")
        return
    try:
        database.execute(LISTED, {"files": list(map(str, files))})
    except Exception as error:  # DuckDB's own kinds, of which none is common to all faults of a file
        raise InputError(
            f"corpus.blocklists: {', '.join(map(str, files))}: cannot be read ({error})"
        ) from error
    database.execute(BLOCKED)
