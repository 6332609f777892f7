"""The hosts of the generated web: names, layouts and character sets for the families of sites."""

import random
from dataclasses import dataclass

from pipeline.miniweb.families import ELSEWHERE, MATHEMATICS, Family, Section
from pipeline.miniweb.markup import LAYOUTS, Site

PLACES = (
    "alder amber arrow aspen badger barley beacon birch bramble brook canal cedar cinder clover cobble "
    "copper coral cotton crane dapple delta ember fallow feather fern flint gable garnet ginger granite "
    "hazel heather heron hollow indigo ivory juniper kestrel lantern larch linden marble meadow mill moss "
    "nettle oaken olive otter pebble pepper pine plum quarry quill raven reed rowan saffron sage slate "
    "sparrow spruce thistle timber tulip velvet walnut willow wren"
)
PINYIN = (
    "anqing baihe beichen chunfeng dongshan fangcao guanghua haitang heping hongye huaxia jiangnan jinse "
    "kaixin lanhai liuyun meihua mingyue nanfang qingshan qiushui renmin shanshui tianyuan wanjia "
    "xiangcun xinghuo xueyuan yangguang yuncai zhaoyang zhonghe"
)
TLD = "example"  # reserved (RFC 2606): no host of this web can exist


@dataclass(frozen=True)
class Host:
    """A site with its family and sections; `reviewed`: whether `annotations.tsv` speaks about it."""

    site: Site
    family: str
    sections: tuple[Section, ...]
    reviewed: bool


def plan_hosts(seed: int, scale: float) -> list[Host]:
    """All hosts; a larger `scale` gives more of every family but the single seed site."""
    rng = random.Random(f"{seed}/hosts")
    taken: set[str] = set()
    hosts = []
    for family in (*MATHEMATICS, *ELSEWHERE):
        count = 1 if family.name == "seed" else max(2, round(family.hosts * scale))
        for index in range(count):
            site = _site(rng, family, index, taken)
            reviewed = family in MATHEMATICS and index % 4 != 3 or family.name == "tutors" and index % 4 == 0
            hosts.append(Host(site, family.name, family.sections, reviewed))
    return hosts


def _site(rng: random.Random, family: Family, index: int, taken: set[str]) -> Site:
    words = (PLACES if family.language == "en" else PINYIN).split()
    word, number = rng.choice(words), ""
    while (host := f"{word}{number}{rng.choice(family.suffixes)}.{TLD}") in taken:
        word = rng.choice(words)
        number = str(rng.randint(2, 99)) if rng.random() < 0.3 else ""
    taken.add(host)
    if family.language == "zh":
        charset = rng.choice(("utf-8", "utf-8", "utf-8", "gbk", "gbk", "gb18030"))
    else:
        charset = rng.choice(("utf-8", "utf-8", "utf-8", "iso-8859-1", "windows-1252"))
    return Site(
        host=host,
        name=host.removesuffix(f".{TLD}").replace("-", " ").title(),
        language=family.language,
        markup=family.markups[index % len(family.markups)],
        layout=rng.choice(LAYOUTS),
        charset=charset,
        charset_in_header=rng.random() < 0.55,
        charset_in_page=rng.random() < 0.8,
        server=rng.choice(
            ("nginx", "Apache", "Apache/2.4.57 (Debian)", "cloudfront", "openresty", "Microsoft-IIS/10.0")
        ),
        sections=tuple(dict.fromkeys(section.path for section in family.sections if section.path != "/")),
    )
