// The tool `remote_agent` for the Claude Agent SDK.
//
//   query({ prompt, options: { mcpServers: { attache: remoteAgentServer(client) }, allowedTools: [REMOTE_AGENT] } })
import { createSdkMcpServer, tool, type McpSdkServerConfigWithInstance } from "@anthropic-ai/claude-agent-sdk";
import { z } from "zod";
import type { A2AClient } from "./client.js";
import {
  NAME,
  description,
  offered,
  remoteAgent,
  type RemoteAgentArguments,
  type RemoteAgentOptions,
} from "./remote-agent.js";

/** The tool's full name if the server is called `attache`. */
export const REMOTE_AGENT = `mcp__attache__${NAME}`;

export function remoteAgentServer(client: A2AClient, options: RemoteAgentOptions = {}): McpSdkServerConfigWithInstance {
  const shape = Object.fromEntries(
    offered(options).map(([name, about]) => [name, z.string().optional().describe(about)]),
  );
  const remote = tool(NAME, description(options), shape, async (given, extra) => {
    const signal = (extra as { signal?: AbortSignal } | undefined)?.signal;
    const { output, metadata } = await remoteAgent(client, given as RemoteAgentArguments, { ...options, signal });
    return {
      content: [{ type: "text", text: output }],
      structuredContent: { output, metadata },
      isError: metadata.status === "failed",
    };
  });
  // Offered from the start, without a search for it.
  return createSdkMcpServer({ name: "attache", tools: [remote], alwaysLoad: true });
}
