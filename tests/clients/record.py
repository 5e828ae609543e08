"""The Python clients, against the recorder that record.mjs runs."""

import base64
import sys
import urllib.request

import anthropic
import ollama
import openai

BASE, PNG = sys.argv[1:]
HELLO = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "Say hello."}]
ASK = {"role": "user", "content": "What is here? \U0001F30D"}
NAMES = ["read_file", "list_dir"]
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def scenario(client, name):
    urllib.request.urlopen(f"{BASE}/record/{client}/{name}", data=b"").close()


def drain(stream):
    for _ in stream:
        pass


def openai_chat():
    client = openai.OpenAI(api_key="placeholder", base_url=f"{BASE}/v1", max_retries=0)
    create = client.chat.completions.create
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
    scenario("openai-python-chat", "plain")
    create(model="gpt-4.1", messages=HELLO, max_completion_tokens=50, stop=["END"])
    scenario("openai-python-chat", "stream")
    drain(create(model="gpt-4.1", messages=HELLO, stream=True))
    scenario("openai-python-chat", "tools")
    messages = [ASK]
    message = create(model="gpt-4.1", messages=messages, tools=tools, tool_choice="required").choices[0].message
    messages.append(message)
    for call in message.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": f"result of {call.function.name}"})
    create(model="gpt-4.1", messages=messages, tools=tools)
    scenario("openai-python-chat", "image")
    image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    create(model="gpt-4.1", messages=[{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}])


def openai_responses():
    client = openai.OpenAI(api_key="placeholder", base_url=f"{BASE}/v1", max_retries=0)
    create = client.responses.create
    tools = [{"type": "function", "name": name, "parameters": SCHEMA, "strict": False} for name in NAMES]
    scenario("openai-python-responses", "plain")
    create(model="gpt-5", input="Say hello.", instructions="You are brief.", max_output_tokens=50)
    scenario("openai-python-responses", "stream")
    drain(create(model="gpt-5", input=HELLO, stream=True))
    scenario("openai-python-responses", "tools")
    items = [ASK]
    first = create(model="gpt-5", input=items, tools=tools)
    items += first.output
    for item in first.output:
        if item.type == "function_call":
            items.append({"type": "function_call_output", "call_id": item.call_id, "output": f"result of {item.name}"})
    create(model="gpt-5", input=items, tools=tools)
    scenario("openai-python-responses", "image")
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
    text = {"type": "input_text", "text": "What is this?"}
    create(model="gpt-5", input=[{"role": "user", "content": [text, image]}])


def anthropic_messages():
    client = anthropic.Anthropic(api_key="placeholder", base_url=BASE, max_retries=0)
    tools = [{"name": name, "input_schema": SCHEMA} for name in NAMES]
    common = {"model": "claude", "max_tokens": 1024}
    user = [{"role": "user", "content": "Say hello."}]
    scenario("anthropic-python", "plain")
    client.messages.create(**common, messages=user, system="You are brief.", stop_sequences=["END"])
    scenario("anthropic-python", "stream")
    with client.messages.stream(**common, messages=user) as stream:
        stream.get_final_message()
    scenario("anthropic-python", "tools")
    messages = [ASK]
    first = client.messages.create(**common, messages=messages, tools=tools, tool_choice={"type": "any"})
    messages.append({"role": "assistant", "content": first.content})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": f"result of {block.name}"}
        for block in first.content
        if block.type == "tool_use"
    ]
    messages.append({"role": "user", "content": results})
    client.messages.create(**common, messages=messages, tools=tools)
    scenario("anthropic-python", "image")
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
    client.messages.create(**common, messages=[{"role": "user", "content": content}])


def ollama_both():
    client = ollama.Client(host=BASE)
    tools = [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES]
    scenario("ollama-python", "plain")
    client.chat(model="qwen3", messages=HELLO, options={"temperature": 0.2, "num_predict": 50})
    scenario("ollama-python", "stream")
    drain(client.chat(model="qwen3", messages=HELLO, stream=True))
    scenario("ollama-python", "tools")
    messages = [ASK]
    first = client.chat(model="qwen3", messages=messages, tools=tools)
    messages.append(first.message)
    for call in first.message.tool_calls:
        name = call.function.name
        messages.append({"role": "tool", "content": f"result of {name}", "tool_name": name})
    client.chat(model="qwen3", messages=messages, tools=tools)
    scenario("ollama-python", "image")
    image = {"role": "user", "content": "What is this?", "images": [base64.b64decode(PNG)]}
    client.chat(model="qwen3", messages=[image])
    scenario("ollama-python", "generate")
    client.generate(model="qwen3", prompt="Say hello.", system="You are brief.")
    scenario("ollama-python", "generate-stream")
    drain(client.generate(model="qwen3", prompt="Say hello.", stream=True))


openai_chat()
openai_responses()
anthropic_messages()
ollama_both()
