# What the encodings take from _trim: the one way to run the trimming kernel.

from ullage.native cimport ul_trim_task

# The Outcome, how many turns went, the message tokens of each attempt.
# Raises the contract's error for a sum that overflows or comes to nothing.
cdef tuple trim_turns(const ul_trim_task *task)
