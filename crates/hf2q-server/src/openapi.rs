//! `/openapi.json`: what the routes take, from the same names by which requests are read.

use std::sync::OnceLock;

use serde_json::{Map, Value as Json, json};

use crate::ask::DRAWING;
use crate::{anthropic, openai, tokens};

/// A route that takes a JSON object.
struct Route {
    path: &'static str,
    what: &'static str,
    fields: &'static [&'static [&'static str]],
    needed: &'static [&'static str],
}

const ROUTES: &[Route] = &[
    Route {
        path: "/v1/chat/completions",
        what: "Answers a conversation, as OpenAI's chat completions.",
        fields: &[openai::chat::FIELDS, DRAWING],
        needed: &["model", "messages"],
    },
    Route {
        path: "/v1/completions",
        what: "Continues texts, as OpenAI's completions.",
        fields: &[openai::completions::FIELDS, DRAWING],
        needed: &["model", "prompt"],
    },
    Route {
        path: "/v1/responses",
        what: "Answers a conversation, as OpenAI's responses. Nothing is stored.",
        fields: &[openai::responses::FIELDS, DRAWING],
        needed: &["model", "input"],
    },
    Route {
        path: "/v1/embeddings",
        what: "Vectors of texts, of length 1.",
        fields: &[openai::embeddings::FIELDS],
        needed: &["model", "input"],
    },
    Route {
        path: "/v1/messages",
        what: "Answers a conversation, as Anthropic's messages.",
        fields: &[anthropic::messages::FIELDS],
        needed: &["model", "messages", "max_tokens"],
    },
    Route {
        path: "/v1/messages/count_tokens",
        what: "Counts the tokens of a conversation.",
        fields: &[anthropic::messages::COUNT_FIELDS],
        needed: &["model", "messages"],
    },
    Route {
        path: "/tokenize",
        what: "The tokens of a text or a conversation.",
        fields: &[tokens::FIELDS],
        needed: &[],
    },
    Route {
        path: "/detokenize",
        what: "The text of tokens.",
        fields: &[tokens::TEXT_FIELDS],
        needed: &["tokens"],
    },
];

const READS: &[(&str, &str)] = &[
    ("/v1/models", "The models, and which of them are loaded."),
    ("/v1/models/{id}", "One model."),
    ("/health", "The server runs."),
    ("/ready", "The server takes requests."),
    ("/metrics", "Counts and times for Prometheus."),
];

/// Types of fields, and what is to be known of them beyond the APIs' own documents. Fields of the APIs that this server lacks
/// are refused by name, whatever their value, unless it is null.
const TYPES: &[(&str, &str, &str)] = &[
    ("model", "string", "A name from /v1/models."),
    ("stream", "boolean", "Send the answer as it is made."),
    ("temperature", "number", "0 takes the most likely token. Default: the model's own, or 0.8."),
    ("top_p", "number", "Default: the model's own, or 0.95."),
    ("top_k", "integer", "0 or -1: all tokens. Default: the model's own, or 40."),
    ("min_p", "number", "Default: the model's own, or 0.05."),
    ("typical_p", "number", ""),
    ("repetition_penalty", "number", ""),
    ("presence_penalty", "number", "Looks at the whole text so far, the prompt included."),
    ("frequency_penalty", "number", "Looks at the whole text so far, the prompt included."),
    (
        "seed",
        "integer",
        "The same request with the same seed has the same answer, whatever else is computed.",
    ),
    (
        "ignore_eos",
        "boolean",
        "Tokens that end an answer are never drawn. Not with enforced formats or calls.",
    ),
    ("n", "integer", "Answers to the prompt, 1 to 32."),
    ("max_tokens", "integer", ""),
    ("max_completion_tokens", "integer", ""),
    ("max_output_tokens", "integer", ""),
    ("top_logprobs", "integer", "0 to 20."),
    ("logit_bias", "object", "From token ids to -100 (never) to 100."),
    ("messages", "array", ""),
    ("tools", "array", "Functions."),
    ("tokens", "array", "Token ids."),
    ("metadata", "object", "Has no effect, by the API's definition."),
    ("user", "string", "Has no effect, by the API's definition."),
    ("safety_identifier", "string", "Has no effect, by the API's definition."),
    ("prompt_cache_key", "string", "A hint. Prefixes are kept without it."),
    ("store", "boolean", "Nothing is stored."),
    ("echo", "boolean", "The prompt is part of the answer."),
    ("response_format", "object", "Enforced while the answer is drawn; what cannot be enforced is refused."),
    ("structured_outputs", "object", "One of json, regex, choice, grammar (Lark, or GBNF if it has ::=)."),
    ("reasoning_effort", "string", "none: no thoughts. Others need a template with a switch for thoughts."),
    ("chat_template_kwargs", "object", "Variables of the chat template."),
    ("parse_special", "boolean", "Spellings of control tokens become the tokens."),
    ("add_special", "boolean", "Add what the model wants around a prompt."),
    ("with_pieces", "boolean", "Show the text of each token."),
];

/// The document, as text.
pub(crate) fn text() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| document().to_string())
}

fn document() -> Json {
    let mut paths = Map::new();
    for (path, what) in READS {
        paths.insert((*path).to_owned(), json!({ "get": { "summary": what, "responses": responses() } }));
    }
    for route in ROUTES {
        let body =
            json!({ "required": true, "content": { "application/json": { "schema": schema(route) } } });
        let post = json!({ "summary": route.what, "requestBody": body, "responses": responses() });
        paths.insert(route.path.to_owned(), json!({ "post": post }));
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "hf2q", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "securitySchemes": {
            "bearer": { "type": "http", "scheme": "bearer" },
            "key": { "type": "apiKey", "in": "header", "name": "x-api-key" },
        } },
        "security": [{}, { "bearer": [] }, { "key": [] }],
    })
}

fn schema(route: &Route) -> Json {
    let names = route.fields.iter().flat_map(|f| f.iter());
    let property = |name: &&str| {
        let known = TYPES.iter().find(|(n, _, _)| n == name);
        let schema = match known {
            Some((_, kind, "")) => json!({ "type": [kind, "null"] }),
            Some((_, kind, what)) => json!({ "type": [kind, "null"], "description": what }),
            None => json!({}),
        };
        ((*name).to_owned(), schema)
    };
    let properties: Map<String, Json> = names.map(property).collect();
    json!({
        "type": "object", "properties": properties, "required": route.needed, "additionalProperties": false,
    })
}

fn responses() -> Json {
    let error = |what: &str| json!({ "description": what });
    json!({
        "200": { "description": "The answer." },
        "4XX": error("The request is refused; the error says which field is wrong."),
        "429": error("Too many requests wait; Retry-After says when to come again."),
        "503": error("The model is being loaded, or the server stops; Retry-After says when to come again."),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_fields_are_there() {
        let document: Json = serde_json::from_str(text()).unwrap();
        let chat = &document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]
            ["schema"];
        for name in ["messages", "temperature", "logit_bias", "tools", "n"] {
            assert!(chat["properties"].get(name).is_some(), "{name}");
        }
        let all: Vec<&str> = ROUTES.iter().flat_map(|r| r.fields).flat_map(|f| f.iter()).copied().collect();
        assert!(
            TYPES.iter().all(|(name, _, _)| all.contains(name)),
            "every described field is one of a route"
        );
        assert!(ROUTES.iter().all(|r| r.needed.iter().all(|n| r.fields.iter().any(|f| f.contains(n)))));
    }
}
