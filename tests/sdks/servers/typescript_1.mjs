// A server on the TypeScript SDK 1; see tests/sdks. Arguments: a port, 0 for stdio, and "stateless".
import { randomUUID } from "node:crypto";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import express from "express";

const [port, kind] = process.argv.slice(2);
const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };

function makeServer() {
  const server = new McpServer({ name: "sdk", version: "1" });
  server.registerTool("ask", { description: "Ask while it runs." }, async () => {
    const answer = await server.server.elicitInput({ message: "Your name?", requestedSchema });
    return { content: [{ type: "text", text: `${answer.action} ${answer.content?.name}` }] };
  });
  return server;
}

const sessions = new Map();

async function transportOf(request) {
  const id = request.headers["mcp-session-id"];
  if (sessions.has(id)) return sessions.get(id);
  const transport = new StreamableHTTPServerTransport(
    kind === "stateless"
      ? { sessionIdGenerator: undefined }
      : { sessionIdGenerator: randomUUID, onsessioninitialized: (made) => sessions.set(made, transport) },
  );
  await makeServer().connect(transport);
  return transport;
}

if (port === "0") {
  await makeServer().connect(new StdioServerTransport());
} else {
  const app = express();
  app.use(express.json());
  app.all("/mcp", async (request, response) => {
    if (kind === "stateless" && request.method !== "POST") return response.status(405).end();
    await (await transportOf(request)).handleRequest(request, response, request.body);
  });
  app.listen(Number(port), "127.0.0.1");
}
