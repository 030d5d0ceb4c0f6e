"""toolpost and its peers, side by side in one run: ``python -m benchmarks``.

Stands beside the package and knows only its public names. ``sections/`` says what is measured,
``contenders/`` who is measured, ``rounds.py`` how; a new section is one module and one line.
"""
