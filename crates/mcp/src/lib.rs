//! The MCP server: `delegate`, `delegate_output`, `delegate_cancel` over this machine's daemon, `remote_agent` and
//! `list_agents` over any A2A agent.
