//! `hf2q serve`.

mod sources;

use std::path::Path;

use anyhow::{Context, Result, bail};
use hf2q_server::{ApiKey, Log, Server, Settings};

use crate::args::{AccessArgs, ServeArgs};
use crate::{interrupt, terminal};

pub(crate) fn run(args: &ServeArgs) -> Result<()> {
    // Conversions look at it; the server's own handlers come on top.
    interrupt::install_once()?;
    let settings = settings(args)?;
    let sources = sources::find(args)?;
    let names: Vec<String> = sources.iter().map(|s| s.id().to_owned()).collect();
    warn(&settings);
    let log = Log::new(|line| terminal::note(&terminal::safe(line)), args.verbose);
    let server = Server::start(settings, sources, log)?;
    if let [only] = &names[..] {
        // Nobody waits for a model that cannot be loaded.
        if let Err(why) = server.load(only) {
            bail!("{only} cannot be loaded: {why}");
        }
    } else {
        terminal::note(&format!("{} models, loaded when they are asked for:", names.len()));
        names.iter().for_each(|name| terminal::note(&format!("  {}", terminal::safe(name))));
    }
    terminal::note(&format!("listening on http://{}", server.address()));
    // Whoever gave up while models were loaded is not heard by the server.
    if interrupt::pressed() {
        bail!("stopped");
    }
    server.run();
    Ok(())
}

fn settings(args: &ServeArgs) -> Result<Settings> {
    let load = &args.load;
    Ok(Settings {
        host: args.host,
        port: args.port,
        keys: keys(&args.access)?,
        cors: args.access.cors.clone(),
        hosts: args.access.allow_host.clone(),
        max_body: usize::try_from(args.access.max_body).unwrap_or(usize::MAX),
        connections: args.access.connections,
        timeout: load.timeout,
        load_patience: load.load_timeout,
        shutdown_patience: load.shutdown_timeout,
        idle: load.unload_after,
        models_memory: load.models_memory,
        ..Settings::default()
    })
}

fn keys(access: &AccessArgs) -> Result<Vec<ApiKey>> {
    let key = |text: &str, place: &str| {
        ApiKey::new(text)
            .with_context(|| format!("{place}: a key has visible ASCII characters, and no spaces"))
    };
    let mut keys = access.api_key.iter().map(|k| key(k, "--api-key")).collect::<Result<Vec<_>>>()?;
    if let Some(path) = &access.api_key_file {
        keys.extend(keys_of(path, key)?);
    }
    Ok(keys)
}

fn keys_of(path: &Path, key: impl Fn(&str, &str) -> Result<ApiKey>) -> Result<Vec<ApiKey>> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let found: Vec<ApiKey> =
        lines.map(|(n, line)| key(line, &format!("{}:{n}", path.display()))).collect::<Result<_>>()?;
    if found.is_empty() {
        bail!("{}: there is no key in this file", path.display());
    }
    Ok(found)
}

fn warn(settings: &Settings) {
    if !settings.host.is_loopback() && settings.keys.is_empty() {
        terminal::note(
            "note: everybody who reaches this machine may use the server; --api-key-file asks for keys",
        );
    }
}
