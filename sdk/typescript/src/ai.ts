// The tool `remote_agent` for the Vercel AI SDK.
//
//   generateText({ model, tools: { remote_agent: remoteAgentTool(client) }, … })
import { jsonSchema, tool, type Tool } from "ai";
import type { A2AClient } from "./client.js";
import {
  description,
  offered,
  remoteAgent,
  type RemoteAgentArguments,
  type RemoteAgentOptions,
  type RemoteAgentResult,
} from "./remote-agent.js";

export function remoteAgentTool(
  client: A2AClient,
  options: RemoteAgentOptions = {},
): Tool<RemoteAgentArguments, RemoteAgentResult> {
  const properties = Object.fromEntries(
    offered(options).map(([name, about]) => [name, { type: "string" as const, description: about }]),
  );
  return tool<RemoteAgentArguments, RemoteAgentResult>({
    description: description(options),
    inputSchema: jsonSchema<RemoteAgentArguments>({ type: "object", properties, additionalProperties: false }),
    execute: (given, { abortSignal }) => remoteAgent(client, given, { ...options, signal: abortSignal }),
  });
}
