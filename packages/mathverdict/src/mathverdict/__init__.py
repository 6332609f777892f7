"""Whether two final answers are the same; imports nothing else of the project.

`answers` is the entry: `compare` two answers, `grade` a whole response. Below it, in order of use:
`extraction` finds the answer in a response, `asked` reads which form the question wants, `notation` and
`numerals` unify spelling, `tokens`, `groups`, `expressions` and `parser` build a `tree.Expression`,
`equivalence` compares two of them (`regions`, `equations`, `scalars`, `units`, `values`), `prose` compares
answers in words.
"""

from .answers import Verdict, compare, grade

__all__ = ["Verdict", "compare", "grade"]
