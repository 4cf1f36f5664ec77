"""Ten jobs with one mistake each, which ``holdfast torture`` finds.

Without a fault all of them give the right results, so no ordinary test notices the mistake:

    holdfast torture examples/broken/state_in_field.py
"""
