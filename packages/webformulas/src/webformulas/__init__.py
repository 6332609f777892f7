"""Formulas of web pages to TeX (MathML, MathJax, KaTeX, images, delimiters), and TeX to MathML."""
