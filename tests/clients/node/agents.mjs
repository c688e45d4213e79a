// The Agents SDK: what it reports of the reasoning's summary while it streams, and of its items. Prints JSON.
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";

setTracingDisabled(true);
const weather = { Oslo: process.env.OSLO, Rome: process.env.ROME };
const agent = new Agent({
  name: "Assistant",
  model: "default",
  modelSettings: {
    store: false,
    reasoning: { effort: "low", summary: "detailed" },
    providerData: { include: ["reasoning.encrypted_content"] },
  },
  tools: [
    tool({
      name: "get_weather",
      description: "Get the weather of a city.",
      parameters: z.object({ city: z.string() }),
      execute: async ({ city }) => weather[city.trim()],
    }),
  ],
});
const modelProvider = new OpenAIProvider({
  baseURL: process.env.BASE_URL,
  apiKey: "none",
  useResponses: true,
});
const runner = new Runner({ modelProvider });
const streamed = await runner.run(agent, "Use get_weather for Oslo.", { stream: true });
let summary = "";
for await (const { type, data } of streamed) {
  if (type === "raw_model_stream_event" && data.type === "model")
    if (data.event.type === "response.reasoning_summary_text.delta") summary += data.event.delta;
}
await streamed.completed;
const items = streamed.newItems.filter(({ type }) => type === "reasoning_item");
const next = [...streamed.history, { role: "user", content: "Use get_weather for Rome." }];
const again = await runner.run(agent, next);
console.log(
  JSON.stringify({
    summary,
    shown: items.flatMap(({ rawItem }) => rawItem.content.map(({ text }) => text)),
    encrypted: items.every(({ rawItem }) => rawItem.providerData?.encrypted_content),
    oslo: streamed.finalOutput,
    rome: again.finalOutput,
  }),
);
