// The Vercel AI SDK with its OpenAI provider: the same, its own loop calls the function. Prints JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

const model = createOpenAI({ baseURL: process.env.BASE_URL, apiKey: "none" })("default");
const weather = { Oslo: process.env.OSLO, Rome: process.env.ROME };
const tools = {
  get_weather: tool({
    description: "Get the weather of a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => weather[city.trim()],
  }),
};
const options = { model, tools, stopWhen: isStepCount(3), maxRetries: 0 };

const { text: plain } = await generateText({ model, prompt: "hello", maxRetries: 0 });
const messages = [{ role: "user", content: "Use get_weather for Oslo." }];
const oslo = await generateText({ ...options, messages });
messages.push(...oslo.responseMessages, { role: "user", content: "Use get_weather for Rome." });
const stream = streamText({ ...options, messages });
let rome = "";
for await (const part of stream.textStream) rome += part;
console.log(JSON.stringify({ plain, oslo: oslo.text, rome, steps: (await stream.steps).length }));
