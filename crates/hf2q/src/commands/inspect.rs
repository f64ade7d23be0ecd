//! `hf2q inspect`.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use hf2q_gguf::{Array, Gguf, TensorInfo, TensorType, Value};
use hf2q_quant::BadBlock;
use serde_json::json;

use crate::args::InspectArgs;
use crate::{load, terminal};

/// Characters of a metadata value that are shown.
const SHOWN: usize = 100;

pub(crate) fn run(args: &InspectArgs) -> Result<()> {
    let gguf = Gguf::open(&load::file(&args.file)?)?;
    let damaged = if args.check { damaged_blocks(&gguf) } else { Vec::new() };
    if args.json {
        terminal::print_json(&as_json(&gguf, args, &damaged))?;
    } else {
        print_file(&gguf)?;
        print_metadata(&gguf)?;
        print_types(&gguf)?;
        if args.tensors {
            print_tensors(&gguf)?;
        }
        verdict(&gguf, args, &damaged)?;
    }
    if damaged.is_empty() {
        Ok(())
    } else {
        bail!("{} tensors are damaged, the first: {}", damaged.len(), damaged[0])
    }
}

fn print_file(gguf: &Gguf) -> Result<()> {
    for path in gguf.paths() {
        terminal::print_line(&path.display().to_string())?;
    }
    terminal::print_line(&format!(
        "GGUF version {}, {}, {} keys, {} tensors, {} parameters, alignment {}\n",
        gguf.version(),
        terminal::bytes(gguf.file_bytes()),
        gguf.metadata().iter().count(),
        gguf.tensors().len(),
        terminal::count(parameters(gguf)),
        gguf.alignment(),
    ))
}

fn print_metadata(gguf: &Gguf) -> Result<()> {
    let lines: Vec<(String, &Value)> = gguf.metadata().iter().map(|(k, v)| (terminal::safe(k), v)).collect();
    let width = lines.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
    for (key, value) in lines {
        terminal::print_line(&format!("{key:width$}  {}", shown(value)))?;
    }
    terminal::print_line("")
}

fn print_types(gguf: &Gguf) -> Result<()> {
    let mut by_type: BTreeMap<TensorType, (usize, u64)> = BTreeMap::new();
    for t in gguf.tensors() {
        let entry = by_type.entry(t.ty).or_default();
        *entry = (entry.0 + 1, entry.1 + t.bytes);
    }
    for (ty, (count, bytes)) in by_type {
        terminal::print_line(&format!(
            "{:<7} {count:>5} tensors  {:>11}",
            ty.name(),
            terminal::bytes(bytes)
        ))?;
    }
    Ok(())
}

fn print_tensors(gguf: &Gguf) -> Result<()> {
    let width = gguf.tensors().iter().map(|t| terminal::safe(&t.name).len()).max().unwrap_or(0);
    terminal::print_line("")?;
    for t in gguf.tensors() {
        let (ty, shape, bytes) = (t.ty.name(), shape(t), terminal::bytes(t.bytes));
        terminal::print_line(&format!(
            "{:width$}  {ty:<7} {shape:<22} {bytes:>11}",
            terminal::safe(&t.name)
        ))?;
    }
    Ok(())
}

fn verdict(gguf: &Gguf, args: &InspectArgs, damaged: &[String]) -> Result<()> {
    let n = gguf.tensors().len();
    terminal::print_line(&format!("\nAll {n} tensors lie within the file"))?;
    if args.check && damaged.is_empty() {
        terminal::print_line("No NaN, infinity or damaged block in them")?;
    }
    for line in damaged {
        terminal::print_line(line)?;
    }
    if !args.check {
        terminal::print_line("--check reads the weights themselves")?;
    }
    Ok(())
}

/// One line for each tensor with a damaged block.
fn damaged_blocks(gguf: &Gguf) -> Vec<String> {
    let line = |t: &TensorInfo| damage(gguf, t).map(|e| format!("{}: {e}", terminal::safe(&t.name)));
    gguf.tensors().iter().filter_map(line).collect()
}

/// The first bad block of a tensor, read in the memory of a small part of it.
fn damage(gguf: &Gguf, tensor: &TensorInfo) -> Option<BadBlock> {
    const BLOCKS: usize = 1 << 16;
    let bytes = gguf.bytes(tensor);
    let step = BLOCKS * tensor.ty.block_bytes();
    (0..bytes.len()).step_by(step).enumerate().find_map(|(part, start)| {
        let bytes = bytes.slice(start..(start + step).min(bytes.len()))?;
        let found = hf2q_quant::check_blocks(tensor.ty, &bytes).err();
        bytes.release();
        found.map(|bad| BadBlock { index: part * BLOCKS + bad.index, ..bad })
    })
}

fn parameters(gguf: &Gguf) -> u64 {
    gguf.tensors().iter().map(|t| t.elements() as u64).sum()
}

fn shape(t: &TensorInfo) -> String {
    t.shape.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(s) => shorten(&format!("{s:?}")),
        Value::Array(a) => shorten(&format!("{}[{}] {a}", a.element_name(), a.len())),
        scalar => scalar.to_string(),
    }
}

fn shorten(text: &str) -> String {
    if text.chars().count() <= SHOWN {
        text.to_owned()
    } else {
        text.chars().take(SHOWN).chain("…".chars()).collect()
    }
}

fn as_json(gguf: &Gguf, args: &InspectArgs, damaged: &[String]) -> serde_json::Value {
    let metadata: serde_json::Map<String, serde_json::Value> =
        gguf.metadata().iter().map(|(k, v)| (k.to_string(), value_json(v))).collect();
    let tensor = |t: &TensorInfo| json!({ "name": t.name, "type": t.ty.name(), "shape": t.shape, "offset": t.offset, "bytes": t.bytes });
    json!({
        "files": gguf.paths().iter().map(|p| p.display().to_string()).collect::<Vec<_>>(),
        "version": gguf.version(),
        "bytes": gguf.file_bytes(),
        "alignment": gguf.alignment(),
        "parameters": parameters(gguf),
        "metadata": metadata,
        "tensors": gguf.tensors().iter().map(tensor).collect::<Vec<_>>(),
        "checked": args.check,
        "damaged": damaged,
    })
}

pub(crate) fn value_json(value: &Value) -> serde_json::Value {
    match value {
        Value::F32(v) => json!(v),
        Value::F64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v),
        Value::Array(Array::String(v)) => json!(v),
        Value::Array(Array::F32(v)) => json!(v),
        Value::Array(Array::F64(v)) => json!(v),
        Value::Array(Array::Bool(v)) => json!(v),
        Value::Array(a) => a.as_integers().into_iter().flatten().map(integer_json).collect(),
        whole => whole.as_integer().map_or(serde_json::Value::Null, integer_json),
    }
}

/// Every integer of GGUF fits one of the two.
fn integer_json(value: i128) -> serde_json::Value {
    i64::try_from(value).map_or_else(|_| json!(u64::try_from(value).ok()), |v| json!(v))
}
