// The Vercel AI SDK with its OpenAI provider: a text file and a PDF as input. Prints JSON.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText } from "ai";

const model = createOpenAI({ baseURL: process.env.BASE_URL, apiKey: "none" })("default");
const providerOptions = { openai: { passThroughUnsupportedFiles: true } };

async function ask(...files) {
  const content = [{ type: "text", text: "hello" }, ...files];
  const messages = [{ role: "user", content }];
  const { text, usage, response } = await generateText({
    model,
    messages,
    providerOptions,
    maxRetries: 0,
  });
  const listed = await fetch(`${process.env.BASE_URL}/responses/${response.id}/input_items`);
  const sent = (await listed.json()).data[0].content.slice(1);
  return { text, tokens: usage.inputTokens, files: sent.map(({ filename }) => filename) };
}

const file = (name, mediaType, data) => ({ type: "file", filename: name, mediaType, data });
const text = new TextEncoder().encode(process.env.TEXT);
console.log(
  JSON.stringify({
    none: await ask(),
    text: await ask(file("notes.txt", "text/plain", text)),
    pdf: await ask(file("notes.pdf", "application/pdf", process.env.PDF)),
  }),
);
