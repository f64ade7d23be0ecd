//! The tools of a request.

use serde_json::{Value as Json, json};

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it is for, if given.
    pub description: Option<String>,
    /// JSON schema of its arguments, an object.
    pub parameters: Json,
}

/// The functions of one request, in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolSet {
    tools: Vec<Tool>,
}

impl ToolSet {
    /// Reads the `tools` of a request in OpenAI's form: `{"type": "function", "function": {"name", "parameters"}}`.
    ///
    /// # Errors
    /// The place of the first entry that is no function with a name of its own, and what is wrong.
    pub fn from_openai(tools: &[Json]) -> Result<Self, (usize, &'static str)> {
        let mut set = Self::default();
        for (place, tool) in tools.iter().enumerate() {
            set.push(tool).map_err(|reason| (place, reason))?;
        }
        Ok(set)
    }

    fn push(&mut self, tool: &Json) -> Result<(), &'static str> {
        if tool.get("type").is_some_and(|t| t != "function") {
            return Err("its type is not \"function\"");
        }
        let function = tool.get("function").ok_or("it has no \"function\"")?;
        let name = function.get("name").and_then(Json::as_str).ok_or("its function has no name")?;
        let accepted = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        if name.is_empty() || name.len() > 128 || !name.chars().all(accepted) {
            return Err("the name is not 1 to 128 letters, digits, '_', '-' or '.'");
        }
        if self.get(name).is_some() {
            return Err("another function has the same name");
        }
        let parameters = match function.get("parameters") {
            None | Some(Json::Null) => json!({ "type": "object", "properties": {} }),
            Some(schema @ Json::Object(_)) => schema.clone(),
            Some(_) => return Err("its parameters are no JSON schema"),
        };
        let description = function.get("description").and_then(Json::as_str).map(str::to_owned);
        self.tools.push(Tool { name: name.to_owned(), description, parameters });
        Ok(())
    }

    /// Adds a function.
    pub fn add(&mut self, tool: Tool) {
        self.tools.push(tool);
    }

    /// The function with a name.
    pub fn get(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|t| t.name == name)
    }

    /// All functions.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Tool> {
        self.tools.iter()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}
