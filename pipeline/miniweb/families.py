"""The kinds of sites of the generated web: how many, what they hold, how they write formulas.

The structure decides what the corpus loop can find. One lecture site is the seed. Sites of other kinds share
vocabulary, a host or both with a neighbour, so that iterations reach them one after another: lecture notes ->
questions -> worksheets -> textbook chapters -> word problems -> riddles; bilingual course sites lead to
Chinese lecture notes, those to Chinese exercise sheets, those to Chinese word problems. Some hosts have
mathematics under one path only, some in less than a tenth of their pages.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """Pages of one genre under a path; `style` of URLs: html, folder, dated, numbered or query.

    `plain`: older pages of the site, written without its formula markup.
    """

    path: str
    genre: str
    pages: tuple[int, int]
    style: str
    plain: bool = False


@dataclass(frozen=True)
class Family:
    """A kind of site; `suffixes` end host names, `markups` are dealt out to its `hosts` in turn."""

    name: str
    hosts: int
    language: str
    suffixes: tuple[str, ...]
    sections: tuple[Section, ...]
    markups: tuple[str, ...] = ("plain",)


TEX = ("mathjax2", "mathjax3", "katex", "mathml", "img-latex")
MOSTLY_PLAIN = ("plain", "plain", "plain", "mathjax3")

MATHEMATICS = (
    Family(
        "seed",
        1,
        "en",
        ("college-notes",),
        (Section("/notes/", "lecture", (130, 130), "html"), Section("/about/", "site", (6, 6), "html")),
        ("mathjax2",),
    ),
    Family(
        "lectures",
        4,
        "en",
        ("university", "institute"),
        (
            Section("/~teaching/notes/", "lecture", (20, 30), "html"),
            Section("/news/", "prize", (5, 10), "dated"),
        ),
        ("mathjax3", "img-latex", "katex", "mathml"),
    ),
    Family(
        "questions",
        4,
        "en",
        ("-answers", "overflow"),
        (
            Section("/questions/", "question", (70, 90), "numbered"),
            Section("/users/", "site", (12, 18), "numbered"),
        ),
        ("mathjax2", "mathjax3", "katex", "mathjax2"),
    ),
    Family(
        "worksheets",
        7,
        "en",
        ("algebra", "worksheets"),
        (
            Section("/practice/", "worksheet", (20, 30), "folder"),
            Section("/practice/archive/", "worksheet", (8, 12), "html", plain=True),
            Section("/prices/", "tutoring", (4, 10), "html"),
        ),
        (*TEX, "plain"),
    ),
    Family(
        "bilingual",
        3,
        "en",
        ("-open-courses",),
        (
            Section("/course/en/", "lecture", (15, 25), "html"),
            Section("/course/zh/", "lecture_zh", (20, 30), "html"),
            Section("/about/", "site", (5, 8), "html"),
        ),
        ("mathjax3", "katex", "mathjax2"),
    ),
    Family(
        "textbooks",
        4,
        "en",
        ("-textbook",),
        (
            Section("/book/part1/", "worksheet", (8, 12), "html"),
            Section("/book/part2/", "chapter", (25, 35), "html"),
        ),
        ("mathjax2", "mathml", "mathjax3"),
    ),
    Family(
        "schools",
        8,
        "en",
        ("-primary", "-school"),
        (
            Section("/exercises/unit/", "chapter", (9, 14), "html"),
            Section("/exercises/stories/", "word_problems", (24, 34), "html"),
            Section("/news/", "school_news", (10, 18), "dated"),
        ),
        ("plain", "mathjax3", "plain", "mathml"),
    ),
    Family(
        "collections",
        10,
        "en",
        ("-word-problems", "sums"),
        (
            Section("/problems/", "word_problems", (42, 56), "numbered"),
            Section("/about/", "site", (2, 5), "html"),
        ),
        MOSTLY_PLAIN,
    ),
    Family(
        "parents",
        14,
        "en",
        ("-family", "-and-kids"),
        (
            Section("/diary/", "family", (8, 14), "dated"),
            Section("/sums/", "word_problems", (7, 12), "dated"),
            Section("/riddles/", "riddles", (2, 4), "dated"),
        ),
        ("plain",),
    ),
    Family(
        "riddlers",
        4,
        "en",
        ("-puzzles",),
        (
            Section("/essays/", "essay", (6, 9), "numbered"),
            Section("/archive/", "riddles", (18, 28), "numbered"),
            Section("/sums/", "word_problems", (6, 10), "numbered"),
        ),
        ("plain",),
    ),
    Family(
        "consumers",
        5,
        "en",
        ("-everyday-maths",),
        (
            Section("/exercises/", "applied", (18, 26), "html"),
            Section("/exercises/algebra/", "worksheet", (4, 7), "html"),
            Section("/blog/", "budget", (5, 9), "dated"),
        ),
        ("plain", "mathjax3", "plain"),
    ),
    Family(
        "boards",
        7,
        "en",
        ("-board", "-helpline"),
        (Section("/t/", "help", (18, 26), "query"), Section("/t/", "question", (1, 2), "query")),
        ("mathjax3", "plain"),
    ),
    Family(
        "diaries",
        7,
        "en",
        ("-diary",),
        (Section("/", "family", (14, 20), "dated"), Section("/", "word_problems", (1, 1), "dated")),
        ("plain",),
    ),
    Family(
        "lectures_zh",
        3,
        "zh",
        ("-daxue",),
        (
            Section("/jiangyi/", "lecture_zh", (20, 28), "html"),
            Section("/xiti/", "worksheet_zh", (8, 14), "html"),
            Section("/xinwen/", "site_zh", (6, 10), "numbered"),
        ),
        ("mathjax3", "mathml"),
    ),
    Family(
        "schools_zh",
        5,
        "zh",
        ("-zhongxue", "jiaoyu"),
        (
            Section("/shuxue/", "worksheet_zh", (12, 18), "html"),
            Section("/shuxue/jiuti/", "worksheet_zh", (6, 8), "html", plain=True),
            Section("/shuxue/yingyongti/", "word_problems_zh", (6, 10), "html"),
            Section("/xiaoyuan/", "site_zh", (8, 14), "numbered"),
        ),
        ("plain", "mathjax2", "img-latex", "katex"),
    ),
    Family(
        "collections_zh",
        6,
        "zh",
        ("yingyongti",),
        (
            Section("/timu/", "word_problems_zh", (38, 50), "numbered"),
            Section("/bangzhu/", "site_zh", (3, 6), "html"),
        ),
        MOSTLY_PLAIN,
    ),
    Family(
        "parents_zh",
        8,
        "zh",
        ("-mama", "qinzi"),
        (
            Section("/riji/", "family_zh", (8, 12), "numbered"),
            Section("/shuxue/", "word_problems_zh", (6, 10), "numbered"),
        ),
        ("plain",),
    ),
)

ELSEWHERE = (
    Family(
        "news",
        30,
        "en",
        ("-gazette", "-herald", "post"),
        (
            Section("/", "news", (4, 10), "dated"),
            Section("/sport/", "sport", (1, 4), "dated"),
            Section("/business/", "markets", (1, 3), "dated"),
        ),
    ),
    Family(
        "shops",
        26,
        "en",
        ("-store", "-shop", "goods"),
        (Section("/product/", "shop", (4, 11), "numbered"), Section("/help/", "site", (1, 2), "html")),
    ),
    Family("kitchens", 20, "en", ("-kitchen", "cooks"), (Section("/recipes/", "recipe", (4, 10), "folder"),)),
    Family("stadiums", 14, "en", ("-sport", "fans"), (Section("/reports/", "sport", (4, 9), "dated"),)),
    Family("journeys", 15, "en", ("-travel", "trips"), (Section("/", "travel", (4, 9), "folder"),)),
    Family(
        "libraries",
        18,
        "en",
        ("-docs", "soft"),
        (Section("/docs/", "docs", (4, 9), "html"), Section("/api/", "numerics", (2, 4), "html")),
        ("plain", "mathjax3"),
    ),
    Family("forums", 14, "en", ("-forum", "talk"), (Section("/viewtopic", "help", (4, 9), "query"),)),
    Family("games", 12, "en", ("-games", "play"), (Section("/guides/", "games", (4, 8), "folder"),)),
    Family("gardens", 12, "en", ("-garden", "grows"), (Section("/blog/", "garden", (4, 9), "dated"),)),
    Family(
        "families",
        12,
        "en",
        ("-home", "-at-home"),
        (Section("/", "family", (4, 9), "dated"), Section("/money/", "budget", (2, 5), "dated")),
    ),
    Family(
        "offices",
        12,
        "en",
        ("-office", "-sheets"),
        (Section("/tips/", "sheets", (5, 10), "folder"), Section("/budget/", "budget", (2, 5), "folder")),
    ),
    Family(
        "tutors",
        12,
        "en",
        ("-tutors", "lessons"),
        (Section("/", "tutoring", (4, 8), "html"), Section("/blog/", "prize", (1, 4), "dated")),
    ),
    Family("banks", 10, "en", ("-finance", "invest"), (Section("/markets/", "markets", (4, 9), "dated"),)),
    Family(
        "news_zh",
        20,
        "zh",
        ("ribao", "xinwen"),
        (Section("/news/", "news_zh", (4, 10), "dated"), Section("/tiyu/", "sport_zh", (1, 4), "dated")),
    ),
    Family("shops_zh", 17, "zh", ("shangcheng", "gouwu"), (Section("/item", "shop_zh", (4, 9), "query"),)),
    Family("kitchens_zh", 13, "zh", ("meishi",), (Section("/caipu/", "recipe_zh", (4, 9), "html"),)),
    Family("families_zh", 10, "zh", ("-baobao",), (Section("/", "family_zh", (4, 8), "numbered"),)),
    Family("forums_zh", 13, "zh", ("luntan", "bbs"), (Section("/thread", "forum_zh", (4, 9), "query"),)),
)
