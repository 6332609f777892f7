"""The wording of the demo's word problems: who has what, what may happen to it, how one asks for the rest.

A scenario is a story frame. `{who}` holds a number of `{things}`; each event adds (`gains`) or takes away
(`losses`) `{n}` of them; `ask` closes the question. Scenarios in `held_out_scenarios` never appear in
training text: known words in new sentences, they measure whether a model learnt arithmetic or phrases.

Every stretch of ten English words names both `{who}` and `{things}`, and the splits are cut by that pair (see
`problems.py`): ten words shared by training text and a test question are a real leak (paper section 2.1).
Chinese comes close to that.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """One story frame; every text may use {who}, {things}, {other} and (except `ask`) {n}."""

    name: str
    opener: str
    gains: tuple[str, ...]
    losses: tuple[str, ...]
    ask: str


@dataclass(frozen=True)
class Language:
    """All wording of one language: what joins sentences, who and what may appear, and the story frames."""

    joiner: str
    names: tuple[str, ...]
    things: tuple[str, ...]
    scenarios: tuple[Scenario, ...]
    held_out_scenarios: tuple[Scenario, ...]
    compare: tuple[str, ...]
    conclusion: str


ENGLISH = Language(
    joiner=" ",
    names=(
        "Tom",
        "Anna",
        "Ben",
        "Clara",
        "David",
        "Emma",
        "Felix",
        "Grace",
        "Henry",
        "Ivy",
        "Jack",
        "Kate",
        "Leo",
        "Mia",
        "Nora",
        "Oscar",
        "Paul",
        "Rosa",
        "Sam",
        "Zoe",
    ),
    things=(
        "apples",
        "books",
        "cards",
        "coins",
        "cups",
        "eggs",
        "flowers",
        "shells",
        "stamps",
        "stones",
        "toys",
        "balls",
        "boxes",
        "pens",
        "plates",
        "cakes",
        "keys",
        "hats",
        "lamps",
        "bags",
    ),
    scenarios=(
        Scenario(
            "market",
            "{who} has {n} {things}.",
            ("{who} buys {n} more {things}.", "{who} gets {n} {things} from {other}."),
            ("{who} sells {n} {things}.", "{who} gives {n} {things} to {other}."),
            "How many {things} does {who} have now?",
        ),
        Scenario(
            "attic",
            "{who} keeps {n} {things} at home.",
            ("{who} finds {n} more {things}.", "{who} brings home {n} {things}."),
            ("{who} loses {n} {things}.", "{who} throws away {n} {things}."),
            "How many {things} has {who} left?",
        ),
        Scenario(
            "school",
            "{who} takes {n} {things} to school.",
            ("{who} makes {n} new {things}.", "{who} borrows {n} {things} from {other}."),
            ("{who} returns {n} {things} to {other}.", "{who} breaks {n} {things}."),
            "How many {things} does {who} take home?",
        ),
        Scenario(
            "collection",
            "{who} collects {n} {things} in May.",
            ("{who} adds {n} {things} in June.", "{who} wins {n} {things}."),
            ("{who} trades away {n} {things}.", "{who} donates {n} {things}."),
            "How many {things} has {who} got in the end?",
        ),
        Scenario(
            "store",
            "{who} puts {n} {things} on a shelf.",
            ("{who} unpacks {n} more {things}.", "{who} orders {n} {things} again."),
            ("{who} ships {n} {things}.", "{who} hands {n} {things} to buyers."),
            "How many {things} has {who} on the shelf?",
        ),
        Scenario(
            "holiday",
            "{who} packs {n} {things} for a trip.",
            ("{who} picks up {n} more {things}.", "{who} receives {n} {things} as gifts."),
            ("{who} forgets {n} {things} somewhere.", "{who} uses up {n} {things}."),
            "How many {things} does {who} bring back?",
        ),
    ),
    held_out_scenarios=(
        Scenario(
            "home",
            "At first {who} has {n} {things} here.",
            ("Then {who} buys {n} new {things}.", "{who} also finds {n} {things} here."),
            ("Then {who} breaks {n} {things} again.", "{who} also gives {n} {things} away."),
            "Now how many {things} does {who} keep?",
        ),
        Scenario(
            "train",
            "{who} puts {n} {things} on a train.",
            ("{who} adds {n} more {things} there.", "{who} picks up {n} new {things} there."),
            ("{who} forgets {n} {things} there.", "{who} also sells {n} {things} there."),
            "How many {things} are left there with {who}?",
        ),
    ),
    compare=(
        "{who} has {n} {things}.",
        "{other} has {n} more {things} than {who}.",
        "{other} has {n} fewer {things} than {who}.",
        "How many {things} do {who} and {other} have together?",
    ),
    conclusion="The answer is {answer}.",
)

CHINESE = Language(
    joiner="",
    names=("小明", "小红", "小刚", "小丽", "小华", "小芳", "小军", "小兰", "小强", "小美"),
    things=("苹果", "气球", "鸡蛋", "橘子", "杯子", "盒子", "玩具", "书包", "桃子", "面包"),
    scenarios=(
        Scenario(
            "market",
            "{who}有{n}个{things}。",
            ("{who}又买了{n}个{things}。", "{who}得到{n}个{things}。"),
            ("{who}卖掉{n}个{things}。", "{who}送给{other}{n}个{things}。"),
            "{who}现在有多少个{things}？",
        ),
        Scenario(
            "attic",
            "{who}家里有{n}个{things}。",
            ("{who}找到{n}个{things}。", "{who}带回{n}个{things}。"),
            ("{who}丢了{n}个{things}。", "{who}用掉{n}个{things}。"),
            "{who}还剩多少个{things}？",
        ),
        Scenario(
            "store",
            "{who}摆出{n}个{things}。",
            ("{who}再拿来{n}个{things}。", "{who}做了{n}个{things}。"),
            ("{who}收走{n}个{things}。", "{who}弄坏{n}个{things}。"),
            "{who}这里有几个{things}？",
        ),
    ),
    held_out_scenarios=(
        Scenario(
            "hand",
            "{who}手里有{n}个{things}。",
            ("{who}又得到了{n}个{things}。", "{who}再买{n}个{things}。"),
            ("{who}又用掉{n}个{things}。", "{who}再卖掉{n}个{things}。"),
            "{who}手里还剩几个{things}？",
        ),
    ),
    compare=(
        "{who}有{n}个{things}。",
        "{other}比{who}多{n}个{things}。",
        "{other}比{who}少{n}个{things}。",
        "{who}和{other}有几个{things}？",
    ),
    conclusion="答案是{answer}。",
)

LANGUAGES: dict[str, Language] = {"en": ENGLISH, "zh": CHINESE}
