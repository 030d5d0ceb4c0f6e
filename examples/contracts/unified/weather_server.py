"""A small MCP server over standard input and output, with one tool: ``forecast``."""

import json
import sys

FORECAST = {
    "name": "forecast",
    "description": "Tell tomorrow's weather of a town.",
    "inputSchema": {
        "type": "object",
        "properties": {"town": {"type": "string"}},
        "required": ["town"],
    },
}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "weather", "version": "1.0"},
        }
    if method == "tools/list":
        return {"tools": [FORECAST]}
    if method == "tools/call":
        town = params["arguments"]["town"]
        return {"content": [{"type": "text", "text": f"Sun in {town}."}]}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    result = answer(request["method"], request.get("params", {}))
    if result is None:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
