"""For who writes tools: what is checked, written down and begun for them.

Above: the command line. Below: everything else, used as anybody would.
"""
