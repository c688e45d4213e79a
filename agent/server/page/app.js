// A client of /v1/responses. Text of models and tools only becomes text nodes, never markup.

const $ = (id) => document.getElementById(id);
const KEY = "agent.key", LIST = "agent.conversations", RUNNING = "agent.running";
const ENDED = ["response.completed", "response.incomplete", "response.failed"];

/** Make an element with attributes and children; strings become text nodes. */
function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in node && key !== "list") node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function stored(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? otherwise;
  } catch {
    return otherwise;
  }
}
const store = (name, value) => localStorage.setItem(name, JSON.stringify(value));

// --- requests ---

class ApiError extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Ask for the key; the promise is fulfilled once it is there. */
function askKey() {
  return new Promise((resolve) => {
    const dialog = $("keys");
    dialog.oncancel = (event) => event.preventDefault(); // nothing works without it
    $("key-form").onsubmit = (event) => {
      event.preventDefault();
      sessionStorage.setItem(KEY, $("key").value.trim());
      $("key").value = "";
      dialog.close();
      resolve();
    };
    if (!dialog.open) dialog.showModal();
  });
}

let asking = null;

async function request(method, path, body, signal) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const headers = key ? { authorization: `Bearer ${key}` } : {};
    if (body !== undefined) headers["content-type"] = "application/json";
    const options = { method, headers, signal, body: body && JSON.stringify(body) };
    const answer = await fetch(path, options);
    if (answer.status === 401) {
      if (!asking && sessionStorage.getItem(KEY) !== key) continue; // another request has asked
      asking ??= askKey().finally(() => (asking = null));
      await asking;
      continue;
    }
    if (answer.ok) return answer;
    const error = (await answer.json().catch(() => ({}))).error;
    throw new ApiError(answer.status, error?.message ?? `The server answers ${answer.status}.`, error?.code);
  }
}
const json = async (...what) => (await request(...what)).json();

/** The events of a stream of server-sent events. */
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").filter((line) => line.startsWith("data: "));
      if (data.length && data[0] !== "data: [DONE]") yield JSON.parse(data.map((line) => line.slice(6)).join("\n"));
    }
  }
}

// --- Markdown, a subset: paragraphs, headings, lists, quotes, tables, code, emphasis, links ---

const INLINE = /(`+)([^`](?:.*?[^`])?)\1(?!`)|\*\*(?=\S)(.+?)\*\*|(?<![\w*])[*_](?=\S)(.+?\S|\S)[*_](?![\w*])|\[([^\]]+)\]\((\S+?)\)|(https?:\/\/[^\s<>()]+[^\s<>().,;:!?'"])/;

function inline(text) {
  const nodes = [];
  let found;
  while ((found = INLINE.exec(text))) {
    if (found.index) nodes.push(text.slice(0, found.index));
    const [all, , code, strong, emphasis, label, target, url] = found;
    if (code !== undefined) nodes.push(el("code", {}, code));
    else if (strong !== undefined) nodes.push(el("strong", {}, ...inline(strong)));
    else if (emphasis !== undefined) nodes.push(el("em", {}, ...inline(emphasis)));
    else nodes.push(link(label ?? url, target ?? url, all));
    text = text.slice(found.index + all.length);
  }
  if (text) nodes.push(text);
  return nodes;
}

/** A link to the web; any other scheme stays text, and a text shows where its link leads. */
function link(label, target, all) {
  if (!/^https?:\/\//i.test(target)) return all;
  return el("a", { href: target, target: "_blank", rel: "noopener noreferrer", title: target }, label);
}

const BLOCK = /^ {0,3}(#{1,6} |>|```|~~~|[-*+] |\d{1,9}[.)] )/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)]) +(.*)$/;
const cells = (line) => line.trim().replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());

function markdown(text) {
  return blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

function blocks(lines, depth) {
  const nodes = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    let found;
    if (!line.trim()) at++;
    else if ((found = /^ {0,3}(```+|~~~+)/.exec(line))) {
      const end = lines.findIndex((other, i) => i > at && other.trim().startsWith(found[1]));
      const last = end < 0 ? lines.length : end; // it is still written
      nodes.push(el("pre", { tabIndex: 0 }, el("code", {}, lines.slice(at + 1, last).join("\n"))));
      at = last + 1;
    } else if ((found = /^ {0,3}(#{1,6}) +(.*?)#*$/.exec(line))) {
      nodes.push(el(`h${Math.min(found[1].length + 1, 4)}`, {}, ...inline(found[2])));
      at++;
    } else if (/^ {0,3}([-*_])( *\1){2,} *$/.test(line)) {
      nodes.push(el("hr"));
      at++;
    } else if (/^ {0,3}>/.test(line) && depth < 8) {
      const start = at;
      while (at < lines.length && /^ {0,3}>/.test(lines[at])) at++;
      const inner = lines.slice(start, at).map((each) => each.replace(/^ {0,3}> ?/, ""));
      nodes.push(el("blockquote", {}, ...blocks(inner, depth + 1)));
    } else if (ITEM.test(line) && depth < 8) {
      const [list, next] = listOf(lines, at, depth);
      nodes.push(list);
      at = next;
    } else if (line.includes("|") && /^[ |:-]*-[ |:-]*$/.test(lines[at + 1] ?? "") && lines[at + 1].includes("|")) {
      const head = el("tr", {}, ...cells(line).map((cell) => el("th", { scope: "col" }, ...inline(cell))));
      const body = el("tbody");
      for (at += 2; at < lines.length && lines[at].includes("|"); at++)
        body.append(el("tr", {}, ...cells(lines[at]).map((cell) => el("td", {}, ...inline(cell)))));
      nodes.push(el("div", { className: "table", tabIndex: 0 }, el("table", {}, el("thead", {}, head), body)));
    } else {
      const start = at++;
      while (at < lines.length && lines[at].trim() && !BLOCK.test(lines[at])) at++;
      nodes.push(el("p", {}, ...inline(lines.slice(start, at).join("\n"))));
    }
  }
  return nodes;
}

function listOf(lines, at, depth) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(mark);
  const list = ordered ? el("ol", { start: parseInt(mark, 10) }) : el("ul");
  while (at < lines.length) {
    const found = ITEM.exec(lines[at]);
    if (!found || found[1].length > indent.length + 1 || /\d/.test(found[2]) !== ordered) break;
    const inner = [found[3]];
    for (at++; at < lines.length; at++) {
      const next = ITEM.exec(lines[at]);
      if (next && next[1].length <= indent.length + 1) break;
      if (lines[at].trim() && !/^\s/.test(lines[at])) break;
      inner.push(lines[at].slice(Math.min(indent.length + 2, lines[at].search(/\S|$/))));
    }
    list.append(el("li", {}, ...blocks(inner, depth + 1)));
  }
  return [list, at];
}

// --- items of a response ---

/** The arguments of a call as a person reads them, also while they are written. */
function readable(text) {
  let open = text.replace(/\\(u[\da-f]{0,3})?$/i, "");
  for (const end of ["", '"}', "}", '"]}', "]}", 'null}', '": null}']) {
    try {
      const value = JSON.parse(open + end);
      if (value === null || typeof value !== "object") return text;
      const show = (each) => (typeof each === "string" ? each : JSON.stringify(each, null, 2));
      const entries = Object.entries(value);
      if (entries.length === 1 && typeof entries[0][1] === "string") return entries[0][1];
      return entries.map(([name, each]) => `${name}: ${show(each)}`).join("\n");
    } catch {
      // not this ending
    }
  }
  return text;
}

const texts = (parts) => (parts ?? []).map((part) => part.text ?? part.refusal ?? "").join("\n");

function callTitle(item) {
  if (item.type === "code_interpreter_call") return "python";
  if (item.type === "web_search_call") return `web search: ${item.action?.query ?? item.action?.url ?? ""}`;
  return item.server_label ? `${item.server_label}: ${item.name}` : item.name ?? item.type;
}

function resultOf(item) {
  if (item.error) return typeof item.error === "string" ? item.error : item.error.message ?? JSON.stringify(item.error);
  if (item.type === "code_interpreter_call") return (item.outputs ?? []).map((each) => each.logs ?? each.url ?? "").join("\n");
  return typeof item.output === "string" ? item.output : item.output ? texts(item.output) : "";
}

/** What is shown of one item; it follows the item's events. */
class ItemView {
  constructor(item) {
    this.item = item;
    this.text = "";
    this.node = this.make();
    if (item.status !== "in_progress") this.done(item);
  }

  make() {
    const { type } = this.item;
    if (type === "message") return (this.target = el("div", { className: "answer" }));
    this.target = el(type === "reasoning" ? "div" : "pre", { className: type === "reasoning" ? "thought" : "" });
    const title = type === "reasoning" ? "Thoughts" : callTitle(this.item);
    this.summary = el("summary", {}, title);
    this.body = el("div", { className: "body" }, this.target);
    const state = this.item.status === "in_progress" ? "pane running" : "pane";
    if (type !== "reasoning") {
      this.target.tabIndex = 0;
      this.body.prepend(el("h3", {}, "Arguments"));
    }
    return el("details", { className: state, open: true }, this.summary, this.body);
  }

  add(delta) {
    this.text += delta;
    this.stale = true;
  }

  /** Paint what has come since the last frame. */
  paint() {
    if (!this.stale) return;
    this.stale = false;
    if (this.item.type === "message") this.target.replaceChildren(...markdown(this.text));
    else if (this.item.type === "reasoning") this.target.textContent = this.text;
    else this.target.textContent = readable(this.text);
  }

  done(item) {
    this.item = item;
    if (item.type === "message") this.text = texts(item.content);
    else if (item.type === "reasoning") this.text = texts(item.content) || texts(item.summary);
    else this.text = item.arguments ?? item.code ?? item.input ?? JSON.stringify(item.action ?? {});
    this.stale = true;
    this.paint();
    if (item.type === "message") return;
    this.node.classList.remove("running");
    if (item.type === "reasoning") {
      this.node.hidden = !this.text;
      return;
    }
    this.summary.textContent = callTitle(item);
    this.node.classList.toggle("failed", Boolean(item.error));
    const result = resultOf(item);
    if (result && !this.result) this.body.append(el("h3", {}, item.error ? "Error" : "Result"), (this.result = el("pre", { tabIndex: 0 }, result)));
  }
}

/** A request of approval, with its two answers until one was given. */
function approvalView(item, answer) {
  const args = el("pre", { tabIndex: 0 }, readable(item.arguments ?? ""));
  const node = el("section", { className: "pane approval", "aria-label": `Approval of ${callTitle(item)}` });
  node.append(el("div", { className: "body" }, el("h3", {}, `May this run? ${callTitle(item)}`), args));
  if (!answer) return node;
  const buttons = [["Approve", true], ["Deny", false]].map(([label, approve]) =>
    el("button", { type: "button", onclick: () => (buttons[0].parentNode.remove(), answer(item, approve)) }, label));
  node.append(el("div", { className: "buttons" }, ...buttons));
  return node;
}

// --- the conversation on the screen ---

const log = $("log");
let current = null; // id of the conversation
let running = null; // {response, stop} while a response runs
let last = null; // the input that Retry sends again

const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 80;
const toEnd = () => (log.scrollTop = log.scrollHeight);
const say = (text) => ($("spoken").textContent = text);
const busy = (text) => ($("state").textContent = text);

function showError(error) {
  $("error").textContent = error ? error.message ?? String(error) : "";
  $("error").hidden = !error;
}

function setRunning(now) {
  running = now;
  $("stop").hidden = !now;
  $("send").disabled = Boolean(now);
  $("retry").hidden = Boolean(now) || !last;
  log.setAttribute("aria-busy", String(Boolean(now)));
  if (!now) busy("");
}

function addPrompt(text) {
  log.querySelector(".empty")?.remove();
  log.append(el("div", { className: "mine", role: "group", ariaLabel: "You" }, text));
}

function addTurn() {
  const turn = el("div", { className: "turn", role: "group", ariaLabel: "Answer" });
  log.append(turn);
  return turn;
}

function approvalAnswer(item, approve) {
  send([{ type: "mcp_approval_response", approval_request_id: item.id, approve }]);
}

/** Show the events of a response as they come; resolves with its last state. */
async function follow(conversation, answer, signal, turn) {
  const views = new Map();
  let number = -1, id = null, frame = 0;
  const paint = () => {
    frame = 0;
    const end = atEnd();
    for (const view of views.values()) view.paint();
    if (end) toEnd();
  };
  const add = (item) => {
    if (item.type === "mcp_list_tools") return;
    const end = atEnd();
    if (item.type === "mcp_approval_request") {
      turn.append(approvalView(item, approvalAnswer));
      say(`May this run? ${callTitle(item)}`);
    } else {
      const view = new ItemView(item);
      views.set(item.id, view);
      turn.append(view.node);
      const state = { reasoning: "Thinking", message: "Answering" }[item.type] ?? `Calling ${callTitle(item)}`;
      busy(state);
      say(state);
    }
    if (end) toEnd();
  };
  for (let failures = 0; ; ) {
    try {
      for await (const event of events(answer)) {
        failures = 0;
        if (event.sequence_number !== undefined && event.type !== "keepalive") number = event.sequence_number;
        if (event.type === "response.created") {
          id = event.response.id;
          if (running) running.response = id;
          store(RUNNING, { ...stored(RUNNING, {}), conversation, response: id });
        } else if (event.type === "response.output_item.added") {
          if (event.item.type !== "mcp_approval_request") add(event.item);
        } else if (event.type === "response.output_item.done") {
          const end = atEnd();
          if (views.has(event.item.id)) views.get(event.item.id).done(event.item);
          else add(event.item);
          if (end) toEnd();
        } else if (event.delta !== undefined && views.has(event.item_id) && !event.type.includes("summary")) {
          views.get(event.item_id).add(event.delta);
          frame ||= requestAnimationFrame(paint);
        } else if (event.type === "error") {
          throw new ApiError(500, event.message ?? event.error?.message ?? "The response failed.");
        } else if (ENDED.includes(event.type)) {
          return { response: event.response, views };
        }
      }
    } catch (error) {
      if (error instanceof ApiError || signal.aborted || !id) throw error;
    } finally {
      if (frame) cancelAnimationFrame(frame), paint();
    }
    if (signal.aborted || !id || ++failures > 20) throw new Error("The connection to the server was lost.");
    busy("Connecting again");
    await new Promise((resolve) => setTimeout(resolve, 250 * failures));
    answer = await request("GET", `/v1/responses/${id}?stream=true&starting_after=${Math.max(number, 0)}`, undefined, signal).catch(
      (error) => (error instanceof ApiError ? Promise.reject(error) : { body: new Blob([]).stream() }));
  }
}

/** Run one response to its end on the screen. ``begin`` returns its stream. */
async function run(conversation, begin) {
  showError(null);
  const abort = new AbortController(), turn = addTurn();
  setRunning({ response: null, abort });
  busy("Waiting for the model");
  toEnd();
  try {
    const { response, views } = await follow(conversation, await begin(abort.signal), abort.signal, turn);
    if (conversation !== current) return;
    if (response.error) showError(response.error);
    const reason = response.status === "cancelled" ? "Stopped." : response.status === "incomplete" ? `Cut off: ${response.incomplete_details?.reason ?? "a limit"}.` : "";
    if (reason) turn.append(el("p", { className: "note" }, reason));
    const spoken = [...views.values()].filter((view) => view.item.type === "message").at(-1)?.target.textContent;
    say(reason || (spoken ? `Answer: ${spoken}` : "Done"));
    localStorage.removeItem(RUNNING);
    setRunning(null);
    if (!turn.querySelector(".approval button")) $("prompt").focus({ preventScroll: true });
    else turn.querySelector(".approval button").focus();
  } catch (error) {
    if (conversation !== current || abort.signal.aborted) return;
    localStorage.removeItem(RUNNING);
    showError(error);
    setRunning(null);
  }
}

function chosenTools() {
  return [...document.querySelectorAll("#tools input:checked")].map((box) => ({ type: "mcp", server_label: box.value }));
}

/** Send a text, or items, in the current conversation; a first text makes one. */
async function send(input) {
  if (running) return;
  const text = typeof input === "string" ? input : null;
  if (text !== null) addPrompt(text);
  last = input;
  setRunning({ response: null, abort: new AbortController() });
  try {
    if (!current) {
      current = (await json("POST", "/v1/conversations", {})).id;
      store(LIST, [{ id: current, title: text.trim().slice(0, 60) }, ...stored(LIST, [])]);
      listConversations();
    }
  } catch (error) {
    setRunning(null);
    return showError(error);
  }
  store(RUNNING, { conversation: current, prompt: text, input });
  const body = { model: $("model").value || "default", input, conversation: current, stream: true, background: true };
  if ($("effort").value) body.reasoning = { effort: $("effort").value };
  const tools = chosenTools();
  if (tools.length) body.tools = tools;
  await run(current, (signal) => request("POST", "/v1/responses", body, signal));
}

/** Take the last exchange out of the conversation and send its input again. */
async function retry() {
  if (running || last === null) return;
  const input = last;
  try {
    const page = await json("GET", `/v1/conversations/${current}/items?limit=100`);
    const from = page.data.findIndex((item) => item.role === "user" || item.type === "mcp_approval_response");
    const asked = page.data[from];
    // A response that failed or was stopped has left nothing there.
    const same = asked && (typeof input === "string" ? texts(asked.content) === input : asked.type === "mcp_approval_response");
    if (same) for (const item of page.data.slice(0, from + 1)) await request("DELETE", `/v1/conversations/${current}/items/${item.id}`);
  } catch (error) {
    return showError(error);
  }
  log.lastElementChild?.remove();
  if (typeof input === "string") log.lastElementChild?.remove();
  await send(input);
}

async function stop() {
  if (!running?.response) return;
  busy("Stopping");
  await request("POST", `/v1/responses/${running.response}/cancel`).catch(showError);
}

function showEmpty() {
  log.replaceChildren(el("p", { className: "empty" }, "What would you like to know?"));
}

async function open(id, { focus = true } = {}) {
  running?.abort?.abort();
  setRunning(null);
  showError(null);
  current = id;
  last = null;
  showEmpty();
  listConversations();
  closeMenu();
  if (id) {
    try {
      await showItems(id);
    } catch (error) {
      if (error.status === 404) return forget(id);
      showError(error);
    }
  }
  setRunning(null);
  if (focus) $("prompt").focus({ preventScroll: true });
  const unfinished = stored(RUNNING, null);
  if (id && unfinished?.conversation === id && unfinished.response) {
    if (unfinished.prompt) addPrompt(unfinished.prompt);
    last = unfinished.input ?? unfinished.prompt;
    await run(id, (signal) => request("GET", `/v1/responses/${unfinished.response}?stream=true`, undefined, signal));
  }
}

async function showItems(id) {
  let after = "", turn = null;
  const answered = new Set();
  for (;;) {
    const page = await json("GET", `/v1/conversations/${id}/items?order=asc&limit=100&include[]=code_interpreter_call.outputs${after}`);
    if (id !== current) return;
    for (const item of page.data) if (item.type === "mcp_approval_response") answered.add(item.approval_request_id);
    for (const [at, item] of page.data.entries()) {
      if (item.type === "message" && item.role === "user") {
        addPrompt(texts(item.content));
        last = texts(item.content);
        turn = null;
      } else if (item.type === "mcp_approval_request") {
        const open = !answered.has(item.id) && at === page.data.length - 1 && !page.has_more;
        (turn ??= addTurn()).append(approvalView(item, open && approvalAnswer));
      } else if (["message", "reasoning"].includes(item.type) || item.type.endsWith("_call")) {
        const view = new ItemView({ ...item, status: item.status ?? "completed" });
        if (view.node.tagName === "DETAILS") view.node.open = false;
        (turn ??= addTurn()).append(view.node);
      }
    }
    if (!page.has_more) break;
    after = `&after=${encodeURIComponent(page.last_id)}`;
  }
  toEnd();
}

function forget(id) {
  store(LIST, stored(LIST, []).filter((each) => each.id !== id));
  if (id === current) return open(null);
  listConversations();
}

async function remove(id, title) {
  if (!confirm(`Delete "${title}"?`)) return;
  try {
    if (running && id === current) {
      running.abort.abort();
      if (running.response) await request("POST", `/v1/responses/${running.response}/cancel`).catch(() => {});
      setRunning(null);
      localStorage.removeItem(RUNNING);
    }
    await request("DELETE", `/v1/conversations/${id}`);
  } catch (error) {
    if (error.status !== 404) return showError(error);
  }
  forget(id);
  $("new").focus();
}

function listConversations() {
  $("conversations").replaceChildren(...stored(LIST, []).map(({ id, title }) => {
    const button = el("button", { type: "button", className: "open", onclick: () => open(id) }, title);
    if (id === current) button.setAttribute("aria-current", "true");
    return el("li", {}, button, el("button", { type: "button", className: "delete", ariaLabel: `Delete ${title}`, onclick: () => remove(id, title) }, "✕"));
  }));
}

// --- the page ---

function closeMenu() {
  $("side").classList.remove("shown");
  $("menu").setAttribute("aria-expanded", "false");
}

$("menu").onclick = () => {
  const shown = $("side").classList.toggle("shown");
  $("menu").setAttribute("aria-expanded", String(shown));
  if (shown) $("new").focus();
};
$("new").onclick = () => open(null);
$("stop").onclick = stop;
$("retry").onclick = retry;
$("form").onsubmit = (event) => {
  event.preventDefault();
  const text = $("prompt").value;
  if (!text.trim() || running) return;
  $("prompt").value = "";
  send(text);
};
$("prompt").onkeydown = (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  $("form").requestSubmit();
};
document.onkeydown = (event) => {
  if (event.key !== "Escape" || $("keys").open) return;
  if ($("side").classList.contains("shown")) {
    closeMenu();
    $("menu").focus();
  } else stop();
};

async function start() {
  const [models, servers] = await Promise.all([json("GET", "/v1/models"), json("GET", "/page/servers")]);
  $("model").append(...models.data.map(({ id }) => el("option", { value: id }, id)));
  $("tools").hidden = !servers.data.length;
  $("tools").append(...servers.data.map((name) => el("label", {}, el("input", { type: "checkbox", checked: true, value: name }), name)));
  const unfinished = stored(RUNNING, null);
  const id = unfinished?.conversation ?? sessionStorage.getItem("agent.open");
  await open(stored(LIST, []).some((each) => each.id === id) ? id : null);
}
addEventListener("pagehide", () => sessionStorage.setItem("agent.open", current ?? ""));
start().catch(showError);
