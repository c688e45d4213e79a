// openai-js: plain, streamed by its helper, a function there and back, a second turn. Prints JSON.
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "none", maxRetries: 0 });
const model = "default";
const tools = [
  {
    type: "function",
    name: "get_weather",
    description: "Get the weather of a city.",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
      additionalProperties: false,
    },
    strict: true,
  },
];

/** The helper throws at an event that it does not know. */
async function streamed(body) {
  const stream = client.responses.stream({ model, tools, ...body });
  let text = "";
  stream.on("response.output_text.delta", (event) => (text += event.delta));
  const response = await stream.finalResponse();
  if (text !== response.output_text) throw new Error(`${text} is not ${response.output_text}`);
  return response;
}

async function asked(body) {
  const first = await streamed(body);
  const call = first.output.find((item) => item.type === "function_call");
  const city = JSON.parse(call.arguments).city.trim();
  const output = { Oslo: process.env.OSLO, Rome: process.env.ROME }[city];
  const result = { type: "function_call_output", call_id: call.call_id, output };
  return streamed({ input: [result], previous_response_id: first.id });
}

const { output_text: plain } = await client.responses.create({ model, input: "hello" });
const oslo = await asked({ input: "Use get_weather for Oslo." });
const rome = await asked({ input: "Use get_weather for Rome.", previous_response_id: oslo.id });
const pet = await client.responses.parse({
  model,
  input: "A dog.",
  text: { format: zodTextFormat(z.object({ tame: z.boolean() }), "pet") },
});
const said = { plain, oslo: oslo.output_text, rome: rome.output_text, pet: pet.output_parsed };
console.log(JSON.stringify(said));
