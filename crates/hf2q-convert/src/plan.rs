//! What will be written: the type of every tensor, decided before the first weight is read.

use std::path::{Path, PathBuf};

use hf2q_gguf::{GgufWriter, Metadata, TensorSpec, TensorType, Value};

use crate::encoding::{self, Encoding};
use crate::error::ConvertError;
use crate::importance::Importance;
use crate::pipeline::{self, Job};
use crate::recipe::{self, Candidate, Choice, Facts, Overrides, Recipe, choose};
use crate::record::{Record, Why};
use crate::source::{Kind, Source, SourceTensor};

/// What to write.
#[derive(Clone, Debug)]
pub struct Options {
    /// Types of the tensors.
    pub recipe: Recipe,
    /// Changes to the recipe.
    pub overrides: Overrides,
    /// Which columns matter more than others, with the name of the file that says so.
    pub importance: Option<(String, Importance)>,
    /// Encode weights that lie on the lattice of `q4_0`, as training for that format leaves them, without loss. The usual
    /// encoder would move them.
    pub lattice: bool,
    /// Start a new file after this many bytes; `None`: one file.
    pub split_bytes: Option<u64>,
    /// Files beside the source that must not be overwritten.
    pub protected: Vec<PathBuf>,
    /// Measure how far the written values lie from the source.
    pub measure: bool,
    /// Refuse rows that fit no block of their type, instead of taking a type that they fit.
    pub refuse_fallback: bool,
}

impl Options {
    /// One file of a recipe's types.
    pub fn new(recipe: Recipe) -> Self {
        Self {
            recipe,
            overrides: Overrides::default(),
            importance: None,
            lattice: true,
            split_bytes: None,
            protected: Vec::new(),
            measure: false,
            refuse_fallback: false,
        }
    }
}

/// Told about the conversion's progress.
pub trait Progress {
    /// Called before the first tensor with the bytes of the source that will be read.
    fn start(&mut self, total_bytes: u64);

    /// Called often with the tensor at hand and the bytes that are done. Returns whether to go on.
    fn advance(&mut self, tensor: &str, done_bytes: u64) -> bool;
}

/// What was written.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The file, or the files of a split set.
    pub paths: Vec<PathBuf>,
    /// What became of each tensor, in the order of the file.
    pub records: Vec<Record>,
    /// What a user should know.
    pub warnings: Vec<String>,
}

/// A source with a type for each of its tensors.
#[derive(Debug)]
pub struct Plan<'a> {
    source: &'a Source,
    options: Options,
    /// In the order of the file.
    tensors: Vec<&'a SourceTensor>,
    choices: Vec<Choice>,
    encodings: Vec<Encoding>,
    warnings: Vec<String>,
}

impl<'a> Plan<'a> {
    /// Decides the types. Of the weights only a sample is read, to know the lattice of `q4_0`.
    ///
    /// # Errors
    /// An override that fits no tensor's rows, a fallback where they are refused, or importance of another model.
    pub fn new(source: &'a Source, options: Options) -> Result<Self, ConvertError> {
        let tensors = ordered_tensors(source, options.recipe);
        let candidates: Vec<Candidate<'_>> =
            tensors.iter().map(|t| candidate(t, source, options.recipe)).collect();
        let facts = Facts::from_config(&source.config);
        let weighted = options.importance.is_some();
        let mut choices = choose(&options.recipe, &facts, &options.overrides, weighted, &candidates)?;
        let mut warnings = source.warnings.clone();
        warnings.extend(options.overrides.without_effect(options.recipe, &candidates)?);
        let importance = options.importance.as_ref().map(|(_, importance)| importance);
        warnings.extend(importance.into_iter().flat_map(Importance::warnings).cloned());
        let mut encodings = Encoding::with(importance, &tensors, (options.recipe, &choices), &mut warnings)?;
        if options.lattice && options.recipe.base() == TensorType::Q4_0 {
            encoding::find_lattice(&tensors, &mut choices, &mut encodings)?;
        }
        decodable(&tensors, &choices)?;
        fallbacks(&tensors, &choices, options.refuse_fallback, &mut warnings)?;
        Ok(Self { source, options, tensors, choices, encodings, warnings })
    }

    /// What will become of each tensor.
    pub fn records(&self) -> Vec<Record> {
        let pairs = self.tensors.iter().zip(&self.choices);
        pairs.map(|(tensor, choice)| record(tensor, *choice)).collect()
    }

    /// What a user should know beforehand.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Writes the GGUF file `output`. Nothing is left there if it fails.
    ///
    /// # Errors
    /// A weight that its type cannot hold, an output that is an input, [`ConvertError::Cancelled`], or an answer of the
    /// operating system.
    pub fn write(self, output: &Path, progress: &mut dyn Progress) -> Result<Summary, ConvertError> {
        let mut records = self.records();
        let specs = self.tensors.iter().zip(&self.choices).map(spec).collect();
        let metadata = self.metadata();
        let mut writer = match self.options.split_bytes {
            Some(bytes) => GgufWriter::create_split(output, metadata, specs, bytes)?,
            None => GgufWriter::create(output, metadata, specs)?,
        };
        writer.protect(self.source.inputs.iter().chain(&self.options.protected))?;
        let pairs = self.tensors.iter().zip(&self.choices).zip(&self.encodings);
        let jobs: Vec<Job<'_>> =
            pairs.map(|((tensor, choice), encoding)| Job { tensor, ty: choice.ty, encoding }).collect();
        let written = pipeline::write(&jobs, self.options.measure, &mut writer, progress)?;
        if self.options.measure {
            for (record, deviation) in records.iter_mut().zip(&written.deviations) {
                record.relative_error = Some(deviation.relative_error());
            }
        }
        let mut warnings = self.warnings;
        warnings.extend(encoding::lattice_note(&self.encodings, written.fit));
        Ok(Summary { paths: writer.finish()?, records, warnings })
    }

    fn metadata(&self) -> Metadata {
        let mut metadata = self.source.metadata.clone();
        metadata.insert("general.file_type", Value::U32(self.options.recipe.file_type()));
        metadata.insert("general.quantization_version", Value::U32(2));
        // What an earlier quantization was guided by is said of its result alone.
        let earlier: Vec<String> = metadata
            .iter()
            .map(|(key, _)| key)
            .filter(|key| key.starts_with("quantize."))
            .map(str::to_owned)
            .collect();
        for key in earlier {
            metadata.remove(&key);
        }
        if let Some((file, importance)) = &self.options.importance {
            importance.note(file, &mut metadata);
        }
        metadata
    }
}

/// Converts the checkpoint folder or GGUF file `input` to the GGUF file `output`. Nothing is left there if it fails.
///
/// # Errors
/// As [`Source::open`], [`Plan::new`] and [`Plan::write`].
pub fn convert(
    input: &Path,
    output: &Path,
    options: Options,
    progress: &mut dyn Progress,
) -> Result<Summary, ConvertError> {
    Plan::new(&Source::open(input)?, options)?.write(output, progress)
}

/// Quantized files are written in llama-quantize's order, others in that of llama.cpp's converter.
fn ordered_tensors(source: &Source, recipe: Recipe) -> Vec<&SourceTensor> {
    let mut tensors: Vec<&SourceTensor> = source.tensors.iter().collect();
    if recipe.is_quantized() || source.kind == Kind::Gguf {
        tensors.sort_by(|a, b| recipe::place(&a.name).cmp(&recipe::place(&b.name)));
    }
    tensors
}

/// What no recipe quantizes keeps its type, or gets that of an unquantized conversion.
fn candidate<'a>(tensor: &'a SourceTensor, source: &Source, recipe: Recipe) -> Candidate<'a> {
    let ty = match source.kind {
        Kind::Checkpoint if !recipe.is_quantized() => {
            recipe::natural_type(&tensor.name, &tensor.shape, recipe.base())
        }
        _ => tensor.natural,
    };
    Candidate { name: &tensor.name, shape: &tensor.shape, ty }
}

fn spec((tensor, choice): (&&SourceTensor, &Choice)) -> TensorSpec {
    TensorSpec { name: tensor.name.clone(), ty: choice.ty, shape: tensor.shape.clone() }
}

fn record(tensor: &SourceTensor, choice: Choice) -> Record {
    Record {
        name: tensor.name.clone(),
        shape: tensor.shape.clone(),
        source: tensor.rows.describe(),
        ty: choice.ty,
        why: choice.why,
        bytes: bytes(choice.ty, &tensor.shape),
        relative_error: None,
    }
}

/// Size of a tensor whose rows fit the blocks of its type.
fn bytes(ty: TensorType, shape: &[u64]) -> u64 {
    let elements: u64 = shape.iter().product();
    elements / ty.block_len() as u64 * ty.block_bytes() as u64
}

/// Refuses tensors that are to change their type and cannot be read.
fn decodable(tensors: &[&SourceTensor], choices: &[Choice]) -> Result<(), ConvertError> {
    for (tensor, choice) in tensors.iter().zip(choices) {
        let is_copied = tensor.rows.raw(choice.ty, 0..0).is_some();
        if !is_copied && let Err(source) = tensor.rows.read(0..0, &mut Vec::new()) {
            return Err(ConvertError::Encode { tensor: tensor.name.clone(), row: 0, source });
        }
    }
    Ok(())
}

/// Says which tensors did not get the type they should have.
fn fallbacks(
    tensors: &[&SourceTensor],
    choices: &[Choice],
    refuse: bool,
    warnings: &mut Vec<String>,
) -> Result<(), ConvertError> {
    let wanted = |why: Why| match why {
        Why::Fallback { wanted } => Some(wanted),
        _ => None,
    };
    let fallen: Vec<(&SourceTensor, TensorType, TensorType)> = (tensors.iter().zip(choices))
        .filter_map(|(tensor, choice)| Some((*tensor, wanted(choice.why)?, choice.ty)))
        .collect();
    let Some(&(first, wanted, ty)) = fallen.first() else { return Ok(()) };
    if refuse {
        return Err(ConvertError::Fallback {
            tensor: first.name.clone(),
            columns: first.shape[0],
            wanted,
            others: fallen.len() - 1,
        });
    }
    let others = match fallen.len() - 1 {
        0 => String::new(),
        n => format!(", and so for {n} more tensors"),
    };
    warnings.push(format!(
        "{} is {ty} instead of {wanted}: its rows of {} are no multiple of {}{others}",
        first.name,
        first.shape[0],
        wanted.block_len()
    ));
    Ok(())
}
