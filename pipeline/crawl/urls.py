"""Normalised URLs for URL-based deduplication (paper section 2.1).

Conservative: a rule is here only if it practically never joins two pages. Remaining duplicates are found by
their content.
"""

import re
from urllib.parse import urlsplit

TRACKING = re.compile(
    r"utm_\w+|gclid|gclsrc|dclid|fbclid|msclkid|yclid|twclid|igshid|mc_cid|mc_eid|_ga|_gl|_hsenc|_hsmi|mkt_tok|"
    r"ref_src|ref_url|spm|wt_mc|ncid|cmpid|icid|s_cid|phpsessid|jsessionid|aspsessionid\w*|cfid|cftoken|zenid",
    re.IGNORECASE,
)
# With a digit: WordPress searches by `s`, for one long word too.
SESSION = re.compile(r"(?:s|sid|session|session_?id|sess)=(?=[a-z]*[0-9])[0-9a-z]{16,}", re.IGNORECASE)
PATH_SESSION = re.compile(r";(?:jsessionid|phpsessid|sid)=[^/;]*", re.IGNORECASE)
INDEX_PAGE = re.compile(r"/(?:index|default)\.(?:html?|xhtml|shtml|php[345]?|aspx?|jsp)$", re.IGNORECASE)
ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")
UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
NO_HOST = ".invalid"  # the end of all hosts of rows of texts without URLs
DEFAULT_PORTS = {"http": 80, "https": 443}


def normalise_url(url: str) -> str:
    """One key for all URLs of a page; it cannot be fetched.

    Dropped: scheme, user, `www.`, default port, fragment, trailing slash, index page, tracking and
    session parameters; the host's case and the order of the parameters do not count; needless percent
    escapes are undone.
    """
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:  # invalid host or port: equal only to itself
        return url
    if port is not None and port != DEFAULT_PORTS.get(parts.scheme):
        host = f"{host}:{port}"
    path = INDEX_PAGE.sub("/", PATH_SESSION.sub("", ESCAPE.sub(_unescape, parts.path)))
    parameters = sorted(part for part in parts.query.split("&") if part and not _is_noise(part))
    query = "?" + ESCAPE.sub(_unescape, "&".join(parameters)) if parameters else ""
    return host.removeprefix("www.") + path.rstrip("/") + query


def _unescape(match: re.Match[str]) -> str:
    character = chr(int(match[1], 16))
    return character if character in UNRESERVED else match[0].upper()


def _is_noise(parameter: str) -> bool:
    return (
        TRACKING.fullmatch(parameter.partition("=")[0]) is not None
        or SESSION.fullmatch(parameter) is not None
    )


def source_of(identity: str) -> str:
    """Return the named source of a page's id, or of a file in lineage; "" for any other."""
    return identity.rpartition("/")[0]
