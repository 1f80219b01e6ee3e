"""Calls `remote_agent` with the Python SDK of MCP, whose user deals with forms as told.

Run:   elicitation.py MODE STEPS SERVER...   SERVER is a URL (its secret in ATTACHE_SECRET), or a program and its arguments
MODE:  `legacy` (with a handshake), or a version since 2026-07-28
STEPS: a JSON list of {"arguments": {...}, "form": {"action": ..., "content": ...}}; a client that is to show no forms
       gets steps without `form`
See:   one line of JSON per step: the forms that were shown, and the result
"""

import asyncio
import json
import os
import sys

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.types import ElicitResult


async def main(mode, steps, server):
    shown, step = [], {}

    async def ask(_context, params):
        shown.append(params.model_dump(by_alias=True, exclude_none=True))
        return ElicitResult(**step["form"])

    if server[0].startswith("http"):
        headers = {"Authorization": f"Bearer {os.environ['ATTACHE_SECRET']}"}
        transport = streamable_http_client(server[0], http_client=create_mcp_http_client(headers))
    else:
        transport = StdioServerParameters(command=server[0], args=server[1:], env=dict(os.environ))
    shows_forms = any("form" in one for one in steps)
    async with Client(transport, mode=mode, elicitation_callback=ask if shows_forms else None) as client:
        for step in steps:
            shown.clear()
            result = await client.call_tool("remote_agent", step["arguments"])
            said = {
                "version": client.protocol_version,
                "forms": shown,
                "text": result.content[0].text,
                "structured": result.structured_content,
            }
            print(json.dumps(said), flush=True)


asyncio.run(main(sys.argv[1], json.loads(sys.argv[2]), sys.argv[3:]))
