"""The audit's records: their shape, the hash chain of each writing process, the proof that nothing
was changed since.

Above: the audit extension writes, the command line reads and verifies. Below: a ``Journal`` holds
the lines, ``seal`` signs. It refuses to know how a call is run and what is worth recording.
"""
