"""What people see of a live experiment: the experimenter's page and the participant's.

HTML that is right without a script, made of plain data by plain functions; whatever is text is
escaped where it is put in (`markup`). Nothing here knows HTTP, so that the report of the
demonstration is drawn by the same code.
"""
