//! `cargo xtask kernels`: compiles every variant of every kernel, without a device, and fails on what users would meet.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use hf2q_cuda::nvrtc::Nvrtc;
use hf2q_cuda::sources::{Variant, variants};
use hf2q_cuda::{EMBEDDED_FILE, bundle};

/// Architectures of releases.
const ARCHES: [&str; 3] = ["sm_80", "sm_90a", "sm_120"];

/// Bytes that a kernel may spill from registers to memory.
const MAX_SPILL: u32 = 128;

#[derive(Default)]
struct Options {
    nvrtc: Option<PathBuf>,
    arches: Vec<String>,
    only: Option<String>,
    out: Option<PathBuf>,
    embed: bool,
    verbose: bool,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--nvrtc" => options.nvrtc = Some(value()?.into()),
            "--arch" => options.arches.push(value()?),
            "--only" => options.only = Some(value()?),
            "--out" => options.out = Some(value()?.into()),
            "--embed" => options.embed = true,
            "--verbose" => options.verbose = true,
            _ => bail!(
                "{argument}: usage: cargo xtask kernels [--nvrtc FILE] [--arch sm_90a]… [--only NAME] [--out FOLDER] [--embed] [--verbose]"
            ),
        }
    }
    if options.embed && options.only.is_some() {
        bail!("--embed takes all kernels, so --only cannot be given with it");
    }
    if options.arches.is_empty() {
        options.arches = ARCHES.map(str::to_owned).into();
    }
    Ok(options)
}

pub(crate) fn run(arguments: impl Iterator<Item = String>) -> Result<()> {
    let options = options(arguments)?;
    let nvrtc = Nvrtc::find(options.nvrtc.as_deref(), &[])
        .map_err(|why| anyhow!("NVRTC was not found: {why}; name its file with --nvrtc"))?;
    let wanted = |v: &Variant| options.only.as_ref().is_none_or(|only| v.name().starts_with(only.as_str()));
    let all = variants().into_iter().filter(wanted);
    let work: Vec<(Variant, &str)> =
        all.flat_map(|v| options.arches.iter().map(move |a| (v.clone(), a.as_str()))).collect();
    if work.is_empty() {
        bail!("no variant has a name that begins with {}", options.only.unwrap_or_default());
    }
    let (next, problems, lines) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let cubins = Mutex::new(BTreeMap::new());
    let worker = || {
        while let Some((variant, arch)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
            match one(&nvrtc, variant, (arch, &options)) {
                Ok((found, cubin)) => {
                    lines.lock().expect("no worker panics").extend(found);
                    if options.embed {
                        cubins.lock().expect("no worker panics").insert(variant.key(arch), cubin);
                    }
                }
                Err(e) => problems.lock().expect("no worker panics").push(format!("{e:#}")),
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(worker)));
    });
    let (problems, mut lines) =
        (problems.into_inner().expect("no worker panics"), lines.into_inner().expect("no worker panics"));
    if options.verbose {
        lines.sort();
        crate::report(&lines.join("\n"));
    }
    if problems.is_empty() {
        embed(&cubins.into_inner().expect("no worker panics"))?;
        crate::report(&format!("{} variants compiled by NVRTC {:?}", work.len(), nvrtc.version()));
        return Ok(());
    }
    bail!("{}\n{} of {} variants are not right", problems.join("\n"), problems.len(), work.len());
}

/// Writes what builds with the feature `embed-kernels` take in.
fn embed(cubins: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    if cubins.is_empty() {
        return Ok(());
    }
    let bundle = bundle(cubins.iter().map(|(key, cubin)| (key.as_str(), cubin.as_slice())));
    std::fs::write(EMBEDDED_FILE, &bundle).with_context(|| EMBEDDED_FILE.to_owned())?;
    crate::report(&format!("{} kernels, {} bytes: {EMBEDDED_FILE}", cubins.len(), bundle.len()));
    Ok(())
}

/// Compiles one variant; returns a line for each kernel in it, and the code.
fn one(
    nvrtc: &Nvrtc,
    variant: &Variant,
    (arch, options): (&str, &Options),
) -> Result<(Vec<String>, Vec<u8>)> {
    let compiled = hf2q_cuda::compile_variant(nvrtc, variant, arch, &["--ptxas-options=-v"])?;
    let name = format!("{} for {arch}", variant.name());
    if compiled.log.to_lowercase().contains("warning") {
        bail!("{name}:\n{}", compiled.log);
    }
    let usage = usage(&compiled.log);
    if let Some(worst) = usage.iter().find(|u| u.spill > MAX_SPILL) {
        bail!("{name}: kernel {} spills {} bytes, accepted are {MAX_SPILL}", worst.kernel, worst.spill);
    }
    if let Some(folder) = &options.out {
        hf2q_cuda::keep(&folder.join(variant.key(arch)), &compiled.cubin)?;
    }
    let lines = usage.iter().map(|u| format!("{name}: {}: {}", u.kernel, u.registers)).collect();
    Ok((lines, compiled.cubin))
}

/// What the assembler says of a kernel.
struct Usage {
    kernel: String,
    spill: u32,
    registers: String,
}

fn usage(log: &str) -> Vec<Usage> {
    let mut found: Vec<Usage> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Function properties for ") {
            found.push(Usage { kernel: rest.trim().to_owned(), spill: 0, registers: String::new() });
        } else if let (Some(usage), Some((before, _))) =
            (found.last_mut(), line.split_once(" bytes spill stores"))
        {
            let number = before.rsplit([' ', ',']).next().unwrap_or_default();
            usage.spill = number.parse().unwrap_or(u32::MAX);
        } else if let (Some(usage), Some((_, rest))) = (found.last_mut(), line.split_once("Used ")) {
            rest.clone_into(&mut usage.registers);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spills_are_read_from_the_log() {
        let log = "ptxas info    : Compiling entry function 'add' for 'sm_90a'\n\
                   ptxas info    : Function properties for add\n\
                   \x20   8 bytes stack frame, 12 bytes spill stores, 4 bytes spill loads\n\
                   ptxas info    : Used 32 registers, used 1 barriers\n";
        let found = usage(log);
        assert_eq!((found.len(), found[0].spill, found[0].kernel.as_str()), (1, 12, "add"));
        assert_eq!(found[0].registers, "32 registers, used 1 barriers");
    }
}
