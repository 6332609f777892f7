"""Benchmark texts in pages: found whatever the markup, explained, and not imagined."""

import itertools

import numpy as np

from pipeline.decontaminate.ngrams import Index, rolling, tokenise

QUESTION = "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May."


def index(*texts: str) -> Index:
    built = Index(ngram=10, shortest=3)
    for number, text in enumerate(texts):
        built.add("bench", f"item-{number}", text)
    return built


def test_a_shared_run_of_ten_words_is_found_with_item_gram_and_span() -> None:
    page = "Some words before. NATALIA sold clips - to 48 of her friends in “April”! And more words after it."
    (match,) = index(QUESTION).matches(page)
    assert (match.benchmark, match.item, match.rule) == ("bench", "item-0", "10-gram")
    assert match.gram == "natalia sold clips to 48 of her friends in april"
    assert page[slice(*match.span)].startswith("NATALIA") and page[slice(*match.span)].endswith("April")


def test_nine_shared_words_of_a_long_text_are_no_leak_and_numbers_count() -> None:
    assert not list(index(QUESTION).matches("natalia sold clips to 48 of her friends in june"))
    assert not list(
        index(QUESTION).matches("Natalia sold clips to 49 of her friends in April, and then she left.")
    )


def test_a_short_text_must_match_whole() -> None:
    short = index("Factor the polynomial completely please")
    assert [match.rule for match in short.matches("Now factor the polynomial completely, please.")] == [
        "exact"
    ]
    assert not list(short.matches("factor the polynomial completely"))


def test_texts_under_three_words_are_never_matched() -> None:
    assert len(index("forty two", "42")) == 0


def test_chinese_characters_are_words() -> None:
    question = "妈咪买了3盒茶叶，一盒茶叶有6小包，一共买了多少小包茶叶？"
    (match,) = index(question).matches("练习：妈咪买了3盒茶叶, 一盒茶叶有6小包，问题如下。")
    assert match.gram.startswith("妈 咪 买 了 3 盒")


def test_tables_formulas_and_stock_phrases_are_no_evidence() -> None:
    product = "7\\cdot 6\\cdot 5\\cdot 4\\cdot 3\\cdot 2\\cdot 1"
    solution = f"12+3=15 15-9=6 6-6=0 The answer is 0. 1 2 3 4 5 6 7 8 9 10 11 12 ${product}$"
    page = "6-6=0 the answer is 0. 1 2 3 4 5 6 7 8 9 10 11 and 7\\cdot 6\\cdot 5\\cdot 4\\cdot 3\\cdot 2"
    assert not list(index(solution).matches(page))


def test_windows_equal_brute_force() -> None:
    rng = np.random.default_rng(0)
    words = ["alpha", "beta", "gamma", "delta", "epsilon"]
    benchmark = " ".join(rng.choice(words, 40))
    page = " ".join(rng.choice(words, 4000))
    grams = {tuple(benchmark.split()[start : start + 10]) for start in range(31)}
    tokens = page.split()
    expected = any(tuple(tokens[start : start + 10]) in grams for start in range(len(tokens) - 9))
    assert bool(list(index(benchmark).matches(page))) == expected
    planted = f"{page} {' '.join(benchmark.split()[7:17])} {page}"
    assert list(index(benchmark).matches(planted))


def test_equal_runs_and_only_they_have_equal_hashes() -> None:
    text = " ".join(f"w{number % 7} v{number % 3}" for number in range(50))
    tokens = tokenise(text, {})
    runs = [tuple(tokens.words[start : start + 4]) for start in range(len(tokens.words) - 3)]
    hashes = rolling(tokens.hashes, 4).tolist()
    for (run, value), (other, other_value) in itertools.combinations(zip(runs, hashes, strict=True), 2):
        assert (run == other) == (value == other_value)


def test_a_stock_phrase_of_ten_words_is_no_leak() -> None:
    phrase = "is equal to the sum of the squares of the"
    built = index(f"Show that the number {phrase} digits.")
    assert not list(built.matches(f"The hypotenuse {phrase} sides."))


def test_sums_around_a_stock_phrase_in_chinese_are_no_leak() -> None:
    assert not list(index("0+9=9, 9-2=7, 7。答案是 7").matches("0 + 9 = 9, 9 - 2 = 7, 7 答案是 7"))
