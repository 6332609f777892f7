"""Chinese lecture notes, exercise sheets and word problems; calculations as on the English pages."""

import random

from pipeline.miniweb.genres.arithmetic import solved_problems
from pipeline.miniweb.genres.calculations import (
    ADVANCED,
    SCHOOL,
    explained,
    order_of_operations,
    worked,
)
from pipeline.miniweb.grammar import Writer
from pipeline.miniweb.pages import Article, Block, Heading, Items, Paragraph

PHRASES = {
    "space": ("V", "U", "E", "X"),
    "prime": ("2", "3", "5", "7", "11", "13", "17", "19"),
    "hence": ("因此", "所以", "于是", "由此可知", "从而"),
    "suppose": ("假设", "设", "不妨设", "若"),
    "course": ("高等代数", "数学分析", "初等数论", "高等数学", "线性代数"),
    "lecture_intro": (
        "本节是<@course>课程第<2..28>讲的笔记。",
        "我们先回顾定义，再证明一个基本定理。",
        "本节的结论在后面的章节中会反复用到。",
        "证明并不长，建议读者自己先写一遍。",
        "习题课第<2..14>周将使用这里的记号。",
        "大部分内容可以在教材第<2..9>章找到。",
    ),
    "theorem": (
        "定理。线性映射⟦T⟧的核是⟦<@space>⟧的子空间。证明。<suppose>⟦x⟧和⟦y⟧都在核中，则⟦T(x+y)=T(x)+T(y)=0⟧，"
        "<hence>⟦x+y⟧也在核中。对任意数⟦c⟧有⟦T(cx)=cT(x)=0⟧，命题得证。",
        "定理。收敛数列的极限是唯一的。证明。<suppose>⟦a⟧和⟦b⟧都是数列⟦a_n⟧的极限，由三角不等式，"
        "两者的距离小于⟦2\\varepsilon⟧。因为⟦\\varepsilon⟧是任意的，<hence>⟦a=b⟧。",
        "定理。收敛数列必有界。证明。取⟦\\varepsilon =1⟧，存在⟦N⟧，当⟦n\\ge N⟧时各项与极限的距离小于⟦1⟧。"
        "前面只有有限项，<hence>数列有界。",
        "定理。⟦\\sqrt{<@prime>}⟧是无理数。证明。<suppose>⟦\\sqrt{<@prime>}=\\frac{a}{b}⟧为既约分数，"
        "则⟦a^2=<@prime>b^2⟧，<hence>⟦<@prime>⟧整除⟦a⟧，同理整除⟦b⟧，矛盾。",
        "定理。素数有无穷多个。证明。<suppose>⟦p_1,\\ldots ,p_k⟧是全部素数，"
        "它们的乘积加⟦1⟧除以每个素数都余⟦1⟧，<hence>它的素因子不在其中，矛盾。",
        "定理。对任意正整数⟦n⟧，有⟦1+2+\\ldots +n=\\frac{n(n+1)}{2}⟧。证明。用数学归纳法。⟦n=1⟧时显然成立。"
        "<suppose>命题对⟦n⟧成立，两边加上⟦n+1⟧，得到⟦\\frac{(n+1)(n+2)}{2}⟧，<hence>命题对⟦n+1⟧成立。",
        "定理。矩阵⟦A⟧可逆当且仅当⟦\\det A\\ne 0⟧。证明。<suppose>⟦AB=E⟧，则⟦\\det A\\cdot \\det B=1⟧，"
        "<hence>行列式不为零。反之，用伴随矩阵可以构造逆矩阵。",
        "定理。属于不同特征值⟦\\lambda⟧与⟦\\mu⟧的特征向量线性无关。证明。<suppose>⟦w=cv⟧，用⟦A⟧作用，"
        "得⟦(\\mu -\\lambda )w=0⟧，<hence>⟦w=0⟧，与特征向量非零矛盾。",
        "定理。若⟦a_n\\to a⟧且⟦b_n\\to b⟧，则⟦a_n+b_n\\to a+b⟧。证明。"
        "取⟦N⟧使两个数列与极限的距离都小于⟦\\frac{\\varepsilon}{2}⟧，<hence>和的距离小于⟦\\varepsilon⟧。",
        "定理。存在整数⟦s⟧和⟦t⟧，使得⟦\\gcd(a,b)=sa+tb⟧。证明。取形如⟦sa+tb⟧的最小正整数⟦d⟧，"
        "⟦a⟧除以⟦d⟧的余数也有这种形式且小于⟦d⟧，<hence>余数为零。",
        "定理。群的单位元是唯一的。证明。<suppose>⟦e⟧和⟦f⟧都是单位元，则⟦e=ef=f⟧，<hence>两者相等。"
        "逆元的唯一性同理可证。",
        "定理。若在区间上⟦f^{\\prime}(x)=0⟧，则函数⟦f⟧是常数。证明。由中值定理，"
        "⟦f(x)-f(y)=f^{\\prime}(c)(x-y)⟧，<hence>任意两点的函数值相等。",
    ),
    "lecture_exercise": (
        "证明：对任意⟦n\\ge <2..9>⟧，上面的结论仍然成立。",
        "求数列⟦a_{n+1}=<2..9>a_n+<1..9>⟧的前<4..8>项。",
        "举例说明逆命题不成立。",
        "求⟦(x,y)⟧到⟦<2..9>x+<2..9>y⟧的映射的核。",
        "证明⟦<2..9>n^2+<2..9>n\\le <10..40>n^2⟧。",
    ),
    "example": ("例。计算⟦{task}⟧。", "例题。求⟦{task}⟧。", "下面来看⟦{task}⟧。"),
    "result": ("结果为⟦{result}⟧。", "<hence>得到⟦{result}⟧。", "故⟦{result}⟧。"),
    "determinant_rule": ("由行列式的公式，⟦{tex}⟧。",),
    "row_times_column": ("行乘以列，得⟦{tex}⟧。", "下一个分量是⟦{tex}⟧。"),
    "divide_with_remainder": ("作带余除法，⟦{tex}⟧。", "再除一次，⟦{tex}⟧。"),
    "multiply_reduce": ("模{0}，⟦{tex}⟧。", "对{0}取余，⟦{tex}⟧。"),
    "last_term": ("末项为⟦{tex}⟧。",),
    "pair_terms": ("首尾配对求和，⟦{tex}⟧。",),
    "power_rule": ("逐项求导，⟦{tex}⟧。",),
    "substitute": ("代入{0}，⟦{tex}⟧。",),
    "divide_power": ("分子分母同除以{0}，⟦{tex}⟧。",),
    "terms_vanish": ("小量趋于零，极限是⟦{tex}⟧。",),
    "subtract_both": ("两边同时减去{0}，得⟦{tex}⟧。", "方程两边减{0}：⟦{tex}⟧。"),
    "divide_both": ("两边同时除以{0}，得⟦{tex}⟧。", "再除以{0}：⟦{tex}⟧。"),
    "check": ("检验：⟦{tex}⟧。", "代入原方程，⟦{tex}⟧，正确。"),
    "expand": ("去括号，得⟦{tex}⟧。",),
    "factors": ("找两个数，积为{0}，和为{1}：⟦{tex}⟧。",),
    "factorise": ("因式分解，得⟦{tex}⟧。",),
    "common_denominator": ("通分，公分母是{0}：⟦{tex}⟧。",),
    "add_numerators": ("分子相加，得⟦{tex}⟧。",),
    "reduce": ("约分，得⟦{tex}⟧。",),
    "percent_fraction": ("把百分数化成分数再相乘：⟦{tex}⟧。",),
    "brackets_first": ("先算括号里面的：⟦{tex}⟧。",),
    "multiply_first": ("再算乘法：⟦{tex}⟧。",),
    "add_last": ("最后算加法：⟦{tex}⟧。",),
    "sum_all": ("所有数相加，⟦{tex}⟧。",),
    "divide_count": ("一共有{0}个数，除以{0}：⟦{tex}⟧。",),
    "given_linear": ("解方程⟦{task}⟧。", "求⟦x⟧：⟦{task}⟧。"),
    "given_quadratic": ("用因式分解法解方程⟦{task}⟧。",),
    "given_fractions": ("计算⟦{task}⟧，结果化成最简分数。",),
    "given_percentage": ("计算⟦{task}⟧。",),
    "given_operations": ("按顺序计算⟦{task}⟧。",),
    "given_mean": ("求⟦{task}⟧的平均数。",),
    "sheet_intro": (
        "本练习适合<5..9>年级的同学。",
        "请把每一步都写清楚，最后检验答案。",
        "做题时不要使用计算器。",
        "等式两边要同时做相同的运算。",
        "先看例题，再独立完成后面的练习。",
        "每题<2..5>分，要求写出过程。",
    ),
    "practice": (
        "解方程⟦<2..9>x+<1..20>=<30..90>⟧。",
        "计算⟦\\frac{<1..5>}{<6..9>}+\\frac{<1..4>}{<5..8>}⟧。",
        "计算⟦<2..20>+<2..9>\\cdot <2..12>⟧。",
        "化简⟦<2..9>x+<2..9>x-<2..9>⟧。",
        "求⟦<1..20>⟧、⟦<1..20>⟧和⟦<1..20>⟧的平均数。",
        "求<100..900>的百分之<5..95>。",
    ),
    "sheet_answer": ("答案：⟦{result}⟧。", "答：⟦{result}⟧。"),
    "sheet_title": (
        "一元一次方程练习<1..60>",
        "<5..9>年级数学练习题与解答",
        "方程与分数：例题精讲",
        "第<1..20>单元检测题详解",
    ),
    "story_intro": (
        "应用题先读懂题意，再列出算式。",
        "下面是本周的加减法应用题，每题都有解答过程。",
        "请孩子先自己做，再看答案。",
        "每天十分钟，做<3..6>道就够了。",
        "可以用小木棒摆一摆，再写算式。",
        "有的题一步就能算出来，有的要两三步。",
        "家长可以把题目读给孩子听。",
    ),
    "story_title": (
        "二年级应用题第<1..60>期",
        "加减法应用题及答案<1..99>",
        "一年级数学：还剩多少？练习<1..80>",
        "每日一练：应用题第<1..200>天",
    ),
    "heading": ("第{0}题", "题{0}", "应用题{0}"),
    "solution": ("解：", "解答", "列式计算", "答案"),
}


def lecture_zh(rng: random.Random) -> Article:
    """Chinese lecture notes: theorems and computed examples, dense in formulas."""
    write = Writer(rng, PHRASES)
    blocks: list[Block] = [Paragraph("".join(write.several("lecture_intro", 2)))]
    for number, text in enumerate(write.several("theorem", 3), start=1):
        blocks += [Heading(f"第{number}小节"), Paragraph(text)]
    for make in rng.sample(ADVANCED, 3):
        blocks += worked(write, make(rng), "example", "result")
    blocks += [Heading("习题"), Items(tuple(write.several("lecture_exercise", 3)), ordered=True)]
    return Article(write.expand("<@course>笔记：第<1..40>讲"), tuple(blocks), "lecture_zh", "zh", math=True)


def worksheet_zh(rng: random.Random) -> Article:
    """A Chinese exercise sheet with worked equations; now and then a word problem at its end."""
    write = Writer(rng, PHRASES)
    blocks: list[Block] = [Paragraph("".join(write.several("sheet_intro", 3)))]
    for number in range(1, rng.randint(4, 6) + 1):
        calculation = rng.choice(SCHOOL)(rng)
        steps = explained(write, calculation)
        blocks += [
            Heading(f"例{number}"),
            Paragraph(write(f"given_{calculation.topic}").format(task=calculation.task)),
            Paragraph("\n".join([*steps, write("sheet_answer").format(result=calculation.result)])),
        ]
    blocks += [Heading("练习"), Items(tuple(write.several("practice", 4)), ordered=True)]
    if rng.random() < 0.15:
        blocks += solved_problems(write, rng.randint(1, 2), "zh", formulas=True)
    return Article(write("sheet_title"), tuple(blocks), "worksheet_zh", "zh", math=True)


def word_problems_zh(rng: random.Random) -> Article:
    """Chinese word problems with solutions, in plain words."""
    write = Writer(rng, PHRASES)
    blocks: list[Block] = [Paragraph("".join(write.several("story_intro", rng.randint(2, 3))))]
    blocks += solved_problems(write, rng.randint(9, 14), "zh", formulas=False)
    if rng.random() < 0.2:
        calculation = order_of_operations(rng)
        blocks.append(Paragraph(write("given_operations").format(task=calculation.task)))
    return Article(write("story_title"), tuple(blocks), "word_problems_zh", "zh", math=True)
