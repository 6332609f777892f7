"""The process in which SymPy reads texts for `printed`: a JSON string a line in, LaTeX or null a line out. A
text that takes too long ends it.
"""

import json
import resource
import sys
import time

MEMORY = 2 << 30  # bytes of address space
SECONDS = 1  # of the processor for one text, at least: a busy machine changes no verdict


def main() -> None:
    """Answer until the input ends."""
    import sympy
    from sympy.parsing.sympy_parser import auto_number, auto_symbol, parse_expr

    for limit, value in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
    ):
        resource.setrlimit(limit, (value, value))
    names = {name: getattr(sympy, name) for name in dir(sympy) if not name.startswith("_")}
    names |= {
        "__builtins__": {},
        "set": lambda *items: sympy.FiniteSet(*items[0] if items else ()),
        "list": list,
    }
    names |= {"tuple": tuple}

    def plain(found: object) -> object:
        """Return an object as an expression whose LaTeX is common notation."""
        if isinstance(found, dict):
            return [sympy.Eq(key, value) for key, value in found.items()]
        if isinstance(found, set | frozenset):
            return sympy.FiniteSet(*found)
        if isinstance(found, list) and len(found) == 1:
            return plain(found[0])
        if isinstance(found, sympy.And | sympy.Or) and len(found.free_symbols) == 1:
            return found.as_set()
        if isinstance(found, sympy.Poly):
            return found.as_expr()
        return sympy.Tuple(*found.args) if isinstance(found, sympy.Point) else found

    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    most = sys.maxsize if hard == resource.RLIM_INFINITY else hard
    for line in sys.stdin:
        spent = int(time.process_time()) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (min(spent + SECONDS, most), hard))
        try:
            found = parse_expr(json.loads(line), {}, (auto_symbol, auto_number), dict(names))
            text = sympy.latex(plain(found))
        except Exception:  # SymPy raises any class for a model's text; None leaves the answer undecided
            text = None
        print(json.dumps(text), flush=True)


if __name__ == "__main__":
    main()
