// openai-js: a conversation with items, turns that extend it, one item deleted. Prints JSON.
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: "none", maxRetries: 0 });
const model = "default";

const conversation = await client.conversations.create({
  metadata: { topic: "sums" },
  items: [
    { role: "user", content: "hello" },
    { role: "assistant", content: "Hi!" },
  ],
});
const id = conversation.id;
const first = await client.responses.create({ model, conversation: id, input: "What is 12*34?" });
const stream = client.responses.stream({ model, conversation: { id }, input: "thank you" });
const last = await stream.finalResponse();

async function texts() {
  const found = [];
  for await (const item of client.conversations.items.list(id, { order: "asc", limit: 2 })) {
    if (item.type === "message") found.push(item.content[0].text);
  }
  return found;
}

const before = await texts();
const newest = (await client.conversations.items.list(id, { limit: 1 })).data[0];
await client.conversations.items.delete(newest.id, { conversation_id: id });
const after = await texts();
const { metadata } = await client.conversations.update(id, { metadata: { topic: "more" } });
const { deleted } = await client.conversations.delete(id);
const code = await client.conversations.retrieve(id).catch((error) => error.code);
const answers = [first.output_text, last.output_text];
const named = first.conversation.id === id;
console.log(JSON.stringify({ before, after, answers, metadata, deleted, code, named }));
