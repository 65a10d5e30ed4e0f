"""How credentials look in text: `RULES`.

Many have a shape that their vendor documents. What has none (a password, any 40 characters) is known by what
stands before it.
"""

from __future__ import annotations

import re

from agentrund_client._secret_keys import is_folder, is_secret_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MASK = "__REDACTED__"
_WORD = "(?<![A-Za-z0-9])"
_END = "(?![A-Za-z0-9])"

_TEXT = "[A-Za-z0-9_-]"
_PLAIN = "[A-Za-z0-9]"
_HEX = "[0-9a-f]"
_PEM = "[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?"

_SHAPES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("stripe", ("_live_", "_test_"), rf"{_WORD}[rsp]k_(?:live|test)_{_PLAIN}{{10,}}"),
    ("sk-style", ("sk-", "sk_", "rk-", "rk_", "pk-", "pk_"), rf"{_WORD}[srp]k[-_]{_TEXT}{{16,}}"),
    ("stripe-webhook", ("whsec_",), rf"{_WORD}whsec_{_PLAIN}{{20,}}"),
    ("github", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), rf"{_WORD}gh[pousr]_{_PLAIN}{{16,}}"),
    ("github-fine", ("github_pat_",), rf"{_WORD}github_pat_[A-Za-z0-9_]{{16,}}"),
    ("gitlab", ("glpat-", "glptt-", "gldt-", "glrt-", "glcbt-", "gloas-", "glft-", "glsoat-", "glimt-"),
     rf"{_WORD}gl(?:pat|ptt|dt|rt|cbt|oas|ft|soat|imt)-{_TEXT}{{16,}}"),
    ("aws-key-id", ("akia", "asia", "abia", "acca"), rf"{_WORD}A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{{16}}{_END}"),
    ("google-api", ("aiza",), rf"{_WORD}AIza{_TEXT}{{30,}}"),
    ("google-oauth", ("ya29.",), rf"{_WORD}ya29\.{_TEXT}{{20,}}"),
    ("google-client", ("gocspx-",), rf"{_WORD}GOCSPX-{_TEXT}{{20,}}"),
    ("google-refresh", ("1//0",), rf"{_WORD}1//0{_TEXT}{{30,}}"),
    ("slack", ("xox",), rf"{_WORD}xox[abeoprs](?:\.xox[a-z])?-[A-Za-z0-9-]{{10,}}"),
    ("slack-app", ("xapp-",), rf"{_WORD}xapp-[0-9]-[A-Z0-9]+-[0-9]+-[a-z0-9]{{20,}}"),
    ("hugging-face", ("hf_",), rf"{_WORD}hf_{_PLAIN}{{20,}}"),
    ("npm", ("npm_",), rf"{_WORD}npm_{_PLAIN}{{30,}}"),
    ("pypi", ("pypi-",), rf"{_WORD}pypi-{_TEXT}{{50,}}"),
    ("rubygems", ("rubygems_",), rf"{_WORD}rubygems_{_HEX}{{40,}}"),
    ("crates", ("cio",), rf"{_WORD}cio[A-Za-z0-9]{{32}}{_END}"),
    ("jwt", ("eyj",), rf"{_WORD}eyJ{_TEXT}{{8,}}\.eyJ{_TEXT}{{8,}}\.{_TEXT}*"),
    ("sendgrid", ("sg.",), rf"{_WORD}SG\.{_TEXT}{{16,}}\.{_TEXT}{{16,}}"),
    ("twilio", ("sk",), rf"{_WORD}SK{_HEX}{{32}}{_END}"),
    ("mailgun", ("key-",), rf"{_WORD}key-{_HEX}{{32}}{_END}"),
    ("mailchimp", ("-us",), rf"{_WORD}{_HEX}{{32}}-us[0-9]{{1,2}}{_END}"),
    ("groq", ("gsk_",), rf"{_WORD}gsk_{_PLAIN}{{20,}}"),
    ("xai", ("xai-",), rf"{_WORD}xai-{_PLAIN}{{20,}}"),
    ("replicate", ("r8_",), rf"{_WORD}r8_{_PLAIN}{{30,}}"),
    ("perplexity", ("pplx-",), rf"{_WORD}pplx-{_PLAIN}{{30,}}"),
    ("tavily", ("tvly-",), rf"{_WORD}tvly-[A-Za-z0-9-]{{20,}}"),
    ("nvidia", ("nvapi-",), rf"{_WORD}nvapi-{_TEXT}{{30,}}"),
    ("langsmith", ("lsv2_", "ls__"), rf"{_WORD}(?:lsv2_(?:pt|sk)_[A-Za-z0-9_]{{30,}}|ls__{_HEX}{{32}})"),
    ("fireworks", ("fw_",), rf"{_WORD}fw_{_PLAIN}{{20,}}"),
    ("e2b", ("e2b_",), rf"{_WORD}e2b_{_HEX}{{30,}}"),
    ("elevenlabs", ("sk_",), rf"{_WORD}sk_{_HEX}{{40,}}"),
    ("pinecone", ("pcsk_",), rf"{_WORD}pcsk_[A-Za-z0-9_]{{30,}}"),
    ("supabase", ("sbp_", "sb_secret_"), rf"{_WORD}(?:sbp_{_HEX}{{40}}|sb_secret_{_TEXT}{{20,}})"),
    ("planetscale", ("pscale_",), rf"{_WORD}pscale_(?:tkn|pw|oauth)_{_TEXT}{{30,}}"),
    ("databricks", ("dapi",), rf"{_WORD}dapi{_HEX}{{32}}(?:-[0-9])?{_END}"),
    ("digitalocean", ("_v1_",), rf"{_WORD}do[opr]_v1_{_HEX}{{40,}}"),
    ("heroku", ("hrku-",), rf"{_WORD}HRKU-{_TEXT}{{30,}}"),
    ("fly", ("fm1", "fm2_", "fo1_"), rf"{_WORD}(?:fo1_{_TEXT}{{40,}}|fm[12][ar]?_[A-Za-z0-9+/=_-]{{60,}})"),
    ("atlassian", ("atatt3", "atctt3"), rf"{_WORD}AT[AC]TT3[A-Za-z0-9_=-]{{50,}}"),
    ("bitbucket", ("atbb",), rf"{_WORD}ATBB{_PLAIN}{{20,}}"),
    ("linear", ("lin_",), rf"{_WORD}lin_(?:api|oauth)_{_PLAIN}{{30,}}"),
    ("notion", ("ntn_", "secret_"), rf"{_WORD}(?:ntn|secret)_{_PLAIN}{{40,}}"),
    ("figma", ("figd_", "figo_", "figu_"), rf"{_WORD}fig[dou]_{_TEXT}{{20,}}"),
    ("airtable", ("pat",), rf"{_WORD}pat{_PLAIN}{{14}}\.{_HEX}{{64}}"),
    ("postman", ("pmak-",), rf"{_WORD}PMAK-{_HEX}{{24}}-{_HEX}{{34}}"),
    ("new-relic", ("nrak-", "nrii-"), rf"{_WORD}NR(?:AK|II)-{_TEXT}{{20,}}"),
    ("grafana", ("glsa_",), rf"{_WORD}glsa_{_PLAIN}{{32}}_{_HEX}{{8}}"),
    ("grafana-cloud", ("glc_eyj",), rf"{_WORD}glc_eyJ[A-Za-z0-9+/=]{{30,}}"),
    ("sentry", ("sntrys_", "sntryu_"), rf"{_WORD}sntry[su]_[A-Za-z0-9+/=_-]{{40,}}"),
    ("docker", ("dckr_",), rf"{_WORD}dckr_(?:pat|oat)_{_TEXT}{{20,}}"),
    ("dropbox", ("sl.",), rf"{_WORD}sl\.(?:u\.)?{_TEXT}{{80,}}"),
    ("shopify", ("shpat_", "shpca_", "shppa_", "shpss_"), rf"{_WORD}shp(?:at|ca|pa|ss)_{_HEX}{{32}}"),
    ("square", ("sq0", "eaaa"), rf"{_WORD}(?:sq0(?:atp|csp|idp)-{_TEXT}{{22,}}|EAAA{_TEXT}{{58,}})"),
    ("facebook", ("eaa",), rf"{_WORD}EAA{_PLAIN}{{80,}}"),
    ("contentful", ("cfpat-",), rf"{_WORD}CFPAT-{_TEXT}{{40,}}"),
    ("doppler", ("dp.",), rf"{_WORD}dp\.(?:pt|st|ct|sa|scim|audit)\.{_TEXT}{{40,}}"),
    ("vault", ("hvs.", "hvb.", "hvr."), rf"{_WORD}hv[sbr]\.{_TEXT}{{24,}}"),
    ("terraform", (".atlasv1.",), rf"{_WORD}{_PLAIN}{{14}}\.atlasv1\.{_TEXT}{{60,}}"),
    ("pulumi", ("pul-",), rf"{_WORD}pul-{_HEX}{{40}}{_END}"),
    ("age", ("age-secret-key-",), rf"{_WORD}AGE-SECRET-KEY-1[0-9A-Z]{{50,}}"),
    ("1password", ("ops_eyj",), rf"{_WORD}ops_eyJ[A-Za-z0-9_=-]{{40,}}"),
    ("azure-client", ("8q~",), r"[A-Za-z0-9_~.-]{3}8Q~[A-Za-z0-9_~.-]{30,}"),
    ("telegram", (":aa",), rf"{_WORD}[0-9]{{8,10}}:AA{_TEXT}{{32,}}"),
    ("discord", ("discord",), rf"{_WORD}[MNO]{_TEXT}{{23,27}}\.{_TEXT}{{6}}\.{_TEXT}{{27,}}"),
    ("private-key", ("private key",),
     rf"-----BEGIN {_PEM}-----[\s\S]*?(?:-----END {_PEM}-----|\Z)"),
)  # fmt: skip

_NAMES = (
    "api[_-]?key|access[_-]?key|secret[_-]?key|private[_-]?key|account[_-]?key|auth[_-]?key|signing[_-]?key|"
    "encryption[_-]?key|authorization|passwd|password|passphrase|pwd|secret|token|credential"
)
_HOOKS = r"hooks\.slack\.com/(?:services|workflows|triggers)/|/api/webhooks/[0-9]+/|webhook\.office\.com/"
_GIVEN = (
    r"[\"'\\]*(?P<to>\s*(?:=>|:=|[:=])\s*)(?P<quote>[\"'\\]*)"
    rf"(?!{MASK})(?P<value>[^\s\"',;&{{}}\[\]()<>\\]{{8,}}+)(?P<call>[(\[]?)"
)
_NAME_LETTERS = ("key", "authorization", "passw", "passphrase", "pwd", "secret", "token", "credential")
_PLACEHOLDER = re.compile(
    r"[$%*.]|x{3}|(?:your|my|some|example|placeholder|changeme|undefined|required|optional|redacted|none|null)(?![a-z])",
    re.IGNORECASE,
)
_NAME_END = re.compile(r"[A-Za-z0-9_.-]+\Z")
_NAME_MOST = 64
_CODE = re.compile(r"[A-Za-z_]\w*(?:(?:\.|::|->)[A-Za-z_]\w*)*[.:]?")


_SHORT, _LONG = 8, 16
"""Letters that a random part has at least where digits are among them, and where none are."""


def is_random(text: str) -> bool:
    """Whether letters, digits and signs are mixed as in no word, or there are more of them than in one."""
    parts = re.split(r"[-_.~+/=:]", text)
    return (
        any(len(part) >= _LONG or (len(part) >= _SHORT and _is_mixed(part)) for part in parts)
        or re.search(r"[!@#^*]", text) is not None
        or (len(parts) == 1 and _is_mixed(text))
    )


def _is_mixed(text: str) -> bool:
    return re.search("[0-9]", text) is not None and re.search("[A-Za-z]", text) is not None


def _always(match: re.Match[str]) -> bool:
    return not _PLACEHOLDER.match(match["value"])


def _random(match: re.Match[str]) -> bool:
    return _is_mixed(match["value"]) and is_random(match["value"])


def _assigned(match: re.Match[str]) -> bool:
    """Whether what a secret's name is given is one: no counter, no call, no name of a variable, no word."""
    before = _NAME_END.search(match.string, max(0, match.start() - _NAME_MOST), match.start())
    name, to, value = (before[0] if before else "") + match["name"], match["to"], match["value"]
    if _PLACEHOLDER.match(value) or match["call"] or not is_secret_key(name) or is_folder(name, value):
        return False
    if "token" in name.lower() and value.replace(".", "").isdigit():
        return False
    if match["quote"]:
        return True
    is_code = _CODE.fullmatch(value) is not None
    if to == "=":
        return not (is_code and "." in value)
    return is_random(value) and not (is_code and not _is_mixed(value))


def _shape(match: re.Match[str]) -> bool:
    """Words in a row may begin as a key does: `sk-learn-pipelines-for-everybody`, `pk_of_a_table`."""
    return match[0][1:3] not in ("k-", "k_") or is_random(match[0][3:])


class Rule:
    """A pattern, and which of its matches are secrets; of those the group `value` is masked, if it has one.

    One of the `letters` (in lower case) is in every match: most texts have none, and are not searched.
    """

    __slots__ = ("is_secret", "letters", "name", "pattern")

    def __init__(
        self,
        name: str,
        letters: tuple[str, ...],
        pattern: str,
        is_secret: Callable[[re.Match[str]], bool] = _shape,
    ) -> None:
        self.name = name
        self.letters = letters
        self.pattern = pattern
        self.is_secret = is_secret


RULES: tuple[Rule, ...] = (
    *(Rule(*shape) for shape in _SHAPES),
    Rule(
        "url-password",
        ("://",),
        r"\b[a-z][a-z0-9+.-]*://[^\s:/@\"'<>]*:(?P<value>[^\s/@\"'<>]{3,})@",
        _always,
    ),
    Rule(
        "url-signature",
        ("sig", "auth="),
        r"(?i)[?&](?:x-amz-signature|signature|sig|auth)=(?P<value>[^&\s\"'#<>]{12,})",
        _always,
    ),
    Rule(
        "webhook",
        ("hooks.slack.com", "/api/webhooks/", "webhook.office.com"),
        rf"(?:{_HOOKS})(?P<value>[A-Za-z0-9@/+_-]{{20,}})",
        _always,
    ),
    Rule(
        "authorization",
        ("bearer", "basic", "token ", "apikey "),
        r"(?i)\b(?:bearer|basic|token|apikey)\s+(?P<value>[A-Za-z0-9._~+/=!#%*^-]{12,})",
        _random,
    ),
    Rule(
        "cookie",
        ("cookie",),
        r"(?i)cookie[\"'\\]*\s*[:=]\s*[\"'\\]*(?P<value>[^\s=;\"'\\]+=[^\r\n\"'\\]{6,})",
        _always,
    ),
    Rule(
        "assigned",
        _NAME_LETTERS,
        rf"(?i)(?P<name>(?:{_NAMES})[a-z0-9_-]{{0,24}}){_GIVEN}",
        _assigned,
    ),
)
