"""HTML pages of a live experiment, for experimenters and participants.

Plain functions render plain data to HTML that is readable without a script; `markup` escapes all
text. The package has no HTTP code, so the demonstration's report uses the same functions.
"""
