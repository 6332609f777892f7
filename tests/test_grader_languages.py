"""Words beside a value in seven languages: counters and announcements add nothing, every other word does."""

import random

import pytest
from given.answers import SEED, labelled, shared
from mathverdict import remarks
from mathverdict.answers import compare, grade
from mathverdict.vocabulary import WORDS

from pipeline.core.code import Code

AT_LEAST = {"zh": 600} | dict.fromkeys(("ja", "ko", "ru", "ar", "fr", "de"), 50)
# no word of these is a unit, whatever the question asks
CHANGED = """
R不对 R或者九十九 R加一 R的一半 R以上 R又二分之一 R多 R差不多 R之多 R不止 R开外 R出头 R许 R来个 R个以上
R多个 R个多 R个半 R个不 R个吗 R有零 R或19 R外加3 R还不够 R个还多 R的双倍 R分之三 R乘3 R的三成 R分之 R亿
R百个 R个或更多 R只多不少 R左右 R开根号 R的n次方 R可疑 R存疑 R未知 R无解 R上下 R大概 R约 R似乎 R骗人 R猜
R倒数 R阶乘 R点五 Rnicht Roder Rfaux Rневерно R아니다 Rではない Rخطأ R_wrong R_maybe 不是R 非R 约R 大约R 近R
超过R 不到R 少于R 多于R 大于R 小于R 负R 减R 加R 半R 两个R 可能R 也许R 除R ≠R 三倍的R 另外R 倒数是R 平方是R
的平方是R 一半是R 不R 没有R 差R 别的R nicht_R pas_R не_R 약_R 約R ليس_R not_R
"""
FORMS = ("R", "R个", "答：R", "答：一共有R个。", "R（个）", "共R", "答案是R", "R\\text{个}", " R 。")


def rows_of(language: str) -> list[dict]:
    return [row for row in labelled("grader_languages") if row["lang"] == language]


@pytest.mark.slow
@pytest.mark.parametrize("language", AT_LEAST)
def test_natural_forms_are_right_and_no_word_that_changes_a_value_is(language):
    rows = rows_of(language)
    wrong, natural = ([row for row in rows if row["same"] is same] for same in (False, True))
    assert len(rows) >= AT_LEAST[language]
    assert len(wrong) >= 0.6 * len(rows)
    for reward in (False, True):
        right = {
            row["answer"]
            for row in rows
            if compare(row["reference"], row["answer"], question=row["question"], reward=reward).right
        }
        assert [row for row in wrong if row["answer"] in right] == []
        missed = [row["answer"] for row in natural if row["answer"] not in right]
        assert len(missed) <= 0.05 * len(natural), missed


@pytest.mark.parametrize("language", AT_LEAST)
def test_without_the_question_no_wrong_form_is_right_either(language):
    rows = [row for row in rows_of(language) if not row["same"]]
    accepted = [row["answer"] for row in rows if compare(row["reference"], row["answer"]).right]
    assert len(accepted) <= 0.05 * len(rows), accepted


@pytest.mark.slow
def test_on_cmath_no_word_but_a_counter_is_accepted_beside_the_answer():
    questions = [row for row in shared("bench/cmath_test") if row["answer"].isdigit()]
    rows = random.Random(SEED).sample(questions, 100)
    accepted, missed = [], []
    for row in rows:
        for form in CHANGED.split():
            answer = form.replace("_", " ").replace("R", row["answer"])
            if grade(row["answer"], f"\\boxed{{{answer}}}", question=row["question"], boxed_only=True).right:
                accepted.append((answer, row["question"]))
        for form in FORMS:
            answer = form.replace("R", row["answer"])
            if not compare(row["answer"], answer, question=row["question"]).right:
                missed.append((answer, row["question"]))
    assert len(accepted) <= 0.005 * len(rows) * len(CHANGED.split()), (SEED, accepted[:20])
    assert len(missed) <= 0.05 * len(rows) * len(FORMS), (SEED, missed[:20])


def test_every_listed_word_is_one_word_of_its_pattern():
    words = [word.rstrip("*") for listed in WORDS.values() for word in listed]
    assert [word for word in words if not remarks._ONE_WORD.fullmatch(word)] == []


def test_the_grader_counts_for_the_evaluation_by_its_version():
    assert "mathverdict" in Code().packages("pipeline.evaluate") and WORDS["measure"]
