"""What surrounds the content of a page: elements of known site software, lines that only steer or advertise.

Resiliparse leaves out navigation, sidebars and footers by their markup. This adds what it keeps: controls
inside of posts, payment dialogs, and single lines. Removed lines are counted by reason.
"""

import re
from collections import Counter

from resiliparse.parse.html import HTMLTree

ELEMENTS = (  # (keyword in the head of a page of such software, selectors of what is removed)
    (
        "sstatic.net",
        ".js-voting-container, .votecell, .js-post-menu, .js-comment-flag, .comment-score, "
        ".js-comments-link-container,"
        " #post-form, .js-post-notice, .bottom-notice, .answers-subheader, .post-taglist, "
        ".js-comment-actions,"
        " .s-user-card, .user-info, .vote, .post-menu, .comment-actions, .comments-link,"
        " #answers-header .subheader",
    ),
    (
        "csdn",
        ".hide-article-box, .recommend-box, .csdn-side-toolbar, .csdn-toolbar, .more-toolbox, "
        ".more-toolbox-new, .vip-mask,"
        " .article-info-box, .comment-box, .pay-box, .pos-box, #rewardNew, #pay-course-modal, "
        ".reward-user-box,"
        " .person-messagebox, .blog-column-pay, .column-studio, .article-copyright, .blog-tags-box, "
        ".skill-tree-box,"
        " #treeSkill, #recommendNps, .operating, .template-box, .csdn-redpack-container, .red-packet-box,"
        " .blog-footer-bottom",
    ),
    ("MediaWiki", ".mw-editsection, .mw-editsection-like"),
    ("vBulletin", "#similar_threads, .posthead, .userinfo, .postfoot, .signaturecontainer"),
    ("PreTeXt", "#ptx-page-footer, .ptx-content-footer"),
    ("VuePress", "a.header-anchor"),
    ("Docusaurus", "a.hash-link"),
    ("XenForo", ".message-actionBar, .message-attribution-opposite, .message-signature, .reactionsBar"),
    ("phpbb", ".postprofile, .post-buttons, .signature, .action-bar"),
    ("zhihu", ".ContentItem-actions, .RichContent-actions, .Reward, .Post-topicsAndReviewer"),
)
NAVIGATION = (
    r"Prev(?:ious)?|Next|Up|Top|Home|Contents?|Index|Back|First|Last|TOC|上一[页篇章节]|"
    r"下一[页篇章节]|目录|首页|返回"
)
NETWORKS = (
    r"Facebook|Twitter|LinkedIn|Instagram|YouTube|Pinterest|WhatsApp|Telegram|Reddit|Tumblr|"
    r"Google\+|WeChat|Weibo|微信|微博|QQ"
)
LINES = {
    "navigation": rf"(?:{NAVIGATION})(?:[\W_]{{0,4}}+(?:{NAVIGATION})){{1,11}}+",
    "sharing": rf"(?:Share|Follow|Like|Tweet|Find|Join|Pin|Save|分享|关注|"
    rf"转发)[^.]{{0,40}}(?:{NETWORKS}).{{0,30}}|"
    rf"(?:Share|Tweet|Email|{NETWORKS})(?:\W{{0,4}}+(?:Share|Tweet|Email|Print|Pin ?it|{NETWORKS})){{1,9}}+|"
    r"分享到[:：]?.{0,30}",
    "answer form": r"Your Answer|Post Your Answer|Draft (?:saved|discarded)|Add a comment|Sign up or log in|"
    r"Show \d+ more comments?|Thanks for contributing an answer to .*|"
    r"Please be sure to answer the question\..*|"
    r"But avoid …|Asking for help, clarification.*|Making statements based on opinion.*|Post as a guest|"
    r"Use MathJax to format equations\..*|To learn more, see our tips on writing great answers\.?|"
    r"Sign up using (?:Google|Facebook|Email and Password)|Required, but never shown|"
    r"By clicking .Post Your Answer.*|Not the answer you're looking for\? Browse other questions.*|"
    r"(?:Improve|Cite|Share) this (?:question|answer)|Highly active question\..*",
    "payment": r"余额充值|实付\s?\d*\s?元|使用余额支付|点击重新获取|扫码支付|钱包余额\s?\d*|"
    r"抵扣说明：?|打赏作者|"
    r"成就一亿技术人!|\d\.余额.*|您的余额不足.*|(?:[¥￥]\d+\s*){2,12}|最低[\d.]+元/天 ?解锁文章|"
    r"当前余额[\d.]*元.*|"
    r"需支付：[\d.]*元|领取后你会自动成为.*|你的鼓励将是我创作的最大动力|取消 ?确定|立即(?:支付|购买|"
    r"订阅|开通)|"
    r"超级会员免费看|开通VIP.*|购买专栏.*|版权声明：本文为博主原创文章.*|点赞 ?\d* ?收藏 ?\d*.*",
    "notice": r"(?:Please )?enable JavaScript.*|You need to enable JavaScript.*|Advertisements?|"
    r"Report this ad|"
    r"(?:This (?:web)?site|We) uses? cookies (?:to (?:im|en|pro|per|of|gi)|and|for|on).*|"
    r"JavaScript (?:is|seems to be) (?:disabled|required).*|"
    r"Skip to (?:main )?content",
    "votes": r"up vote -?\d+ down vote(?: favorite)?|\d+ ?(?:up)?votes?\.?",
}
REASONS = {f"r{number}": reason for number, reason in enumerate(LINES)}
PATTERN = re.compile(
    "|".join(f"(?P<{name}>{LINES[reason]})" for name, reason in REASONS.items()), re.IGNORECASE
)
# The first two letters of every pattern above, so that other lines cost no search.
STARTS = frozenset(
    [
        "pr",
        "ne",
        "up",
        "to",
        "ho",
        "co",
        "in",
        "ba",
        "fi",
        "la",
        "上一",
        "下一",
        "目录",
        "首页",
        "返回",
        "sh",
        "fo",
        "li",
        "tw",
        "jo",
        "pi",
        "sa",
        "分享",
        "关注",
        "转发",
        "em",
        "fa",
        "in",
        "yo",
        "wh",
        "te",
        "re",
        "tu",
        "go",
        "we",
        "微信",
        "微博",
        "qq",
        "dr",
        "ad",
        "th",
        "pl",
        "bu",
        "as",
        "ma",
        "us",
        "si",
        "by",
        "no",
        "im",
        "ci",
        "hi",
        "po",
        "余额",
        "实付",
        "使用",
        "点击",
        "扫码",
        "钱包",
        "抵扣",
        "打赏",
        "成就",
        "您的",
        "最低",
        "当前",
        "需支",
        "领取",
        "你的",
        "取消",
        "立即",
        "超级",
        "开通",
        "购买",
        "版权",
        "点赞",
        "en",
        "ja",
        "sk",
    ]
)
DECORATION = "«»‹›<>←→⇐⇒↑↓|·•*_-–—=+[]() \t\xa0"
DIGITS = frozenset("0123456789¥￥")
HEAD = 10_000  # characters
MAX_LINE = 120
UNDECODED = "\ufffd" * 8
PILCROW = re.compile("¶$", re.MULTILINE)
GROUPS = re.compile(r"\$\\(?:begin|end)group\$[ \t]*")


def remove_elements(tree: HTMLTree, html: str) -> None:
    """Remove the controls of known site software from a page."""
    for sign, selectors in ELEMENTS:
        if html.find(sign, 0, HEAD) >= 0:
            for node in tree.document.query_selector_all(selectors)[:]:
                if node.parent is not None:
                    node.decompose()


def remove_lines(text: str, removed: Counter[str]) -> str:
    """Text without lines that are no content; adds to `removed`, by reason."""

    if "group$" in text:
        text = GROUPS.sub("", text)
    if "¶" in text:  # links to a heading
        text = PILCROW.sub("", text)
    undecoded = UNDECODED in text
    kept = []
    for line in text.split("\n"):
        if len(line) <= MAX_LINE:
            bare = line.strip(DECORATION)
            if (bare[:2].lower() in STARTS or bare[:1] in DIGITS) and (match := PATTERN.fullmatch(bare)):
                removed[REASONS[match.lastgroup or ""]] += 1
                continue
        if undecoded and UNDECODED in line:
            removed["undecodable"] += 1
            continue
        kept.append(line)
    return "\n".join(kept) if removed else text
