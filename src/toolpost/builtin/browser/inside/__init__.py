"""What runs inside the sandbox, beside Chromium: Playwright, the sessions, and what is done there.

Above: ``running.py`` starts it, in a process of its own, and talks to it over one socket. Below:
Playwright. It imports nothing of toolpost (hence the relative imports): its start is paid for by
whoever waits for a browser. It refuses to know who may go where: nothing leads out of here but the
sandbox's proxy.
"""
