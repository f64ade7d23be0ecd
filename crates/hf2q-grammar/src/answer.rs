//! Constraints on answers with thoughts and calls.

use std::collections::VecDeque;
use std::sync::Arc;

use hf2q_engine::{Constraint, ConstraintError, TokenSet};
use hf2q_text::answer::{AnswerFormat, AnswerParser, Delta, ParserOptions, Thinking, ToolSet, ToolSyntax};
use hf2q_text::{Specials, Tokenizer};

use crate::cache::Compiled;
use crate::error::GrammarError;
use crate::grammars::Grammars;
use crate::matcher::Follower;
use crate::spec::Spec;
use crate::tools::{self, ToolChoice};

/// What an answer may be.
#[derive(Clone, Debug)]
pub struct AnswerRules {
    /// The model's notation.
    pub format: AnswerFormat,
    /// The prompt ends inside a thought.
    pub in_thought: bool,
    /// The answer may begin with a thought.
    pub thinking: bool,
    /// Most tokens of thoughts: the thought is then closed.
    pub thinking_budget: Option<usize>,
    /// What follows the thought.
    pub output: Output,
}

/// What an answer is apart from thoughts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Output {
    /// Anything.
    Free,
    /// A text of this form.
    Form(Spec),
    /// Calls of tools, or text.
    Tools {
        /// The functions.
        tools: ToolSet,
        /// Which must be called.
        choice: ToolChoice,
        /// Several calls may follow one another.
        parallel: bool,
    },
}

/// Rules compiled for one request: a constraint for each of its answers.
pub struct Rules {
    shared: Arc<Shared>,
}

/// What all answers of a request share.
struct Shared {
    tokenizer: Arc<Tokenizer>,
    vocabulary: usize,
    format: AnswerFormat,
    in_thought: bool,
    thinking: bool,
    budget: Option<usize>,
    body: Body,
    tools: ToolSet,
    /// Everything but the ends of answers.
    on: TokenSet,
}

enum Body {
    Free,
    /// The whole of what is no thought.
    Form(Arc<Compiled>),
    /// Calls from behind their opening marker on.
    Auto {
        rest: Arc<Compiled>,
        parallel: bool,
    },
}

impl Grammars {
    /// Compiles the rules of a request.
    ///
    /// # Errors
    /// What cannot be enforced: a keyword of a schema, a grammar, a tool that is not there.
    pub fn compile_rules(&self, rules: &AnswerRules) -> Result<Rules, GrammarError> {
        let mut all = ToolSet::default();
        let body = match &rules.output {
            Output::Free => Body::Free,
            Output::Form(spec) => Body::Form(self.compile(&spec.lark()?, spec.kind())?),
            Output::Tools { tools, choice, parallel } => {
                all = chosen(tools, choice)?;
                self.calls(rules.format.tools, &all, choice, *parallel)?
            }
        };
        Ok(Rules {
            shared: Arc::new(Shared {
                tokenizer: self.tokenizer.clone(),
                vocabulary: self.vocabulary,
                format: rules.format,
                in_thought: rules.in_thought,
                thinking: rules.thinking && rules.format.thinking.is_some(),
                budget: rules.thinking_budget.filter(|_| rules.thinking || rules.in_thought),
                body,
                tools: all,
                on: all_but_ends(&self.tokenizer, self.vocabulary),
            }),
        })
    }

    fn calls(
        &self,
        syntax: ToolSyntax,
        tools: &ToolSet,
        choice: &ToolChoice,
        parallel: bool,
    ) -> Result<Body, GrammarError> {
        if tools.is_empty() {
            return Ok(Body::Free);
        }
        let compile = |tools: &ToolSet| {
            let grammar = tools::grammar(&self.tokenizer, syntax, tools, parallel)?;
            let text = if *choice == ToolChoice::Auto { grammar.rest } else { grammar.whole };
            self.compile(&text, "schema")
        };
        let compiled = compile(tools).map_err(|error| {
            // Of several tools the one at fault is named.
            let one = |tool: &hf2q_text::answer::Tool| {
                let mut alone = ToolSet::default();
                alone.add(tool.clone());
                match compile(&alone) {
                    Err(source @ GrammarError::Schema { .. }) => {
                        Some(GrammarError::Tool { name: tool.name.clone(), source: Box::new(source) })
                    }
                    _ => None,
                }
            };
            tools.iter().find_map(one).unwrap_or(error)
        })?;
        Ok(match choice {
            ToolChoice::Auto => Body::Auto { rest: compiled, parallel },
            _ => Body::Form(compiled),
        })
    }
}

fn all_but_ends(tokenizer: &Tokenizer, vocabulary: usize) -> TokenSet {
    let mut set = TokenSet::new(vocabulary);
    set.copy_from_words(&vec![u32::MAX; vocabulary.div_ceil(32)]);
    tokenizer.stop_ids().iter().for_each(|id| set.remove(*id));
    set
}

/// The functions that may be called.
fn chosen(tools: &ToolSet, choice: &ToolChoice) -> Result<ToolSet, GrammarError> {
    let none = |wanted: String| {
        let names: Vec<String> = tools.iter().map(|t| format!("{:?}", t.name)).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        GrammarError::NoSuchTool { name: wanted, known }
    };
    match choice {
        ToolChoice::Named(name) => {
            let mut one = ToolSet::default();
            one.add(tools.get(name).ok_or_else(|| none(format!("{name:?}")))?.clone());
            Ok(one)
        }
        ToolChoice::Required if tools.is_empty() => Err(none("a function".into())),
        _ => Ok(tools.clone()),
    }
}

impl Rules {
    /// A constraint for one answer; `None` if it may be anything.
    pub fn constraint(&self) -> Option<Box<dyn Constraint>> {
        let shared = self.shared.clone();
        if matches!(shared.body, Body::Free) && shared.budget.is_none() {
            return None;
        }
        Some(Box::new(AnswerConstraint::new(shared)))
    }
}

enum Phase {
    /// Before anything, where a thought may begin: with this token.
    Start(u32, Box<Follower>),
    /// In a thought, after which the body follows.
    Thought,
    Body(Box<Follower>),
    /// In text without rules, where a call may begin.
    Free,
    Call(Box<Follower>),
    Over,
}

struct AnswerConstraint {
    shared: Arc<Shared>,
    phase: Phase,
    /// Follows thoughts and the beginnings of calls.
    parser: AnswerParser,
    /// Tokens of thoughts so far.
    thought: usize,
    /// Tokens that must come next.
    forced: VecDeque<u32>,
    /// This call was looked at and follows no grammar.
    given_up: bool,
    set: TokenSet,
}

impl AnswerConstraint {
    fn new(shared: Arc<Shared>) -> Self {
        let options = ParserOptions {
            tools: shared.tools.clone(),
            in_thought: shared.in_thought,
            id_prefix: String::new(),
        };
        let parser = AnswerParser::new(&shared.tokenizer, &shared.format, options);
        let open = shared.format.thinking.filter(|_| shared.thinking);
        let open = open.and_then(|t| shared.tokenizer.special_id(t.markers().0));
        let phase = match (&shared.body, open) {
            (Body::Form(_), _) if shared.in_thought => Phase::Thought,
            (Body::Form(compiled), Some(open)) => Phase::Start(open, Box::new(shared.follow(compiled))),
            (Body::Form(compiled), None) => Phase::Body(Box::new(shared.follow(compiled))),
            _ => Phase::Free,
        };
        let set = TokenSet::new(shared.vocabulary);
        Self { phase, parser, thought: 0, forced: VecDeque::new(), given_up: false, set, shared }
    }

    /// Tokens that end a thought.
    fn close_thought(&mut self) {
        let close = self.shared.format.thinking.map_or("", |t| t.markers().1);
        let tokenizer = &self.shared.tokenizer;
        match tokenizer.special_id(close) {
            Some(id) => self.forced.push_back(id),
            None => self.forced.extend(tokenizer.encode(close, Specials::AsText)),
        }
    }

    /// Goes on after a token of a thought, or of text that may hold one.
    fn in_thought(&mut self) {
        if !self.parser.in_thought() {
            return;
        }
        self.thought += 1;
        if self.forced.is_empty() && self.shared.budget.is_some_and(|most| self.thought > most) {
            self.close_thought();
        }
    }

    /// A thought is over: the body begins, with what was read of it already.
    fn begin_body(&mut self, read: &[Delta]) -> Result<(), ConstraintError> {
        let Body::Form(compiled) = &self.shared.body else { return Ok(()) };
        let mut follower = self.shared.follow(compiled);
        for delta in read {
            if let Delta::Content(text) = delta
                && !follower.push_bytes(text.as_bytes())
            {
                return Err(ConstraintError::DeadEnd { drawn: self.thought });
            }
        }
        self.forced.clear();
        self.phase = Phase::Body(Box::new(follower));
        Ok(())
    }

    /// Looks for a call in text without rules.
    fn look_for_call(&mut self) {
        let Body::Auto { rest, .. } = &self.shared.body else { return };
        let Some(text) = self.parser.undecided() else {
            self.given_up = false;
            return;
        };
        // Without a marker it is a call once its function is named.
        let named = self.shared.format.tools != ToolSyntax::Json || self.parser.has_name();
        if self.given_up || !named {
            return;
        }
        let mut follower = self.shared.follow(rest);
        if text.is_empty() || follower.push_bytes(text.as_bytes()) {
            self.phase = Phase::Call(Box::new(follower));
        } else {
            self.given_up = true;
        }
    }
}

impl Shared {
    fn follow(&self, compiled: &Compiled) -> Follower {
        Follower::new(compiled.start(), self.vocabulary)
    }

    /// A token of Gemma 4's notation behind which the name of the channel follows.
    fn names_channel(&self, token: u32) -> bool {
        self.format.thinking == Some(Thinking::Channel)
            && self.tokenizer.special_id("<|channel>") == Some(token)
    }
}

impl Constraint for AnswerConstraint {
    fn allowed(&mut self) -> Result<Option<&TokenSet>, ConstraintError> {
        if let Some(token) = self.forced.front() {
            self.set.clear();
            self.set.insert(*token);
            return Ok(Some(&self.set));
        }
        match &mut self.phase {
            Phase::Start(open, follower) => {
                let set = follower.allowed()?;
                set.insert(*open);
                Ok(Some(set))
            }
            Phase::Body(follower) | Phase::Call(follower) => follower.allowed().map(|set| Some(&*set)),
            Phase::Free => Ok(None),
            Phase::Thought | Phase::Over => {
                // Anything but the end: the body is still to come.
                Ok(Some(&self.shared.on))
            }
        }
    }

    fn push(&mut self, token: u32) -> Result<(), ConstraintError> {
        let forced = self.forced.pop_front().is_some();
        if let Phase::Body(follower) = &mut self.phase {
            return follower.push(token);
        }
        if let Phase::Start(open, follower) = &mut self.phase
            && token != *open
        {
            follower.push(token)?;
            let phase = std::mem::replace(&mut self.phase, Phase::Over);
            if let Phase::Start(_, follower) = phase {
                self.phase = Phase::Body(follower);
            }
            return Ok(());
        }
        let deltas = self.parser.push(&self.shared.tokenizer, token);
        match &mut self.phase {
            Phase::Start(..) => {
                self.phase = Phase::Thought;
                if self.shared.names_channel(token) {
                    self.forced.extend(self.shared.tokenizer.encode("thought\n", Specials::AsText));
                }
            }
            Phase::Call(follower) => {
                follower.push(token)?;
                if follower.is_finished() {
                    let parallel = matches!(self.shared.body, Body::Auto { parallel: true, .. });
                    self.phase = if parallel { Phase::Free } else { Phase::Over };
                }
                return Ok(());
            }
            Phase::Thought if !self.parser.in_thought() => return self.begin_body(&deltas),
            Phase::Free => self.look_for_call(),
            _ => {}
        }
        if !forced {
            self.in_thought();
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        match &self.phase {
            Phase::Body(follower) => follower.is_finished(),
            Phase::Over => true,
            _ => false,
        }
    }
}
