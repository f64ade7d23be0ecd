//! Grammars in the notation of llama.cpp, rewritten in Lark.
//!
//! Rules that do not refer to themselves, over others or directly, become terminals: llguidance reads those at once.

use std::collections::HashMap;

use crate::error::GrammarError;
use crate::lark;

/// Rewrites a grammar; `root` becomes `start`.
pub(crate) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let rules = Parser { tokens: tokenize(text)?, at: 0, depth: 0 }.rules()?;
    let names: HashMap<&str, usize> = (0..).zip(&rules).map(|(i, r)| (r.name.as_str(), i)).collect();
    let Some(root) = names.get("root").copied() else {
        return Err(refused("there is no rule \"root\"".into()));
    };
    let mut writer = Writer { rules: &rules, names, terminal: vec![Kind::Unknown; rules.len()] };
    for rule in 0..rules.len() {
        writer.settle(rule, 0)?;
    }
    let mut out = format!("start: {}\n", writer.name(root));
    for (i, rule) in rules.iter().enumerate() {
        out += &format!("{}: {}\n", writer.name(i), writer.body(&rule.body)?);
    }
    Ok(out)
}

fn refused(why: String) -> GrammarError {
    GrammarError::Grammar { kind: "grammar", why }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Defines,
    /// As a Lark terminal, and whether it is the empty text.
    Terminal(String, bool),
    Repeat(String),
    Or,
    Open,
    Close,
}

struct Rule {
    name: String,
    body: Node,
}

enum Node {
    Terminal(String),
    Empty,
    Name(String),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat(Box<Node>, String),
}

/// Deeper nesting of groups or chains of rules is refused.
const MAX_DEPTH: usize = 200;
/// Larger counts in `{m,n}` are refused.
const MAX_COUNT: usize = 10_000;

fn tokenize(text: &str) -> Result<Vec<Token>, GrammarError> {
    let mut tokens = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        tokenize_line(line, &mut tokens).map_err(|why| refused(format!("line {number}: {why}")))?;
    }
    Ok(tokens)
}

fn tokenize_line(line: &str, tokens: &mut Vec<Token>) -> Result<(), String> {
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let len = match c {
            '#' => return Ok(()),
            c if c.is_whitespace() => c.len_utf8(),
            '|' | '(' | ')' => {
                tokens.push(if c == '|' {
                    Token::Or
                } else if c == '(' {
                    Token::Open
                } else {
                    Token::Close
                });
                1
            }
            '*' | '+' | '?' => {
                tokens.push(Token::Repeat(c.to_string()));
                1
            }
            '.' => {
                tokens.push(Token::Terminal("/(?s:.)/".into(), false));
                1
            }
            ':' if rest.starts_with("::=") => {
                tokens.push(Token::Defines);
                3
            }
            '{' => {
                let len = rest.find('}').ok_or("a { without }")? + 1;
                tokens.push(Token::Repeat(count(&rest[1..len - 1])?));
                len
            }
            '"' | '[' => terminal(rest, tokens)?,
            c if c.is_ascii_alphanumeric() || c == '-' || c == '_' => {
                let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
                let len = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
                tokens.push(Token::Name(rest[..len].to_owned()));
                len
            }
            c => return Err(format!("unexpected {c:?}")),
        };
        rest = &rest[len..];
    }
    Ok(())
}

/// `m`, `m,` or `m,n` as Lark writes it.
fn count(text: &str) -> Result<String, String> {
    let number = |n: &str| match n.trim().parse::<usize>() {
        Ok(n) if n <= MAX_COUNT => Ok(n),
        _ => Err(format!("{n:?} is no count up to {MAX_COUNT}")),
    };
    match text.split_once(',') {
        None => Ok(format!("{{{}}}", number(text)?)),
        Some((least, most)) if most.trim().is_empty() => Ok(format!("{{{},}}", number(least)?)),
        Some((least, most)) => Ok(format!("{{{},{}}}", number(least)?, number(most)?)),
    }
}

/// A literal or a class of characters at the start of `rest`; returns its length.
fn terminal(rest: &str, tokens: &mut Vec<Token>) -> Result<usize, String> {
    let is_class = rest.starts_with('[');
    let end = if is_class { ']' } else { '"' };
    let mut chars = rest.char_indices().skip(1).peekable();
    let negated = is_class && chars.next_if(|(_, c)| *c == '^').is_some();
    let mut text = String::new();
    let mut class = String::new();
    while let Some((at, c)) = chars.next() {
        if c == end {
            let lark = match (is_class, text.is_empty()) {
                (true, _) if class.is_empty() => return Err("an empty class of characters".into()),
                (true, _) => format!("/[{}{class}]/", if negated { "^" } else { "" }),
                (false, empty) => {
                    tokens.push(Token::Terminal(lark::literal(&text), empty));
                    return Ok(at + 1);
                }
            };
            tokens.push(Token::Terminal(lark, false));
            return Ok(at + 1);
        }
        if is_class && c == '-' {
            // A range, unless it stands at an end of the class.
            let ends = class.is_empty() || chars.peek().is_none_or(|(_, next)| *next == ']');
            class.push_str(if ends { "\\-" } else { "-" });
            continue;
        }
        let c = if c == '\\' { escape(&mut chars)? } else { c };
        text.push(c);
        class.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
    }
    Err(format!("a {} without its end", if is_class { "class of characters" } else { "literal" }))
}

fn escape(chars: &mut impl Iterator<Item = (usize, char)>) -> Result<char, String> {
    let (_, c) = chars.next().ok_or("a backslash at the end")?;
    let digits = match c {
        'n' => return Ok('\n'),
        'r' => return Ok('\r'),
        't' => return Ok('\t'),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        other => return Ok(other),
    };
    let hex: String = chars.take(digits).map(|(_, c)| c).collect();
    let code = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == digits);
    code.and_then(char::from_u32).ok_or_else(|| format!("\\{c}{hex} is no character"))
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn rules(mut self) -> Result<Vec<Rule>, GrammarError> {
        let mut rules: Vec<Rule> = Vec::new();
        while self.at < self.tokens.len() {
            let (Some(Token::Name(name)), true) = (self.tokens.get(self.at).cloned(), self.is_definition())
            else {
                return Err(refused(format!("{} is not in a rule", self.here())));
            };
            if rules.iter().any(|r| r.name == name) {
                return Err(refused(format!("the rule {name:?} is defined twice")));
            }
            self.at += 2;
            let body = self.choice()?;
            rules.push(Rule { name, body });
        }
        Ok(rules)
    }

    fn is_definition(&self) -> bool {
        matches!(self.tokens.get(self.at), Some(Token::Name(_)))
            && self.tokens.get(self.at + 1) == Some(&Token::Defines)
    }

    fn here(&self) -> String {
        match self.tokens.get(self.at) {
            Some(Token::Name(name)) => format!("the name {name:?}"),
            Some(Token::Terminal(text, _) | Token::Repeat(text)) => text.clone(),
            Some(Token::Defines) => "\"::=\"".into(),
            Some(Token::Or) => "\"|\"".into(),
            Some(Token::Open) => "\"(\"".into(),
            Some(Token::Close) => "\")\"".into(),
            None => "the end".into(),
        }
    }

    fn choice(&mut self) -> Result<Node, GrammarError> {
        let mut options = vec![self.sequence()?];
        while self.tokens.get(self.at) == Some(&Token::Or) {
            self.at += 1;
            options.push(self.sequence()?);
        }
        Ok(Node::Choice(options))
    }

    fn sequence(&mut self) -> Result<Node, GrammarError> {
        let mut parts: Vec<Node> = Vec::new();
        while !self.is_definition() {
            let node = match self.tokens.get(self.at) {
                Some(Token::Terminal(_, true)) => Node::Empty,
                Some(Token::Terminal(text, false)) => Node::Terminal(text.clone()),
                Some(Token::Name(name)) => Node::Name(name.clone()),
                Some(Token::Open) => self.group()?,
                Some(Token::Repeat(times)) => {
                    let times = times.clone();
                    let last = parts.pop().ok_or_else(|| refused(format!("{times} repeats nothing")))?;
                    Node::Repeat(Box::new(last), times)
                }
                _ => break,
            };
            parts.push(node);
            self.at += 1;
        }
        Ok(Node::Sequence(parts))
    }

    /// From the opening parenthesis to the closing one.
    fn group(&mut self) -> Result<Node, GrammarError> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(refused(format!("groups are nested more than {MAX_DEPTH} deep")));
        }
        let node = self.choice()?;
        self.depth -= 1;
        if self.tokens.get(self.at) != Some(&Token::Close) {
            return Err(refused(format!("\")\" is missing before {}", self.here())));
        }
        Ok(node)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unknown,
    /// Being looked at: whoever meets it again is recursive.
    Open,
    Rule,
    Terminal,
}

struct Writer<'r> {
    rules: &'r [Rule],
    names: HashMap<&'r str, usize>,
    terminal: Vec<Kind>,
}

impl Writer<'_> {
    /// Finds out whether a rule can be a terminal.
    fn settle(&mut self, rule: usize, depth: usize) -> Result<bool, GrammarError> {
        match self.terminal[rule] {
            Kind::Terminal => return Ok(true),
            Kind::Rule | Kind::Open => return Ok(false),
            Kind::Unknown if depth > MAX_DEPTH => {
                return Err(refused(format!("rules refer to one another more than {MAX_DEPTH} deep")));
            }
            Kind::Unknown => self.terminal[rule] = Kind::Open,
        }
        let body = &self.rules[rule].body;
        let terminal = self.is_terminal(body, depth)?;
        self.terminal[rule] = if terminal { Kind::Terminal } else { Kind::Rule };
        Ok(terminal)
    }

    fn is_terminal(&mut self, node: &Node, depth: usize) -> Result<bool, GrammarError> {
        match node {
            Node::Terminal(_) | Node::Empty => Ok(true),
            Node::Name(name) => {
                let rule = self.rule(name)?;
                self.settle(rule, depth + 1)
            }
            Node::Repeat(inner, _) => self.is_terminal(inner, depth),
            Node::Sequence(nodes) | Node::Choice(nodes) => {
                let mut all = true;
                for node in nodes {
                    all &= self.is_terminal(node, depth)?;
                }
                Ok(all)
            }
        }
    }

    fn rule(&self, name: &str) -> Result<usize, GrammarError> {
        let found = self.names.get(name).copied();
        found.ok_or_else(|| refused(format!("the rule {name:?} is not defined")))
    }

    fn name(&self, rule: usize) -> String {
        if self.terminal[rule] == Kind::Terminal { format!("T{rule}") } else { format!("r{rule}") }
    }

    fn body(&self, node: &Node) -> Result<String, GrammarError> {
        Ok(match node {
            Node::Terminal(text) => text.clone(),
            Node::Empty => "\"\"".into(),
            Node::Name(name) => self.name(self.rule(name)?),
            Node::Repeat(inner, times) => format!("({}){times}", self.body(inner)?),
            Node::Sequence(nodes) if nodes.is_empty() => "\"\"".into(),
            Node::Sequence(nodes) => self.bodies(nodes)?.join(" "),
            Node::Choice(nodes) if nodes.len() == 1 => self.bodies(nodes)?.join(" "),
            Node::Choice(nodes) => format!("({})", self.bodies(nodes)?.join(" | ")),
        })
    }

    fn bodies(&self, nodes: &[Node]) -> Result<Vec<String>, GrammarError> {
        nodes.iter().map(|n| self.body(n)).collect()
    }
}
