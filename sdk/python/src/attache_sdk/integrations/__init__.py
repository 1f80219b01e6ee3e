"""Agents as tools of the common frameworks. Each module needs its framework: `pip install "attache-sdk[langgraph]"` etc.

Every module has `remote_agent(agent, …)`, one tool for one agent, and `tools(…)`, the tools with which a model finds and
calls agents itself. Both take the arguments of `attache_sdk.tool.remote_agent` and `toolset`.
"""
