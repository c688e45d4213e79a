// The MCP SDK of TypeScript: asks `agent mcp serve` with progress, and answers its question. Prints JSON.
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [command, ...args] = JSON.parse(process.env.SERVER);
const client = new Client(
  { name: "test", version: "1" },
  { capabilities: { elicitation: { form: {} } } },
);
const questions = [];
client.setRequestHandler("elicitation/create", async (request) => {
  questions.push(request.params.message);
  return { action: "accept", content: { seats: 3 } };
});
await client.connect(
  new StdioClientTransport({ command, args, env: { ...process.env }, stderr: "inherit" }),
);
const steps = [];
const result = await client.callTool(
  { name: "ask", arguments: { prompt: "Book a table." } },
  { onprogress: (progress) => steps.push(progress.message) },
);
const { resources } = await client.listResources();
const { contents } = await client.readResource({ uri: resources[0].uri });
const tools = (await client.listTools()).tools.map((tool) => tool.name);
console.log(
  JSON.stringify({
    tools,
    questions,
    steps,
    answer: result.structuredContent.answer,
    conversation: contents[0].text,
  }),
);
await client.close();
