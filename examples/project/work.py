"""What the agents write: a small calculator. In your project a model thinks of this; here it stands ready."""

from __future__ import annotations

from typing import Final

FOUNDED: Final = {"README": "A calculator.\n", ".gitignore": "__pycache__/\n"}

MEMORY: Final = "We build a calculator in Python, one module for each part. Numbers are floats."
MEMORY_LATER: Final = MEMORY + " Review found that exponents (1e5) are easily forgotten."
GRAMMAR: Final = """# Grammar

    sum     = product {("+" | "-") product}
    product = factor {("*" | "/") factor}
    factor  = number | "(" sum ")"
    number  = digits ["." digits] ["e" digits]
"""

# What each task is called in the timeline, what is to be done, and the Python that tells whether it is.
DESCRIPTIONS: Final = {
    "lexer": "Lexer: lexer.tokens(text) returns numbers, operators and brackets, by the grammar.",
    "benchmark": "Benchmark: bench.py times the lexer.",
    "parser": "Parser: parser.value(text) calculates, by the grammar.",
    "tests": "Tests: test_calc.TABLE has expressions and their values, test_calc.check() compares them.",
    "command": "Command: `python calc.py EXPRESSION` prints the value.",
    "notes": "Notes: NOTES tells what there is. Everything works together.",
}
ACCEPTANCE: Final = {
    "lexer": "import lexer; assert lexer.tokens('2*1e1') == ['2', '*', '1e1'], 'numbers like 1e1'",
    "benchmark": "import bench",
    "parser": "import parser; assert parser.value('2 * (3 + 1e1)') == 26",
    "tests": "import test_calc; assert len(test_calc.TABLE) >= 3",
    "command": "import calc; assert calc.main",
    "notes": "import test_calc; test_calc.check(); assert open('NOTES').read()",
}

LEXER: Final = """import re

TOKEN = re.compile(r"\\s*(\\d+(?:\\.\\d+)?|[-+*/()])")


def tokens(text):
    return TOKEN.findall(text)
"""
LEXER_REWORKED: Final = LEXER.replace(r"(?:\.\d+)?", r"(?:\.\d+)?(?:e\d+)?")

PARSER: Final = """from lexer import tokens


def value(text):
    rest = tokens(text)
    result = _sum(rest)
    if rest:
        raise ValueError(rest[0])
    return result


def _sum(rest):
    result = _product(rest)
    while rest and rest[0] in "+-":
        result = result + _product(rest) if rest.pop(0) == "+" else result - _product(rest)
    return result


def _product(rest):
    result = _factor(rest)
    while rest and rest[0] in "*/":
        result = result * _factor(rest) if rest.pop(0) == "*" else result / _factor(rest)
    return result


def _factor(rest):
    token = rest.pop(0)
    if token != "(":
        return float(token)
    result = _sum(rest)
    rest.pop(0)
    return result
"""

TESTS: Final = """TABLE = {"1 + 2 * 3": 7, "2 * (3 + 1e1)": 26, "7 / 2 - 1": 2.5}


def check():
    from parser import value

    for expression, expected in TABLE.items():
        assert value(expression) == expected, expression
"""

HALF_A_COMMAND: Final = "import sys\n\n\ndef main(\n"
COMMAND: Final = """import sys


def main():
    from parser import value

    print(f"{value(sys.argv[1]):g}")


if __name__ == "__main__":
    main()
"""

NOTES: Final = "A lexer, a parser, a command, and a table of tests. Exponents work.\n"
EXPRESSION: Final = "2 * (3 + 1e1)"
VALUE: Final = "26"
