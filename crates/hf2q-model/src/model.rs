//! Configuration and weights, checked against each other.

use std::collections::HashMap;

use hf2q_arch::{Class, Config, TensorRow};
use hf2q_gguf::{Bytes, Gguf, TensorType};
use hf2q_plan::{Recording, Weight};

use crate::builder::{record, record_with_states};
use crate::error::{ModelError, Warning, WrongTensor};
use crate::options::RecordOptions;

/// A tensor as a file stores it.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    /// Storage of the elements.
    pub ty: TensorType,
    /// Columns, rows, experts; as many as the file has dimensions.
    pub shape: Vec<usize>,
    /// The elements; usually a view of the mapped file.
    pub data: Bytes,
}

/// A model that can be recorded: every tensor it needs is there, with the right shape.
#[derive(Clone, Debug)]
pub struct Model {
    config: Config,
    weights: HashMap<String, StoredTensor>,
    warnings: Vec<Warning>,
}

impl Model {
    /// Reads the configuration and takes views of the tensors; copies no weights.
    ///
    /// # Errors
    /// If the metadata describe no implemented model, or the tensors do not fit them: all that is wrong is listed at once.
    pub fn load(gguf: &Gguf) -> Result<Self, ModelError> {
        Self::read(gguf).map_err(|source| match gguf.paths().first() {
            Some(path) => ModelError::File { path: path.clone(), source: Box::new(source) },
            None => source,
        })
    }

    fn read(gguf: &Gguf) -> Result<Self, ModelError> {
        let config = Config::from_metadata(gguf.metadata(), &|name| gguf.tensor(name).is_some())?;
        let stored = |t: &hf2q_gguf::TensorInfo| {
            // A length beyond the address space fits no expected shape and is reported as such.
            let shape = t.shape.iter().map(|&d| usize::try_from(d).unwrap_or(usize::MAX)).collect();
            (t.name.clone(), StoredTensor { ty: t.ty, shape, data: gguf.bytes(t) })
        };
        Self::new(config, gguf.tensors().iter().map(stored).collect())
    }

    /// A model of these parts; what [`Model::load`] checks is checked.
    ///
    /// # Errors
    /// If the tensors do not fit the configuration.
    pub fn new(config: Config, mut weights: HashMap<String, StoredTensor>) -> Result<Self, ModelError> {
        let (mut missing, mut wrong) = (Vec::new(), Vec::new());
        let mut used = HashMap::new();
        for row in config.tensors() {
            match weights.remove_entry(&row.gguf) {
                Some((name, tensor)) => {
                    wrong.extend(mismatch(&row, &tensor));
                    used.insert(name, tensor);
                }
                None if row.optional => {}
                None => missing.push(row.gguf),
            }
        }
        let mut extra: Vec<String> = weights.into_keys().collect();
        extra.sort();
        let (unsupported, unused) = extra.into_iter().partition(|name| changes_results(name));
        let unsupported: Vec<String> = unsupported;
        if !(missing.is_empty() && wrong.is_empty() && unsupported.is_empty()) {
            let architecture = config.architecture.name();
            return Err(ModelError::Tensors { architecture, missing, wrong, unsupported });
        }
        let unused: Vec<String> = unused;
        let warnings =
            if unused.is_empty() { Vec::new() } else { vec![Warning::UnusedTensors { names: unused }] };
        Ok(Self { config, weights: used, warnings })
    }

    /// The hyperparameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What a user should know about the file.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// A tensor by its GGUF name.
    pub fn tensor(&self, name: &str) -> Option<&StoredTensor> {
        self.weights.get(name)
    }

    /// Writes the layers down as operations.
    ///
    /// # Errors
    /// If an operation does not take a tensor's type, or the model only drafts for others.
    pub fn record(&self, options: &RecordOptions) -> Result<Recording, ModelError> {
        if self.config.architecture.is_drafter() {
            return Err(ModelError::Drafter { architecture: self.config.architecture.name() });
        }
        Ok(record(self, options)?)
    }

    /// Names of the operations that write the residual stream in front of each layer and, at the end, behind the last one.
    /// Of all rows if it is recorded with [`RecordOptions::all_rows`].
    ///
    /// # Errors
    /// As [`Model::record`].
    pub fn states(&self) -> Result<Vec<String>, ModelError> {
        let options = RecordOptions { all_rows: true, ..RecordOptions::default() };
        let (recording, states) = record_with_states(self, &options)?;
        // An activation has the name of the operation that writes it.
        Ok(states.iter().map(|view| recording.tensors[view.tensor.index()].name.clone()).collect())
    }

    /// The bytes of a recording's weights, in the order in which a backend wants them.
    ///
    /// # Panics
    /// If another model made the recording.
    pub fn weights_for(&self, recording: &Recording) -> Vec<Bytes> {
        let bytes = |id: &hf2q_plan::TensorId| {
            let name = &recording.tensors[id.index()].name;
            self.weights.get(name).expect("the recording is of this model").data.clone()
        };
        recording.weights.iter().map(bytes).collect()
    }

    /// How operations see a tensor; `None` if it is absent.
    pub(crate) fn weight(&self, name: &str) -> Option<Weight> {
        let StoredTensor { ty, shape, .. } = self.weights.get(name)?;
        let dim = |i: usize| shape.get(i).copied().unwrap_or(1);
        Some(Weight { ty: *ty, cols: dim(0), rows: dim(1), experts: dim(2) })
    }
}

/// Biases, and scales of matrices that are stored apart: to leave one out would give another model.
fn changes_results(name: &str) -> bool {
    name.ends_with(".bias") || name.ends_with("scale")
}

fn mismatch(row: &TensorRow, tensor: &StoredTensor) -> Option<WrongTensor> {
    let wrong =
        |found: String, expected: String| Some(WrongTensor { name: row.gguf.clone(), found, expected });
    if significant(&tensor.shape) != significant(&row.shape) {
        return wrong(format!("{:?}", tensor.shape), format!("{:?}", row.shape));
    }
    let vector = matches!(row.class, Class::Norm | Class::Scalar);
    if vector && tensor.ty != TensorType::F32 {
        return wrong(format!("of type {}", tensor.ty), "f32".to_owned());
    }
    if row.class == Class::Tokens && tensor.ty != TensorType::I32 {
        return wrong(format!("of type {}", tensor.ty), "i32".to_owned());
    }
    if row.class == Class::DraftTokens && tensor.ty != TensorType::I64 {
        return wrong(format!("of type {}", tensor.ty), "i64".to_owned());
    }
    let cols = row.shape.first().copied().unwrap_or(1);
    let Some(row_bytes) = tensor.ty.row_bytes(cols) else {
        let (ty, len) = (tensor.ty, tensor.ty.block_len());
        return wrong(format!("of type {ty} with rows of {cols}"), format!("rows of a multiple of {len}"));
    };
    let rows = row.shape.iter().skip(1).try_fold(row_bytes, |bytes, &d| bytes.checked_mul(d));
    if rows != Some(tensor.data.len()) {
        let expected = rows.map_or_else(|| "fewer".to_owned(), |b| format!("{b} bytes"));
        return wrong(format!("{} bytes long", tensor.data.len()), expected);
    }
    None
}

/// A shape without the ones at its end, which say nothing.
fn significant(shape: &[usize]) -> &[usize] {
    let len = shape.iter().rposition(|&d| d != 1).map_or(0, |last| last + 1);
    &shape[..len]
}
