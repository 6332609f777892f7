"""Words that the grader knows: functions, commands, number words, synonyms, units with their sizes."""

from fractions import Fraction


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _spellings(table: dict[str, str], unchanged: str = "") -> dict[str, str]:
    """Meanings by spelling, from spellings by meaning; the words in `unchanged` mean themselves."""
    meanings = {word: word for word in unchanged.split()}
    return meanings | {word: meaning for meaning, words in table.items() for word in words.split()}


# Latin, Greek and LaTeX

FUNCTIONS = _spellings(
    {"arcsin": "asin", "arccos": "acos", "arctan": "atan arctg", "arcsinh": "arsinh", "tan": "tg"}
    | {"cot": "ctg", "log10": "lg", "log": "Log", "arg": "Arg"},
    """sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth arcsinh arccosh
    arctanh log ln exp sqrt cbrt abs floor ceil max min gcd lcm det arg Re Im sgn""",
)
CONSTANTS = _spellings({"pi": "pi", "infinity": "infty infinity inf oo"})
RELATIONS = _spellings(
    {
        "=": "= == :=",
        "<": "< lt",
        ">": "> gt",
        "<=": "<= =< le leq leqslant leqq",
        ">=": ">= => ge geq geqslant geqq",
        "!=": "!= ne neq",
        "~": "approx simeq sim doteq",
    },
    "in equiv cong parallel perp notin subset subseteq",
)
OPERATORS = _spellings(
    {
        "*": "cdot times ast",
        "/": "div",
        "+-": "pm",
        "-+": "mp",
        "setminus": "setminus backslash",
        "mod": "bmod mod",
        "and": "and land wedge",
        "or": "or lor vee",
        ":": "colon",
    },
    "cup cap lfloor rfloor lceil rceil langle rangle over choose",
)
DOTS = _words("dots ldots cdots vdots dotsc dotsb")
SILENT = _words("triangle angle measuredangle therefore because")
GREEK = _words(
    """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi
    omicron rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma
    Upsilon Phi Psi Omega ell hbar"""
)
ACCENTS = _words(
    """mathbf boldsymbol bm vec overline bar hat widehat overrightarrow tilde dot ddot mathcal mathfrak
    underline"""
)
MARKS = _words("overline bar vec overrightarrow hat widehat tilde dot ddot")
# commands that models often write with two backslashes
COMMANDS = _words(
    """frac dfrac tfrac cfrac sqrt pi text left right cdot times infty circ sin cos tan cot sec csc log
    ln theta alpha beta le leq ge geq lt gt ne neq pm mp cup cap in mathbb mathrm mathbf mbox binom
    dbinom boxed begin end quad leqslant geqslant angle degree overline displaystyle"""
)

# English

# short runs of letters that are words, not products of one-letter symbols
SHORT_WORDS = _words(
    """is the am pm if in no of for all not are any by at as on it we one two six ten odd even yes has day
    days cm mm km kg mg ml lb oz ft hr min sec mph rad deg per cups men pen how can was sum top red
    big new its and or true false none dne to up off out but nor via"""
)
LEADING_WORDS = _words("only exactly total both")
CLAUSE_WORDS = _words(
    """is are was were be not no cannot if when where or and but than more less least most equals should does
    do has do have must that which since because so will can would there approximately divided plus
    minus times factorial cube root mod modulo base power per cent half third quarter double triple
    wrong incorrect false untrue invalid maybe perhaps possibly probably unlikely hopefully unsure
    guess likely about around roughly nearly almost over under above below between beyond except
    neither nor unless until to up off out through fewer greater smaller larger larger least most
    never nothing anything something others other otherwise different hundred thousand million billion
    trillion dozen score"""
)
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
SCALES |= {"dozen": 12}
ARTICLES = _words("the a an is are it its")
_ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
NUMBER_WORDS = {word: number for number, word in enumerate(_ONES.split())}
NUMBER_WORDS |= {word: 20 + 10 * place for place, word in enumerate(_TENS.split())}
_SAME = {
    "yes": "true correct 是 对 正确 √ 是的",
    "no": "false incorrect 否 错 错误 不是 不对",
    "none": """empty ∅ no-solution no-solutions no-real-solution no-real-solutions no-real-roots no-roots
    nosolution 无解 不存在""",
    "infinity": "infinitely-many infinite infinitely-many-solutions 无穷 无数 无穷多",
    "dne": "does-not-exist undefined",
}
SYNONYMS = _spellings(_SAME, " ".join(_SAME))

# units: name to size in the kind's base unit

_UNITS = {
    "length": """mm 1/1000 millimeter 1/1000 毫米 1/1000 cm 1/100 centimeter 1/100 厘米 1/100 分米 1/10
        m 1 meter 1
    metre 1 米 1 km 1000 kilometer 1000 千米 1000 公里 1000 inch 127/5000 inche 127/5000 in 127/5000 foot
    381/1250 feet 381/1250 ft 381/1250 yard 1143/1250 mile 201168/125""",
    "time": """second 1 sec 1 s 1 秒 1 minute 60 min 60 分钟 60 分 60 hour 3600 hr 3600 h 3600 小时
        3600 时 3600 day
    86400 天 86400 week 604800""",
    "mass": """mg 1/1000 g 1 gram 1 克 1 kg 1000 kilogram 1000 千克 1000 公斤 1000 吨 1000000""",
    "money": "cent 1/100 ¢ 1/100 dollar 1 usd 1",
    "yuan": "yuan 1 元 1 块 1 角 1/10",
    "volume": "ml 1/1000 milliliter 1/1000 毫升 1/1000 l 1 liter 1 litre 1 升 1",
    "angle": "degree 1 deg 1 度 1",
    "radian": "radian 1 rad 1",
}
UNITS: dict[str, tuple[str, Fraction]] = {}
for _kind, _table in _UNITS.items():
    _parts = _table.split()
    for _name, _size in zip(_parts[::2], _parts[1::2], strict=True):
        UNITS[_name] = _kind, Fraction(_size)
GENERIC_UNITS = _words("unit units square cubic sq total ways way 个 的 of the a per each in and")
UNIT_POWERS = {"square": 2, "sq": 2, "squared": 2, "平方": 2, "cubic": 3, "cubed": 3, "立方": 3}
