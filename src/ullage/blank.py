"""Blank text: every character has the Unicode property White_Space.

Python's ``str.isspace`` also takes U+001C to U+001F for space, which the
property does not.
"""

_WHITE_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def is_blank(text: str) -> bool:
    """Whether the text is empty or white space only."""
    return not text.strip(_WHITE_SPACE)
