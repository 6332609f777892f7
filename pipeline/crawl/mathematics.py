"""Whether a text shows any sign of mathematics: the filter before deduplication of `crawl.order: math_first`.

MegaMath (Zhou et al. 2025) has a fastText model there, which must be trained first. This one counts formulas,
symbols and words, so that it exists before the loop has run and needs no model. It is for recall: what only
looks like mathematics is left to the loop. Words and thresholds were chosen on pages of half of the hosts of
the labelled real pages; `tests/benchmarks/mathematics.py` measures it on those of the other half.
"""

import re

from pipeline.formulas.delimiters import FORMULA

SIGNS, LENGTH = 2, 1500  # least signs of a page, and the most characters for each
LISTED = """
algebra algebraic angle angles arithmetic associative asymptotic asymptotically axiom axioms bayesian
bessel bijection bijective binomial boolean calculus cardinality coefficient coefficients combinatorial
combinatorics commutative congruent conjecture convergence converges convex coordinate coordinates coprime
corollary cosine covariance cubic decimal decimals denominator denominators derivative derivatives
determinant determinants differentiable differential differentiation digit digits divisibility divisible
divisor divisors eigenvalue eigenvalues eigenvector eigenvectors ellipse equation equations estimator
euclid euclidean euler exponent exponential exponents expression expressions factorial factorials
factorization fibonacci finite formula formulas fourier frac fraction fractions function functions gamma
gaussian gcd geometric geometry hexagon homomorphism hyperbola hypergeometric hypotenuse induction
inequalities inequality infinity injective integer integers integral integrals interpolation invertible
irrational isomorphic isomorphism lcm lemma lemmas limit linear logarithm logarithmic logarithms math
mathematical mathematically mathematician mathematicians mathematics maths matrices matrix median modulo
modulus multiplication multiplied multiply notation numerator numerators numerical orthogonal parabola
parallelogram perimeter permutation permutations perpendicular poisson polygon polygons polynomial
polynomials posterior prime primes probabilities probability proof proofs proposition provable prove
proved proves pythagorean quadratic quadrature quadrilateral quantile quotient quotients radian radians
radius rational recurrence recursive regression remainder scalar scalars sequence sequences simplify sine
slope solve solving sqrt statistical stochastic subset subsets subspace subtract subtraction summation
surjective symmetric tangent theorem theorems topological topology triangle triangles trigonometric
trigonometry tuple tuples variable variables variance variances vector vectors vertex vertices zeta
ableitung ableitungen beweis beweise beweisen bruchrechnung dreieck dreiecke dreiecks funktion funktionen
flächeninhalt ganzzahl geometrie geometrisch gleichung gleichungen integrale kegel koeffizient koordinaten
koordinatensystem logarithmus mathe mathematik mathematiker mathematisch mathematische mathematischen
matrizen polynom polynome primzahl primzahlen prisma prismen quader quadratische quadratischen rechteck
teilbar teiler ungleichung vektor vektoren viereck wahrscheinlichkeit wahrscheinlichkeiten winkel zylinder
algèbre dérivée dérivées démonstration entiers équation équations géométrie inégalité intégrale intégrales
mathématique mathématiques matrice matrici polynôme polynômes probabilité probabilités théorème théorèmes
vecteur vecteurs álgebra demostración derivada derivadas desigualdad ecuación ecuaciones enteros fracción
fracciones geometría integrales logaritmo logaritmos matemática matemáticas matemático matriz polinomio
polinomios probabilidad probabilidades teorema teoremas triángulo triángulos vectores equação equações
fração frações geometria inteiros polinômio polinômios probabilidade triângulo triângulos vetor vetores
derivata equazione equazioni frazione frazioni matematica probabilità triangolo triangoli vettore vettori
całka geometrii liczb macierz matematyce matematyka matematyki pochodna prawdopodobieństwo
prawdopodobieństwa równanie równania trójkąt trójkąta twierdzenie ułamki wektor wielomian алгебра алгебры
вектор вероятности вероятность геометрии геометрия доказательство дроби интеграл логарифм математика
математике математики матрица матрицы многочлен производная теорема теоремы треугольник треугольника
уравнение уравнений уравнения чисел
"""  # English, German, French, Spanish, Portuguese, Italian, Polish, Russian
WORDS = frozenset(LISTED.split())
SYMBOL = re.compile("[∀∃∈∉∋∏∑√∛∠∧∨∩∪∫∬∮∴∵≃≅≈≠≡≤≥≦≧≪≫⊂⊃⊆⊇⊕⊗⊢⊥⌊⌋⌈⌉⟨⟩ℕℝℤℚℂℵ¬∂∇∅⇔↦⟶⟹⟺\U0001d434-\U0001d7ff]")
CJK_WORD = re.compile(
    "数学|數學|定理|引理|推论|命题|证明|證明|証明|方程|不等式|函数|函數|関数|多项式|多項式|系数|矩阵|矩陣|行列|向量|ベクトル"
    "|特征值|线性|線性|导数|积分|積分|微分|极限|概率|機率|確率|方差|整数|整數|质数|素数|因数|倍数|余数|分数|小数|平方|立方|三角形"
    "|几何|幾何|代数|代數|集合|映射|同余|求和|递推|수학|정리|방정식|함수|증명|행렬|미분|적분|확률|정수|삼각형|벡터|다항식"
)
# After one letter, which no address has, or a bracket. It begins with `=`, for speed.
EQUATION = re.compile(r"=(?:(?<=[^\w?&;/.]\w=)|(?<=[^\w?&;/.]\w =)|(?<=[)\]}]=)|(?<=[)\]}] =)) ?[\w(\[{\\-]")
TEX = re.compile(r"[\\^_=<>]")
WORD = re.compile("[a-zà-ɏЀ-ӿ]+")


def has_mathematics(text: str) -> bool:
    """Whether a text holds a formula in TeX, or enough signs of mathematics for its length."""
    if "$" in text and any(TEX.search(formula[0]) for formula in FORMULA.finditer(text)):
        return True
    return signs(text) >= max(SIGNS, len(text) / LENGTH)


def signs(text: str) -> int:
    """How many words and symbols of mathematics and equations a text has."""
    found = sum(map(WORDS.__contains__, WORD.findall(text.lower())))
    found += len(EQUATION.findall(text))
    return found if text.isascii() else found + len(SYMBOL.findall(text)) + len(CJK_WORD.findall(text))
