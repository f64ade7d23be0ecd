//! `hf2q chat`.

use anyhow::{Result, bail};
use rustyline::error::ReadlineError;
use rustyline::{DefaultEditor, Editor};
use serde_json::{Value, json};

use crate::args::ChatArgs;
use crate::commands::run::report;
use crate::keyboard::Muted;
use crate::session::Session;
use crate::{config, interrupt, load, terminal};

const HELP: &str = "\
/reset          forget the conversation
/system TEXT    start anew with these instructions, or with none
/retry          answer the last message again
/help           this list
/exit           leave (as does Ctrl-D)
Ctrl-C stops an answer. A line that ends in \\ goes on in the next one; a pasted text is one message.";

pub(crate) fn run(args: &ChatArgs) -> Result<()> {
    args.drafts.check()?;
    let gguf = load::open(&args.model)?;
    let session = Session::open(&gguf, &args.engine, &args.drafts)?;
    if session.template.is_none() {
        bail!("{} has no chat template; use `hf2q run --raw`", args.model.display());
    }
    interrupt::install_once()?;
    terminal::note(&terminal::dim(&format!("{} · /help for commands", session.backend)));
    let mut editor = DefaultEditor::new()?;
    let history = config::history_file();
    if let Some(path) = &history {
        // A first start has none.
        let _ = editor.load_history(path);
    }
    let mut chat = Chat { session, args, messages: system_message(args.system.as_deref()), turn: 0 };
    let result = chat.talk(&mut editor);
    if let Some(path) = &history {
        if let Some(dir) = path.parent() {
            let _ = std::fs::create_dir_all(dir);
        }
        if let Err(error) = editor.save_history(path) {
            terminal::note(&format!("the history could not be kept in {}: {error}", path.display()));
        }
    }
    result
}

struct Chat<'a> {
    session: Session,
    args: &'a ChatArgs,
    messages: Vec<Value>,
    turn: u64,
}

fn system_message(text: Option<&str>) -> Vec<Value> {
    text.map(|t| json!({ "role": "system", "content": t })).into_iter().collect()
}

impl Chat<'_> {
    fn talk(&mut self, editor: &mut DefaultEditor) -> Result<()> {
        loop {
            match read(editor) {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => {
                    if !self.handle(line.trim_end())? {
                        return Ok(());
                    }
                }
                Err(ReadlineError::Interrupted) => terminal::note(&terminal::dim("Ctrl-D or /exit leaves")),
                Err(ReadlineError::Eof) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns whether to go on.
    fn handle(&mut self, line: &str) -> Result<bool> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "/exit" | "/quit" | "/bye" => return Ok(false),
            "/help" | "/?" => terminal::note(HELP),
            "/reset" | "/clear" => {
                self.messages.retain(|m| m["role"] == "system");
                terminal::note(&terminal::dim("forgotten"));
            }
            "/system" => {
                self.messages = system_message(Some(rest).filter(|t| !t.is_empty()));
                terminal::note(&terminal::dim(match self.messages.len() {
                    0 => "a new conversation without instructions",
                    _ => "a new conversation with these instructions",
                }));
            }
            "/retry" => {
                if self.messages.last().is_some_and(|m| m["role"] == "assistant") {
                    self.messages.pop();
                    self.reply()?;
                } else {
                    terminal::note(&terminal::dim("there is no answer to give again"));
                }
            }
            command if command.starts_with('/') && !command[1..].contains('/') => {
                terminal::note(&format!("{command} is no command; /help lists them"));
            }
            _ => {
                self.messages.push(json!({ "role": "user", "content": line }));
                self.reply()?;
            }
        }
        Ok(true)
    }

    /// Answers the messages. A failure (a full context, a template that refuses) takes the last message back and does not
    /// end the chat.
    fn reply(&mut self) -> Result<()> {
        match self.try_reply() {
            Ok(()) => Ok(()),
            Err(error) if terminal::is_closed_pipe(&error) => Err(error),
            Err(error) => {
                terminal::note(&format!(
                    "{error:#}\nYour last message is taken back; /reset forgets the conversation"
                ));
                self.messages.pop();
                Ok(())
            }
        }
    }

    fn try_reply(&mut self) -> Result<()> {
        let prompt = self.session.chat_prompt(&self.messages)?;
        let mut sampling = self.args.sampling.clone();
        // With a fixed seed, a retry should still differ.
        sampling.seed = sampling.seed.map(|s| s.wrapping_add(self.turn));
        self.turn += 1;
        let sampler = self.session.sampler(&sampling)?;
        interrupt::clear();
        let muted = Muted::new();
        let answer = self.session.answer(&prompt, &sampler, &sampling, terminal::print)?;
        interrupt::clear();
        terminal::print("\n")?;
        terminal::note(&terminal::dim(&report(&answer, &sampling)));
        drop(muted);
        self.messages.push(json!({ "role": "assistant", "content": answer.text }));
        Ok(())
    }
}

/// A message; lines that end in a backslash go on, up to the end of the input.
fn read<H: rustyline::Helper>(
    editor: &mut Editor<H, rustyline::history::FileHistory>,
) -> rustyline::Result<String> {
    let mut text = editor.readline("> ")?;
    while let Some(head) = text.strip_suffix('\\') {
        text = match editor.readline("… ") {
            Ok(next) => format!("{head}\n{next}"),
            Err(ReadlineError::Eof) => head.to_owned(),
            Err(error) => return Err(error),
        };
    }
    editor.add_history_entry(&text)?;
    Ok(text)
}
