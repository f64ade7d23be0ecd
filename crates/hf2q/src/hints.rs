//! What users of other programs try first, and how it is said here.

/// Commands of other programs.
const COMMANDS: &[(&str, &str)] = &[
    ("ps", "`hf2q serve` says what it has loaded at GET /v1/models; `hf2q list` shows what the caches hold"),
    ("show", "`hf2q inspect FILE` shows what a GGUF file holds"),
    ("quantize", "files come as `hf2q quantize INPUT --output OUTPUT --type TYPE`"),
    ("cli", "`hf2q run MODEL PROMPT` answers once, `hf2q chat MODEL` talks"),
    ("server", "`hf2q serve MODEL` is the server"),
];

/// Flags of other programs, and the commands whose own they are.
const FLAGS: &[(&[&str], &[&str], &str)] = &[
    (
        &["-ngl", "--n-gpu-layers", "--gpu-layers"],
        &[],
        "layers are not divided: --device cuda keeps the whole model on the GPU, --device cpu none of it",
    ),
    (&["-m", "--model"], &["fit"], "the model comes without a flag: `hf2q run FILE PROMPT`"),
    (
        &["-p", "--prompt"],
        &["bench", "profile", "bench-serve", "serve", "trace"],
        "the prompt comes behind the model: `hf2q run MODEL PROMPT`",
    ),
];

/// A hint for arguments that were refused.
pub(crate) fn hint(args: &[String]) -> Option<String> {
    let command = args.first()?;
    let own = |commands: &[&str]| commands.contains(&command.as_str());
    let given = |flags: &[&str]| args.iter().any(|arg| flags.contains(&arg.as_str()));
    let flags = FLAGS.iter().filter(|(flags, commands, _)| given(flags) && !own(commands)).map(|f| f.2);
    let hints: Vec<&str> = COMMANDS.iter().filter(|c| c.0 == command).map(|c| c.1).chain(flags).collect();
    (!hints.is_empty()).then(|| format!("hint: {}", hints.join("\nhint: ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn habits_are_answered_and_nothing_else_is() {
        let hint = |text: &str| hint(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for (typed, said) in [
            ("ps", "/v1/models"),
            ("show x.gguf", "hf2q inspect"),
            ("quantize a b q4_0", "--type TYPE"),
            ("run x.gguf -ngl 99", "--device cuda"),
            ("-m x.gguf -p hello", "without a flag"),
            ("run x.gguf -p hello", "behind the model"),
        ] {
            assert!(hint(typed).is_some_and(|hint| hint.contains(said)), "{typed}");
        }
        for typed in ["run x.gguf hello", "bench x.gguf -p many", "fit x.gguf -m much"] {
            assert_eq!(hint(typed), None, "{typed}");
        }
        assert_eq!(hint("-m x -p y").map(|h| h.lines().count()), Some(2));
    }
}
