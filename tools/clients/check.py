"""Official Python clients against a running server: `check.py http://127.0.0.1:8080 MODEL`.

Needs the packages `openai` and `anthropic`. Each function below is a case; the exit status counts what failed.
"""

import base64
import json
import struct
import sys
import traceback

import anthropic
import openai

URL, MODEL = sys.argv[1], sys.argv[2]
ai = openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)
claude = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
ASK = [{"role": "user", "content": "Say something about the sea."}]
# Answers that end by themselves, whatever the model.
SHORT = {"structured_outputs": {"choice": ["The sea is wide.", "The sea is deep."]}}
UNIT = {"type": "object", "properties": {"unit": {"enum": ["c", "f"]}}, "required": ["unit"], "additionalProperties": False}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place",
        "parameters": {
            "type": "object",
            "properties": {"unit": {"type": "string", "enum": ["c", "f"]}},
            "required": ["unit"],
            "additionalProperties": False,
        },
    },
}


def refused(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was expected")


def models():
    assert MODEL in [m.id for m in ai.models.list()]
    assert ai.models.retrieve(MODEL).id == MODEL
    assert refused(openai.NotFoundError, lambda: ai.models.retrieve("no/such")).status_code == 404


def chat():
    answer = ai.chat.completions.create(model=MODEL, messages=ASK, max_completion_tokens=16, seed=1)
    assert answer.choices[0].message.content and answer.usage.total_tokens > 16
    again = ai.chat.completions.create(model=MODEL, messages=ASK, max_tokens=16, seed=1)
    assert again.choices[0].message.content == answer.choices[0].message.content
    # The answer as the client holds it is a message of the next request.
    more = [*ASK, answer.choices[0].message, {"role": "user", "content": "More."}]
    assert ai.chat.completions.create(model=MODEL, messages=more, max_tokens=4).choices


def stream():
    whole = ai.chat.completions.create(model=MODEL, messages=ASK, max_tokens=24, seed=2)
    chunks = list(
        ai.chat.completions.create(
            model=MODEL, messages=ASK, max_tokens=24, seed=2, stream=True, stream_options={"include_usage": True}
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    # This helper of the client refuses answers that are cut.
    with ai.chat.completions.stream(model=MODEL, messages=ASK, extra_body=SHORT) as events:
        for _ in events:
            pass
        assert events.get_final_completion().choices[0].message.content in SHORT["structured_outputs"]["choice"]


def tools():
    for stream in (False, True):
        args = dict(model=MODEL, messages=ASK, tools=[TOOL], tool_choice="required", max_tokens=200, seed=3)
        args["parallel_tool_calls"] = False
        if stream:
            with ai.chat.completions.stream(**args) as events:
                for _ in events:
                    pass
                choice = events.get_final_completion().choices[0]
        else:
            choice = ai.chat.completions.create(**args).choices[0]
        call = choice.message.tool_calls[0]
        assert choice.finish_reason == "tool_calls" and call.function.name == "get_weather"
        assert json.loads(call.function.arguments)["unit"] in ("c", "f")
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    back = [*ASK, choice.message.model_dump(exclude={"parsed"}), result]
    for c in back[-2]["tool_calls"]:
        c["function"].pop("parsed_arguments", None)
    assert ai.chat.completions.create(model=MODEL, messages=back, tools=[TOOL], max_tokens=4).choices


def structured():
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
    answer = ai.chat.completions.create(model=MODEL, messages=ASK, response_format=form, max_tokens=200, seed=4)
    person = json.loads(answer.choices[0].message.content)
    assert set(person) == {"name", "age"} and 0 <= person["age"] <= 150
    bad = {"type": "json_schema", "json_schema": {"name": "x"}}
    error = refused(openai.BadRequestError, lambda: ai.chat.completions.create(model=MODEL, messages=ASK, response_format=bad))
    assert error.param == "response_format.json_schema.schema"


def logprobs():
    answer = ai.chat.completions.create(model=MODEL, messages=ASK, max_tokens=6, logprobs=True, top_logprobs=4, temperature=0)
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == answer.usage.completion_tokens and all(len(t.top_logprobs) == 4 for t in tokens)
    assert b"".join(bytes(t.bytes) for t in tokens).decode(errors="replace").strip() == answer.choices[0].message.content.strip()


def several():
    answer = ai.chat.completions.create(model=MODEL, messages=ASK, n=3, max_tokens=12, seed=5, temperature=1.2)
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert len({c.message.content for c in answer.choices}) > 1


def stop():
    text = ai.chat.completions.create(model=MODEL, messages=ASK, max_tokens=32, temperature=0).choices[0].message.content
    at = text[5:8]
    cut = ai.chat.completions.create(model=MODEL, messages=ASK, max_tokens=32, temperature=0, stop=[at]).choices[0]
    assert cut.message.content == text[: text.index(at)] and cut.finish_reason == "stop"


def completions():
    answer = ai.completions.create(model=MODEL, prompt=["The sea", "The moon"], max_tokens=5, logprobs=2, echo=True, seed=6)
    assert [c.index for c in answer.choices] == [0, 1] and answer.choices[0].text.startswith("The sea")
    parts = list(ai.completions.create(model=MODEL, prompt="The sea", max_tokens=5, seed=6, stream=True))
    assert "The sea" + "".join(p.choices[0].text for p in parts if p.choices) == answer.choices[0].text


def embeddings():
    # The client asks for base64 by itself.
    answer = ai.embeddings.create(model=MODEL, input=["the sea", "the moon"])
    assert abs(sum(x * x for x in answer.data[0].embedding) - 1) < 1e-3
    raw = ai.embeddings.create(model=MODEL, input="the sea", encoding_format="base64").data[0].embedding
    floats = struct.unpack(f"<{len(base64.b64decode(raw)) // 4}f", base64.b64decode(raw)) if isinstance(raw, str) else raw
    assert max(abs(a - b) for a, b in zip(floats, answer.data[0].embedding)) < 1e-6


def responses():
    answer = ai.responses.create(model=MODEL, input="Say something.", instructions="Be short.", max_output_tokens=16)
    assert answer.output_text and answer.usage.output_tokens > 0
    form = {"format": {"type": "json_schema", "name": "unit", "schema": UNIT}}
    with ai.responses.stream(model=MODEL, input="Say something.", text=form, max_output_tokens=200) as events:
        kinds = [event.type for event in events]
        assert events.get_final_response().output_text
    assert kinds[0] == "response.created" and "response.output_text.delta" in kinds
    tool = {"type": "function", **TOOL["function"], "strict": True}
    called = ai.responses.create(model=MODEL, input="Weather?", tools=[tool], tool_choice="required", max_output_tokens=200)
    call = next(i for i in called.output if i.type == "function_call")
    back = [{"role": "user", "content": "Weather?"}, *called.output]
    back.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
    assert ai.responses.create(model=MODEL, input=back, tools=[tool], max_output_tokens=4).output is not None


def errors():
    make = ai.chat.completions.create
    error = refused(openai.BadRequestError, lambda: make(model=MODEL, messages=ASK, temperature=9))
    assert error.param == "temperature"
    error = refused(openai.BadRequestError, lambda: make(model=MODEL, messages=ASK, extra_body={"nonsense": 1}))
    assert error.param == "nonsense"
    error = refused(openai.NotFoundError, lambda: make(model="nope", messages=ASK))
    assert error.code == "model_not_found"
    long = [{"role": "user", "content": "sea " * 200_000}]
    error = refused(openai.BadRequestError, lambda: make(model=MODEL, messages=long))
    assert error.code == "context_length_exceeded"


def messages():
    answer = claude.messages.create(model=MODEL, max_tokens=16, system="Be kind.", messages=ASK)
    assert answer.content[0].text and answer.usage.output_tokens > 0
    assert claude.messages.count_tokens(model=MODEL, system="Be kind.", messages=ASK).input_tokens > 5
    with claude.messages.stream(model=MODEL, max_tokens=16, messages=ASK) as events:
        text = "".join(events.text_stream)
        assert text == events.get_final_message().content[0].text
    tool = {"name": "get_weather", "description": "d", "input_schema": TOOL["function"]["parameters"]}
    choice = {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True}
    called = claude.messages.create(model=MODEL, max_tokens=200, messages=ASK, tools=[tool], tool_choice=choice)
    use = next(b for b in called.content if b.type == "tool_use")
    assert use.input["unit"] in ("c", "f") and called.stop_reason == "tool_use"
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "rain"}]}
    back = [*ASK, {"role": "assistant", "content": called.content}, result]
    assert claude.messages.create(model=MODEL, max_tokens=4, messages=back, tools=[tool]).usage
    error = refused(anthropic.NotFoundError, lambda: claude.messages.create(model="nope", max_tokens=4, messages=ASK))
    assert error.body["error"]["type"] == "not_found_error"
    refused(anthropic.BadRequestError, lambda: claude.messages.create(model=MODEL, max_tokens=0, messages=ASK))


CASES = [
    models, chat, stream, tools, structured, logprobs, several, stop, completions, embeddings, responses, errors, messages,
]
failed = 0
for case in CASES:
    try:
        case()
        print(f"ok      {case.__name__}")
    except Exception:  # noqa: BLE001 - the next case is to run too
        failed += 1
        print(f"FAILED  {case.__name__}")
        traceback.print_exc()
sys.exit(failed)
