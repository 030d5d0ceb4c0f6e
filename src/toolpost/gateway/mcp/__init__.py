"""The MCP server: what a runtime has, for MCP clients of every revision, over HTTP and stdio.

Above: the gateway mounts what ``app.py`` makes, ``toolpost mcp`` runs ``stdio.py``.
Below: the runtime, and the SDK, which speaks the protocol; the one method that every agent waits
for, ``tools/call`` of the revision without sessions, is spoken here by hand. What a call may do is
decided on the road.
"""
