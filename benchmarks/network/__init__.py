"""Real servers on loopback and the load on them: what ``sections/network.py`` measures with."""
