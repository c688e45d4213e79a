// A server on the TypeScript SDK 2; see tests/sdks. Arguments: a port, 0 for stdio, and "stateless".
import { createServer } from "node:http";
import { randomUUID } from "node:crypto";
import { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } from "@modelcontextprotocol/node";
import { acceptedContent, createMcpHandler, inputRequired, isLegacyRequest, McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const [port, kind] = process.argv.slice(2);
const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const question = { message: "Your name?", requestedSchema };
const text = (words) => ({ content: [{ type: "text", text: words }] });

function makeServer() {
  const server = new McpServer({ name: "sdk", version: "1" });
  server.registerTool("ask", { description: "Ask while it runs." }, async () => {
    const answer = await server.server.elicitInput(question);
    return text(`${answer.action} ${answer.content?.name}`);
  });
  server.registerTool("ask_newer", { description: "Ask by a result." }, async (context) => {
    const answer = acceptedContent(context.mcpReq.inputResponses, "name");
    if (answer) return text(`accept ${answer.name}`);
    return inputRequired({ inputRequests: { name: inputRequired.elicit(question) } });
  });
  return server;
}

const sessions = new Map();

// What the SDK's documentation says for a server that keeps its sessions beside the newer version.
async function serveSession(request, response, body) {
  const id = request.headers["mcp-session-id"];
  let transport = sessions.get(id);
  if (!transport) {
    transport = new NodeStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (made) => sessions.set(made, transport),
    });
    await makeServer().connect(transport);
  }
  await transport.handleRequest(request, response, body);
}

const newer = toNodeHandler(createMcpHandler(makeServer, kind === "stateless" ? {} : { legacy: "reject" }));

async function serve(request, response) {
  if (kind === "stateless") return newer(request, response);
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : undefined;
  const older = await isLegacyRequest(await toWebRequest(request, body));
  await (older ? serveSession : newer)(request, response, body);
}

if (port === "0") serveStdio(makeServer);
else createServer(serve).listen(Number(port), "127.0.0.1");
