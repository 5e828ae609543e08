// The recorder: a server that keeps each request and answers as the provider would, and the Node
// clients that talk to it. The Python clients are record.py, started from here.
import { spawn } from "node:child_process";
import { createServer } from "node:http";
import { writeFileSync } from "node:fs";
import { once } from "node:events";
import { join } from "node:path";

import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import { Ollama } from "ollama";

const directory = process.argv[2];
const kept = ["accept", "anthropic-beta", "anthropic-version", "authorization", "content-type", "user-agent", "x-api-key"];
const tool_calls = [
  { id: "call_a", name: "read_file", arguments: { path: "a.txt" } },
  { id: "call_b", name: "list_dir", arguments: { path: "." } },
];

// Answers, by path. A request that offers tools and holds no result yet is answered with two calls.
const answers = {
  "/v1/chat/completions": (body, calls) => {
    const message = calls
      ? { role: "assistant", content: null, refusal: null, annotations: [], tool_calls: tool_calls.map((call) => ({
          id: call.id, type: "function", function: { name: call.name, arguments: JSON.stringify(call.arguments) } })) }
      : { role: "assistant", content: "Hello.", refusal: null, annotations: [] };
    const head = { id: "chatcmpl-1", created: 1, model: body.model };
    const finish_reason = calls ? "tool_calls" : "stop";
    if (!body.stream) {
      return { ...head, object: "chat.completion", choices: [{ index: 0, message, logprobs: null, finish_reason }],
        usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } };
    }
    const chunk = (delta, finish_reason = null) => ({ ...head, object: "chat.completion.chunk",
      choices: [{ index: 0, delta, logprobs: null, finish_reason }] });
    return [chunk({ role: "assistant", content: "" }), chunk({ content: "Hello." }), chunk({}, "stop"), "[DONE]"];
  },
  "/v1/responses": (body, calls) => {
    const output = calls
      ? tool_calls.map((call, index) => ({ type: "function_call", id: `fc_${index}`, call_id: call.id, name: call.name,
          arguments: JSON.stringify(call.arguments), status: "completed" }))
      : [{ type: "message", id: "msg_1", role: "assistant", status: "completed",
          content: [{ type: "output_text", text: "Hello.", annotations: [], logprobs: [] }] }];
    if (calls) {
      output.unshift({ type: "reasoning", id: "rs_1", summary: [{ type: "summary_text", text: "Two calls." }],
        encrypted_content: "ZW5jcnlwdGVk" });
    }
    const response = { id: "resp_1", object: "response", created_at: 1, status: "completed", error: null,
      incomplete_details: null, instructions: null, metadata: {}, model: body.model, output, parallel_tool_calls: true,
      temperature: 1, tool_choice: "auto", tools: [], top_p: 1, usage: { input_tokens: 1, output_tokens: 1,
      total_tokens: 2, input_tokens_details: { cached_tokens: 0 }, output_tokens_details: { reasoning_tokens: 0 } } };
    if (!body.stream) return response;
    return [{ type: "response.created", sequence_number: 0, response: { ...response, status: "in_progress", output: [] } },
      { type: "response.completed", sequence_number: 1, response }];
  },
  "/v1/messages": (body, calls) => {
    const content = calls
      ? [{ type: "thinking", thinking: "Two calls.", signature: "c2lnbmF0dXJl" }, { type: "text", text: "Looking." },
         ...tool_calls.map((call) => ({ type: "tool_use", id: call.id, name: call.name, input: call.arguments }))]
      : [{ type: "text", text: "Hello." }];
    const message = { id: "msg_1", type: "message", role: "assistant", model: body.model, content,
      stop_reason: calls ? "tool_use" : "end_turn", stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 } };
    if (!body.stream) return message;
    return [
      { type: "message_start", message: { ...message, content: [], stop_reason: null } },
      { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
      { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Hello." } },
      { type: "content_block_stop", index: 0 },
      { type: "message_delta", delta: { stop_reason: "end_turn", stop_sequence: null }, usage: { output_tokens: 1 } },
      { type: "message_stop" },
    ];
  },
  "/api/chat": (body, calls) => {
    const message = calls
      ? { role: "assistant", content: "", thinking: "Two calls.", tool_calls: tool_calls.map(({ name, arguments: given }) => ({
          function: { name, arguments: given } })) }
      : { role: "assistant", content: "Hello." };
    const last = { model: body.model, created_at: "2025-01-01T00:00:00Z", message, done: true, done_reason: "stop",
      total_duration: 1, prompt_eval_count: 1, eval_count: 1 };
    return body.stream ? [last] : last;
  },
  "/api/generate": (body) => {
    const last = { model: body.model, created_at: "2025-01-01T00:00:00Z", response: "Hello.", done: true,
      done_reason: "stop", context: [1, 2], total_duration: 1, prompt_eval_count: 1, eval_count: 1 };
    return body.stream ? [last] : last;
  },
};

let client = "";
let scenario = "";
let count = 0;

function keep(request, body) {
  count += 1;
  const placeholder = (value) => (/^Bearer /i.test(value) ? "Bearer <key>" : "<key>");
  const headers = {};
  for (const name of kept) {
    const value = request.headers[name];
    if (value === undefined) continue;
    headers[name] = name === "authorization" || name === "x-api-key" ? placeholder(value) : value;
  }
  // The machine the samples were recorded on is nobody's business.
  if (headers["user-agent"]) headers["user-agent"] = headers["user-agent"].replace(/ ?\(.*\)/, "");
  const sample = { client, path: new URL(request.url, "http://recorder").pathname, headers, body };
  const name = `${client}-${scenario}`;
  const number = recorded.get(name) ?? 0;
  recorded.set(name, number + 1);
  const file = number === 0 ? `${name}.json` : `${name}-${number + 1}.json`;
  writeFileSync(join(directory, file), `${JSON.stringify(sample, null, 2)}\n`);
}

const recorded = new Map();
const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const text = Buffer.concat(chunks).toString();
  const path = new URL(request.url, "http://recorder").pathname;
  if (path.startsWith("/record/")) {
    [client, scenario] = path.slice("/record/".length).split("/");
    response.end();
    return;
  }
  const body = JSON.parse(text);
  keep(request, body);
  const answered = /tool_call_id|tool_use_id|function_call_output|"tool_name"|"role":"tool"/.test(text.replaceAll(" ", ""));
  const answer = answers[path](body, body.tools !== undefined && !answered && !body.stream);
  const lines = path.startsWith("/api/");
  if (!Array.isArray(answer)) {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(answer));
    return;
  }
  response.setHeader("content-type", lines ? "application/x-ndjson" : "text/event-stream");
  for (const event of answer) {
    const data = typeof event === "string" ? event : JSON.stringify(event);
    if (lines) response.write(`${data}\n`);
    else response.write(`${event.type ? `event: ${event.type}\n` : ""}data: ${data}\n\n`);
  }
  response.end();
});

server.listen(0, "127.0.0.1");
await once(server, "listening");
const base = `http://127.0.0.1:${server.address().port}`;

async function as(name, what, run) {
  client = name;
  scenario = what;
  const before = count;
  await run();
  if (count === before) throw new Error(`${name} ${what}: no request arrived`);
}

async function drain(stream) {
  for await (const event of stream) void event;
}

const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";
const schema = (name) => ({ type: "object", properties: { [name]: { type: "string", description: "where" } }, required: [name] });
const hello = [{ role: "system", content: "You are brief." }, { role: "user", content: "Say hello." }];

async function openaiChat() {
  const openai = new OpenAI({ apiKey: "placeholder", baseURL: `${base}/v1`, maxRetries: 0 });
  const model = "gpt-4.1";
  const tools = ["read_file", "list_dir"].map((name) => ({ type: "function", function: { name, description: `${name} tool`,
    parameters: schema("path") } }));
  const name = "openai-node-chat";
  await as(name, "plain", () => openai.chat.completions.create({ model, messages: hello, temperature: 0.2 }));
  await as(name, "stream", async () => drain(await openai.chat.completions.create({ model, messages: hello, stream: true,
    stream_options: { include_usage: true } })));
  await as(name, "tools", async () => {
    const messages = [{ role: "developer", content: "Use tools." }, { role: "user", content: "What is here? \u{1F30D}" }];
    const first = await openai.chat.completions.create({ model, messages, tools, tool_choice: "auto", parallel_tool_calls: true });
    messages.push(first.choices[0].message);
    for (const call of first.choices[0].message.tool_calls) {
      messages.push({ role: "tool", tool_call_id: call.id, content: `result of ${call.function.name}` });
    }
    await openai.chat.completions.create({ model, messages, tools });
  });
  await as(name, "runner", async () => {
    const callable = tools.map((tool) => ({ ...tool, function: { ...tool.function, parse: JSON.parse,
      function: ({ path }) => `seen ${path}` } }));
    const runner = openai.chat.completions.runTools({ model, messages: [{ role: "user", content: "Look." }], tools: callable });
    await runner.done();
  });
  await as(name, "image", () => openai.chat.completions.create({ model, messages: [{ role: "user", content: [
    { type: "text", text: "What is this?" },
    { type: "image_url", image_url: { url: `data:image/png;base64,${png}`, detail: "low" } },
    { type: "image_url", image_url: { url: "https://example.com/a.png" } }] }] }));
}

async function openaiResponses() {
  const openai = new OpenAI({ apiKey: "placeholder", baseURL: `${base}/v1`, maxRetries: 0 });
  const model = "gpt-5";
  const tools = ["read_file", "list_dir"].map((name) => ({ type: "function", name, description: `${name} tool`,
    parameters: schema("path"), strict: false }));
  const name = "openai-node-responses";
  await as(name, "plain", () => openai.responses.create({ model, instructions: "You are brief.", input: "Say hello." }));
  await as(name, "stream", async () => drain(await openai.responses.create({ model, input: hello, stream: true })));
  await as(name, "tools", async () => {
    const input = [{ role: "user", content: "What is here? \u{1F30D}" }];
    const first = await openai.responses.create({ model, input, tools, store: false, include: ["reasoning.encrypted_content"],
      reasoning: { effort: "low", summary: "auto" } });
    input.push(...first.output);
    for (const call of first.output.filter((item) => item.type === "function_call")) {
      input.push({ type: "function_call_output", call_id: call.call_id, output: `result of ${call.name}` });
    }
    await openai.responses.create({ model, input, tools, store: false });
  });
  await as(name, "image", () => openai.responses.create({ model, input: [{ role: "user", content: [
    { type: "input_text", text: "What is this?" },
    { type: "input_image", image_url: `data:image/png;base64,${png}`, detail: "auto" }] }] }));
}

async function anthropicMessages() {
  const anthropic = new Anthropic({ apiKey: "placeholder", baseURL: base, maxRetries: 0 });
  const model = "claude";
  const max_tokens = 1024;
  const tools = ["read_file", "list_dir"].map((name) => ({ name, description: `${name} tool`, input_schema: schema("path") }));
  const name = "anthropic-node";
  const user = [{ role: "user", content: "Say hello." }];
  await as(name, "plain", () => anthropic.messages.create({ model, max_tokens, system: "You are brief.", messages: user }));
  await as(name, "stream", () => anthropic.messages.stream({ model, max_tokens, messages: user,
    system: [{ type: "text", text: "You are brief.", cache_control: { type: "ephemeral" } }] }).finalMessage());
  await as(name, "tools", async () => {
    const messages = [{ role: "user", content: "What is here? \u{1F30D}" }];
    const first = await anthropic.messages.create({ model, max_tokens: 4096, messages, tools,
      thinking: { type: "enabled", budget_tokens: 1024 }, tool_choice: { type: "auto", disable_parallel_tool_use: false } });
    messages.push({ role: first.role, content: first.content });
    messages.push({ role: "user", content: first.content.filter((block) => block.type === "tool_use").map((block, index) => ({
      type: "tool_result", tool_use_id: block.id, is_error: index === 1,
      content: index === 0 ? "one" : [{ type: "text", text: "no such directory" }] })) });
    await anthropic.messages.create({ model, max_tokens: 4096, messages, tools });
  });
  await as(name, "image", () => anthropic.messages.create({ model, max_tokens, messages: [{ role: "user", content: [
    { type: "image", source: { type: "base64", media_type: "image/png", data: png } },
    { type: "image", source: { type: "url", url: "https://example.com/a.png" } },
    { type: "text", text: "What is this?" }] }] }));
}

async function ollamaBoth() {
  const ollama = new Ollama({ host: base });
  const model = "qwen3";
  const tools = ["read_file", "list_dir"].map((name) => ({ type: "function", function: { name, description: `${name} tool`,
    parameters: schema("path") } }));
  const name = "ollama-node";
  await as(name, "plain", () => ollama.chat({ model, messages: hello, options: { temperature: 0.2, num_ctx: 4096 } }));
  await as(name, "stream", async () => drain(await ollama.chat({ model, messages: hello, stream: true, keep_alive: "5m" })));
  await as(name, "tools", async () => {
    const messages = [{ role: "user", content: "What is here? \u{1F30D}" }];
    const first = await ollama.chat({ model, messages, tools, think: true });
    messages.push(first.message);
    for (const call of first.message.tool_calls) {
      messages.push({ role: "tool", content: `result of ${call.function.name}`, tool_name: call.function.name });
    }
    await ollama.chat({ model, messages, tools });
  });
  await as(name, "image", () => ollama.chat({ model, messages: [{ role: "user", content: "What is this?",
    images: [Buffer.from(png, "base64")] }] }));
  await as(name, "generate", () => ollama.generate({ model, prompt: "Say hello.", system: "You are brief." }));
  await as(name, "generate-stream", async () => drain(await ollama.generate({ model, prompt: "Say hello.", stream: true,
    images: [Buffer.from(png, "base64")] })));
}

await openaiChat();
await openaiResponses();
await anthropicMessages();
await ollamaBoth();

const python = spawn(process.env.PYTHON, ["record.py", base, png], { stdio: "inherit" });
const [code] = await once(python, "exit");
server.close();
server.closeAllConnections();
if (code !== 0) process.exit(1);
console.log(`${count} requests recorded`);
