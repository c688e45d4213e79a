// A stream that is silent for longer than fetch allows between two chunks: creates GO after SIGNS of life.
import { writeFileSync } from "node:fs";

await fetch("data:,"); // makes the dispatcher, whose limit is 300 s
const { constructor: Agent } = globalThis[Symbol.for("undici.globalDispatcher.1")];
const impatient = new Agent({ bodyTimeout: 3000, headersTimeout: 3000 });
const answer = await fetch(`${process.env.BASE_URL}/${process.env.ROUTE}`, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: process.env.BODY,
  dispatcher: impatient,
});
let text = "";
let signs = 0;
for await (const chunk of answer.body) {
  const new_text = Buffer.from(chunk).toString();
  signs += new_text.split("keepalive").length > 1 ? 1 : 0;
  if (signs === Number(process.env.SIGNS)) writeFileSync(process.env.GO, "");
  text += new_text;
}
console.log(JSON.stringify({ signs, text }));
