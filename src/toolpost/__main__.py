"""``python -m toolpost``: the command line, for whoever has no program of that name at hand.

Above: the interpreter. Below: ``cli/main.py``, which is all there is to it.
"""

from toolpost.cli.main import main

if __name__ == "__main__":
    main()
