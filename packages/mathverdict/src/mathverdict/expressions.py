r"""Parse sums, products, powers, functions and brackets, from tokens to an expression tree.

Recursive descent over at most 2,000 tokens and 80 levels. Products, implied or not, and quotients have one
precedence; a bare function such as \sin 2x takes the product up to the next sign or function. Unknown input
raises `Unreadable`; no token is skipped to get a value.
"""

from fractions import Fraction

from .groups import BRACKETS, CLOSING, MINUS_ONE, GroupParser
from .notation import number_word
from .tokens import Token
from .tree import FUNCTION_NAMES, Expression, Unreadable, call, make, number

FACTORS = {"number", "decimal", "symbol", "constant", "function", "command"}
FACTORS |= {"(", "{", "[", "lfloor", "lceil", "\\|"}


class ExpressionParser(GroupParser):
    """Parses one expression; `AnswerParser` adds `sequence`, `item`, `relation` and `union`."""

    def sum(self) -> Expression:
        if self.peek() in ("+-", "-+"):
            kind = self.next().kind
            node = Expression("pm", kind, (number(0), self.product()))
        else:
            node = self.product()
        terms = [node]
        while self.peek() in ("+", "-", "+-", "-+"):
            kind = self.next().kind
            if kind in ("+", "-"):
                term = self.product()
                terms.append(term if kind == "+" else make("neg", term))
            else:
                left = make("add", *terms) if len(terms) > 1 else terms[0]
                terms = [Expression("pm", kind, (left, self.product()))]
        return make("add", *terms) if len(terms) > 1 else terms[0]

    def product(self) -> Expression:
        if self.peek() in ("+", "-"):
            kind = self.next().kind
            node = self.nested(self.product)
            return make("neg", node) if kind == "-" else node
        node = self.power()
        while True:
            kind = self.peek()
            if kind == "*" or (kind == "/" and self.peek(1) != "text"):
                self.next()
                factor = self._signed_power()
                node = make("mul" if kind == "*" else "div", node, factor)
            elif self._starts_factor():
                node = self._implied(node, self._mixed() or self.power())
            else:
                return node

    def _mixed(self) -> Expression | None:
        """Return the fraction of a mixed number such as 1 1/2, the only meaning of two adjacent numerals."""
        numerals = ("number", "decimal")
        if self.peek() not in numerals or self.tokens[self.position - 1].kind not in numerals:
            return None
        if [self.peek(ahead) for ahead in range(3)] != ["number", "/", "number"]:
            raise Unreadable("two numbers side by side")
        top, _, bottom = (self.next() for _ in range(3))
        return make("div", number(top.value), number(bottom.value))

    def _signed_power(self) -> Expression:
        if self.peek() in ("-", "+"):
            sign = self.next().kind
            node = self.nested(self._signed_power)
            return make("neg", node) if sign == "-" else node
        return self.power()

    @staticmethod
    def _implied(left: Expression, right: Expression) -> Expression:
        r"""Return an implied product, or a mixed number: 1 1/2, 1\frac{1}{2}."""
        if left.kind == "number" and left.value.denominator == 1 and right.kind == "div":
            top, bottom = right.args
            if {top.kind, bottom.kind} == {"number"} and 0 < top.value < bottom.value:
                return make("add", left, right)
        return make("mul", left, right)

    def _starts_factor(self) -> bool:
        kind = self.peek()
        if kind == "command" and self.tokens[self.position].value == "end":
            return False
        if kind == "|":
            return self.bars == 0 and self.peek(1) not in ("end", *CLOSING)
        if kind == "[" and (self.turned or self.tokens[self.position - 1].kind == "number"):
            return False
        return kind in FACTORS

    def power(self) -> Expression:
        base = self.atom()
        product = base.kind == "apply" and base.value not in FUNCTION_NAMES and len(base.args) == 1
        if product and self.peek() in ("^", "!"):  # k(d-k)! is k times a factorial
            return make("mul", Expression("symbol", base.value), self._raised(base.args[0]))
        return self._raised(base)

    def _raised(self, base: Expression) -> Expression:
        """Return `base` with the powers and postfix operators that follow."""
        base = self.postfix(base)
        if self.peek() != "^":
            return base
        self.next()
        if self.peek() == "command" and self.tokens[self.position].value == "circ":
            self.next()
            return self.postfix(make("degrees", base))
        exponent = self.nested(self.script)
        if base.kind in ("matrix", "tuple") and exponent == Expression("symbol", "T"):
            return call("transpose", base) if base.kind == "matrix" else base
        return self.postfix(make("pow", base, exponent))

    def postfix(self, node: Expression) -> Expression:
        while True:
            kind = self.peek()
            if kind == "!":
                self.next()
                node = call("factorial", node)
            elif kind == "%":
                self.next()
                node = make("percent", node)
            elif kind == "'" and node.kind == "symbol":
                self.next()
                node = Expression("symbol", node.value + "'")
            elif kind == "_" and node.kind in ("number", "decimal"):
                self.next()
                node = self._based(node)
            else:
                return node

    def _based(self, node: Expression) -> Expression:
        base = self.script()
        if base.kind == "text" and (number_in_words := number_word(base.value)):
            base = number(int(number_in_words))
        return Expression("base", (node.value, base.value))

    def script(self) -> Expression:
        """Return the operand of ^ or _: a group or one atom."""
        return self._signed_power() if self.peek() in ("-", "+") else self.atom()

    def _first_digit(self) -> Expression:
        """Return the first digit of the next numeral, as in \\frac12."""
        digits = str(self.tokens[self.position].value)
        if rest := digits[1:]:
            self.tokens[self.position] = Token("number", Fraction(int(rest)))
        else:
            self.position += 1
        return number(int(digits[0]))

    # atoms

    def atom(self) -> Expression:
        return self.nested(self._atom)

    def _atom(self) -> Expression:
        token = self.next()
        kind, value = token
        if kind in ("number", "decimal"):
            return Expression(kind, value)
        if kind == "constant":
            return Expression("constant", value)
        if kind == "symbol":
            return self._symbol(value)
        if kind == "function":
            return self._function(value)
        if kind == "command":
            return self._command(value)
        if kind == "|" or kind == "\\|":
            return self._bars(kind)
        if kind in ("lfloor", "lceil"):
            inner = self.nested(self.sum)
            self.expect("r" + kind[1:])
            return call("floor" if kind == "lfloor" else "ceil", inner)
        if kind == "$":
            return self.atom()
        if kind == "empty":
            return Expression("set")
        if kind == "space":
            return Expression("space", value)
        if kind in BRACKETS or kind == "]":
            self.position -= 1
            return self._brackets(kind)
        raise Unreadable(f"{kind!r} not expected" if kind != "text" else f"the word {value!r}")

    def _symbol(self, name: str) -> Expression:
        while self.peek() == "_" or (self.peek() == "'" and self.peek(1) == "("):
            if self.next().kind == "'":
                name += "'"
                continue
            name += "_" + _spelling(self.nested(self.script))
        if name == "e" or name == "i":
            return Expression("constant", name)
        if self.peek() == "(":
            return self._applied(name)
        return Expression("symbol", name)

    def _applied(self, name: str) -> Expression:
        self.next()
        inside = self.enclosed(")")
        arguments = inside.args if inside.kind == "list" else (inside,)
        if name == "C" and len(arguments) == 2:  # combinations
            return call("binom", *arguments)
        return Expression("apply", name, arguments)

    def _function(self, name: str) -> Expression:
        index = None
        exponent = None
        while self.peek() in ("_", "^"):
            if self.next().kind == "_":
                index = self.nested(self.script)
            else:
                exponent = self.nested(self.script)
        if name == "sqrt":
            index = self._root_index() or index
        argument = self._argument(name)
        if name == "log" and index is not None:
            node = make("div", call("ln", argument), call("ln", index))
        elif name == "log10":
            node = make("div", call("ln", argument), call("ln", number(10)))
        elif name == "sqrt":
            node = call("sqrt", argument) if index in (None, number(2)) else call("root", argument, index)
        else:
            arguments = argument.args if argument.kind == "list" else (argument,)
            inverse = exponent in (MINUS_ONE, make("neg", number(1)))
            if inverse and not name.startswith("arc"):
                name, exponent = "arc" + name, None
            node = call("ln" if name == "log" else name, *arguments)
        return make("pow", node, exponent) if exponent is not None else node

    def _root_index(self) -> Expression | None:
        if self.peek() != "[":
            return None
        self.next()
        index = self.nested(self.sum)
        self.expect("]")
        return index

    def _argument(self, name: str) -> Expression:
        r"""Return a function's argument: a group, or a product up to the next sign or function."""
        if self.peek() in ("(", "{") or (self.peek() == "[" and name != "sqrt"):
            return self.enclosed(BRACKETS[self.next().kind])
        if name == "sqrt":  # without braces: a numeral as a whole, or one atom
            node = self.atom()
            return call("factorial", node) if self.peek() == "!" and self.next() else node
        node = self.power()
        while (self._starts_factor() and self.peek() not in ("function", "(")) or (
            self.peek() == "/" and node.kind != "call" and self.peek(1) in ("number", "symbol")
        ):
            if self.peek() == "/":
                self.next()
                node = make("div", node, self.power())
            else:
                node = self._implied(node, self.power())
        return node

    def _command(self, name: str) -> Expression:
        if name == "frac":
            return make("div", self._part(), self._part())
        if name == "binom":
            return call("binom", self._part(), self._part())
        if name == "begin":
            return self._environment()
        if name in ("sum", "prod"):
            return self._indexed(name)
        raise Unreadable(f"the command \\{name}")

    def _part(self) -> Expression:
        r"""Return an argument of \frac: a group, or one digit or letter, as in \frac12."""
        return self._first_digit() if self.peek() == "number" else self.atom()

    def _indexed(self, kind: str) -> Expression:
        self.expect("_")
        start = self.nested(self._lower)
        self.expect("^")
        high = self.nested(self.script)
        index, low = start.args
        return Expression("sum", kind, (index, low, high, self.product()))

    def _lower(self) -> Expression:
        self.expect("{")
        node = self.relation()
        self.expect("}")
        if node.kind != "relation" or node.value != ("=",) or node.args[0].kind != "symbol":
            raise Unreadable("a sum without a start")
        return node


def _spelling(node: Expression) -> str:
    """Return a subscript as text: equal subscripts give equal names."""
    if node.kind in ("number", "decimal", "symbol", "constant", "text"):
        return str(node.value)
    return f"{node.kind}[{','.join(map(_spelling, node.args))}]"
