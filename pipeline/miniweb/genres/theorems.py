"""Statements with proofs, in English: the stuff of lecture notes and of questions about proofs."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Theorem:
    """`name` is a title, `definition` introduces the notion; all use the symbols of `lectures.PHRASES`."""

    name: str
    definition: str
    statement: str
    proof: str


THEOREMS: tuple[Theorem, ...] = (
    Theorem(
        "Kernels are subspaces",
        "<let> ⟦T⟧ be a linear map from ⟦<@space>⟧ to ⟦W⟧. The kernel of ⟦T⟧ is the set of all vectors that "
        "⟦T⟧ sends to zero.",
        "The kernel of every linear map ⟦T⟧ is a subspace of ⟦<@space>⟧.",
        "<suppose> ⟦x⟧ and ⟦y⟧ lie in the kernel. <hence> ⟦T(x+y)=T(x)+T(y)=0⟧ by linearity, so the sum lies "
        "in the kernel. In the same way ⟦T(cx)=cT(x)=0⟧ for every scalar ⟦c⟧. The zero vector is in the "
        "kernel as well.",
    ),
    Theorem(
        "Injective linear maps",
        "A map is injective if different vectors have different images. For linear maps <enough> the zero "
        "vector.",
        "A linear map ⟦T⟧ on ⟦<@space>⟧ is injective if and only if its kernel contains only the zero "
        "vector.",
        "If ⟦T⟧ is injective, only zero is sent to zero. Conversely <suppose> the kernel is trivial and "
        "⟦T(x)=T(y)⟧. <hence> ⟦T(x-y)=0⟧, so ⟦x-y=0⟧ and the two vectors are equal.",
    ),
    Theorem(
        "Intersections of subspaces",
        "A subspace of ⟦<@space>⟧ is a subset that contains zero and is closed under addition and under "
        "multiplication by scalars.",
        "If ⟦U_1⟧ and ⟦U_2⟧ are subspaces of ⟦<@space>⟧, then so is ⟦U_1\\cap U_2⟧.",
        "<let> ⟦x⟧ and ⟦y⟧ be vectors in ⟦U_1\\cap U_2⟧. Both lie in ⟦U_1⟧, <hence_low> ⟦x+y\\in U_1⟧; both "
        "lie in ⟦U_2⟧, <hence_low> ⟦x+y\\in U_2⟧. The argument for scalar multiples is the same.",
    ),
    Theorem(
        "Unique coordinates",
        "Vectors ⟦v_1,\\ldots ,v_<@index>⟧ are linearly independent if only the trivial combination of them "
        "is zero. A basis is a linearly independent family that spans ⟦<@space>⟧.",
        "Every vector of ⟦<@space>⟧ is a linear combination of a basis in exactly one way.",
        "<suppose> a vector has two representations. <subtracting> one from the other gives a combination of "
        "the basis that is zero. By linear independence all its coefficients vanish, <hence_low> the two "
        "representations agree.",
    ),
    Theorem(
        "Eigenvectors of distinct eigenvalues",
        "A non-zero vector ⟦v⟧ is an eigenvector of ⟦A⟧ with eigenvalue ⟦\\lambda⟧ if ⟦Av=\\lambda v⟧.",
        "Eigenvectors ⟦v⟧ and ⟦w⟧ of ⟦A⟧ that belong to distinct eigenvalues ⟦\\lambda⟧ and ⟦\\mu⟧ are "
        "linearly independent.",
        "<suppose> ⟦w=cv⟧ for a scalar ⟦c⟧. Applying ⟦A⟧ gives ⟦\\mu w=\\lambda cv=\\lambda w⟧, <hence_low> "
        "⟦(\\mu -\\lambda )w=0⟧. Since the eigenvalues differ we get ⟦w=0⟧, a contradiction, because "
        "eigenvectors are not zero.",
    ),
    Theorem(
        "Singular matrices",
        "The determinant of a two by two matrix with rows ⟦(a,b)⟧ and ⟦(c,d)⟧ is the number ⟦ad-bc⟧.",
        "A square matrix is invertible if and only if its determinant is not zero.",
        "<suppose> ⟦A⟧ has an inverse ⟦B⟧. Determinants are multiplicative, <hence_low> "
        "⟦\\det A\\cdot \\det B=1⟧ and neither factor is zero. If the determinant is not zero, the adjugate "
        "divided by it is an inverse.",
    ),
    Theorem(
        "Limits are unique",
        "A sequence ⟦a_n⟧ converges to ⟦a⟧ if for every ⟦\\varepsilon⟧ there is an index ⟦N⟧ such that the "
        "distance from ⟦a_n⟧ to ⟦a⟧ is smaller than ⟦\\varepsilon⟧ for all ⟦n\\ge N⟧.",
        "A convergent sequence of real numbers has exactly one limit.",
        "<suppose> ⟦a⟧ and ⟦b⟧ are both limits. By the triangle inequality the distance of ⟦a⟧ and ⟦b⟧ is "
        "smaller than ⟦2\\varepsilon⟧ for every ⟦\\varepsilon⟧. <hence> the distance is zero.",
    ),
    Theorem(
        "Convergent sequences are bounded",
        "A sequence ⟦a_n⟧ is bounded if there is a constant ⟦C⟧ that no term exceeds in absolute value.",
        "Every convergent sequence is bounded.",
        "<let> ⟦a⟧ be the limit. From some index ⟦N⟧ on, all terms are within distance ⟦1⟧ of ⟦a⟧. There are "
        "only finitely many terms before ⟦N⟧, <hence_low> the maximum of their absolute values and of ⟦a+1⟧ "
        "is a bound.",
    ),
    Theorem(
        "Sums of limits",
        "We write ⟦a_n\\to a⟧ if the sequence ⟦a_n⟧ converges to ⟦a⟧.",
        "If ⟦a_n\\to a⟧ and ⟦b_n\\to b⟧, then ⟦a_n+b_n\\to a+b⟧.",
        "<let> ⟦\\varepsilon⟧ be given. Choose ⟦N⟧ such that both sequences are within "
        "⟦\\frac{\\varepsilon}{2}⟧ of their limits from there on. <hence> the sum is within ⟦\\varepsilon⟧ "
        "of ⟦a+b⟧ by the triangle inequality.",
    ),
    Theorem(
        "Compositions of continuous functions",
        "A function ⟦f⟧ is continuous at ⟦p⟧ if ⟦f(x_n)\\to f(p)⟧ for every sequence with ⟦x_n\\to p⟧.",
        "If ⟦f⟧ is continuous at ⟦p⟧ and ⟦g⟧ is continuous at ⟦f(p)⟧, then ⟦g\\circ f⟧ is continuous at ⟦p⟧.",
        "<let> ⟦x_n⟧ be a sequence that converges to ⟦p⟧. <hence> ⟦f(x_n)\\to f(p)⟧ because ⟦f⟧ is "
        "continuous, and then ⟦g(f(x_n))\\to g(f(p))⟧ because ⟦g⟧ is.",
    ),
    Theorem(
        "An irrational root",
        "A real number is rational if it is a quotient of two integers, and irrational otherwise.",
        "The square root ⟦\\sqrt{<@prime>}⟧ is irrational.",
        "<suppose> ⟦\\sqrt{<@prime>}=\\frac{a}{b}⟧ in lowest terms. <hence> ⟦a^2=<@prime>b^2⟧, so the prime "
        "⟦<@prime>⟧ divides ⟦a⟧. Writing ⟦a=<@prime>c⟧ we find ⟦b^2=<@prime>c^2⟧, so it divides ⟦b⟧ too. "
        "This contradicts the choice of the fraction.",
    ),
    Theorem(
        "Infinitely many primes",
        "A prime is an integer greater than ⟦1⟧ whose only positive divisors are ⟦1⟧ and itself.",
        "There are infinitely many prime numbers.",
        "<suppose> ⟦p_1,\\ldots ,p_k⟧ are all primes. The number one greater than their product leaves "
        "remainder ⟦1⟧ on division by each of them. <hence> every prime divisor of that number is missing "
        "from the list, a contradiction.",
    ),
    Theorem(
        "The sum of the first integers",
        "A proof by induction shows a base case and that each case implies the next one.",
        "For every integer ⟦n\\ge 1⟧ the sum ⟦1+2+\\ldots +n⟧ equals ⟦\\frac{n(n+1)}{2}⟧.",
        "For ⟦n=1⟧ both sides are ⟦1⟧. <suppose> the formula holds for ⟦n⟧. Adding ⟦n+1⟧ gives "
        "⟦\\frac{n(n+1)}{2}+(n+1)⟧, which is ⟦\\frac{(n+1)(n+2)}{2}⟧. <hence> the formula holds for ⟦n+1⟧.",
    ),
    Theorem(
        "Uniqueness of the identity",
        "A group is a set with an associative operation, an identity element and inverses.",
        "The identity of a group ⟦<@group>⟧ is unique, and so is the inverse of each element.",
        "<suppose> ⟦e⟧ and ⟦f⟧ are identities. <hence> ⟦e=ef=f⟧. If ⟦h⟧ and ⟦k⟧ are inverses of ⟦g⟧, then "
        "⟦h=h(gk)=(hg)k=k⟧ by associativity.",
    ),
    Theorem(
        "A test for subgroups",
        "A subgroup of ⟦<@group>⟧ is a subset that is a group under the same operation.",
        "A non-empty subset ⟦H⟧ of ⟦<@group>⟧ is a subgroup if ⟦ab^{-1}\\in H⟧ for all ⟦a,b\\in H⟧.",
        "<let> ⟦a⟧ be an element of ⟦H⟧. Taking ⟦b=a⟧ shows ⟦e\\in H⟧. Taking ⟦e⟧ for the first element "
        "shows that inverses lie in ⟦H⟧. <hence> products lie in ⟦H⟧ too, as ⟦ab=a(b^{-1})^{-1}⟧.",
    ),
    Theorem(
        "The greatest common divisor as a combination",
        "The greatest common divisor ⟦\\gcd(a,b)⟧ is the largest integer that divides both ⟦a⟧ and ⟦b⟧.",
        "For integers ⟦a⟧ and ⟦b⟧, not both zero, there are integers ⟦s⟧ and ⟦t⟧ with ⟦\\gcd(a,b)=sa+tb⟧.",
        "<let> ⟦d⟧ be the smallest positive integer of the form ⟦sa+tb⟧. Dividing ⟦a⟧ by ⟦d⟧ leaves a "
        "remainder of the same form, smaller than ⟦d⟧, <hence_low> it is zero. So ⟦d⟧ divides ⟦a⟧, and "
        "likewise ⟦b⟧.",
    ),
    Theorem(
        "The geometric series",
        "The partial sums of a series ⟦\\sum a_k⟧ are the sums of its first terms; the series converges if "
        "they do.",
        "For ⟦q\\ne 1⟧ the sum ⟦1+q+q^2+\\ldots +q^n⟧ equals ⟦\\frac{1-q^{n+1}}{1-q}⟧.",
        "Multiply the sum by ⟦1-q⟧. All terms cancel in pairs except the first and the last, which leaves "
        "⟦1-q^{n+1}⟧. <hence> dividing by ⟦1-q⟧ proves the formula.",
    ),
    Theorem(
        "Functions with vanishing derivative",
        "The derivative of ⟦f⟧ at ⟦p⟧ is the limit of the difference quotients ⟦\\frac{f(p+h)-f(p)}{h}⟧ as "
        "⟦h\\to 0⟧.",
        "If ⟦f^{\\prime}(x)=0⟧ on an interval, then ⟦f⟧ is constant there.",
        "<let> ⟦x⟧ and ⟦y⟧ be points of the interval. By the mean value theorem "
        "⟦f(x)-f(y)=f^{\\prime}(c)(x-y)⟧ for some ⟦c⟧ between them. <hence> the difference is zero.",
    ),
    Theorem(
        "Equivalence classes",
        "An equivalence relation is reflexive, symmetric and transitive; the class of ⟦x⟧ is the set of all "
        "elements related to ⟦x⟧.",
        "Two equivalence classes are either equal or disjoint.",
        "<suppose> the classes of ⟦x⟧ and ⟦y⟧ share an element ⟦z⟧. <hence> ⟦x⟧ is related to ⟦z⟧ and ⟦z⟧ to "
        "⟦y⟧, so ⟦x⟧ is related to ⟦y⟧ by transitivity. Every element of one class then lies in the other.",
    ),
    Theorem(
        "Congruences and sums",
        "We write ⟦a\\equiv b⟧ modulo ⟦m⟧ if ⟦m⟧ divides ⟦a-b⟧.",
        "If ⟦a\\equiv b⟧ and ⟦c\\equiv d⟧ modulo ⟦m⟧, then ⟦a+c\\equiv b+d⟧ and ⟦ac\\equiv bd⟧ modulo ⟦m⟧.",
        "<let> ⟦a=b+mk⟧ and ⟦c=d+ml⟧. Adding gives ⟦a+c=b+d+m(k+l)⟧. <hence> the first claim; multiplying "
        "out gives the second one, since all other terms contain the factor ⟦m⟧.",
    ),
)
