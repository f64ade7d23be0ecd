//! What can be wrong with a recording.

/// A recording that no backend could run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// Widths, types or parameters of an operation do not fit together.
    #[error("operation {op}: {what} is {found}, expected {expected}")]
    Shape {
        /// Name of the operation.
        op: String,
        /// The operand or parameter.
        what: &'static str,
        /// What the recording has.
        found: String,
        /// What the operation needs.
        expected: String,
    },
    /// A cache's format cannot hold vectors of its heads.
    #[error(
        "{cache}: {what} in heads of {head_dim} cannot be {format}; formats of that head size: {accepted}"
    )]
    KvFormat {
        /// Name of the cache.
        cache: String,
        /// Keys or values.
        what: &'static str,
        /// Values of a head's vector.
        head_dim: usize,
        /// Name of the format.
        format: &'static str,
        /// Names of the formats that can.
        accepted: String,
    },
    /// An activation is read before any operation writes it.
    #[error("operation {op} reads {tensor}, which no earlier operation writes")]
    ReadBeforeWrite {
        /// Name of the operation.
        op: String,
        /// Name of the activation.
        tensor: String,
    },
    /// A view leaves its activation.
    #[error("operation {op}: a view of {tensor} leaves it")]
    View {
        /// Name of the operation, or `logits`.
        op: String,
        /// Name of the activation.
        tensor: String,
    },
    /// Rows of a group see nothing.
    #[error("rows see no position of group {group}, not even their own")]
    EmptySpan {
        /// Name of the group.
        group: String,
    },
    /// Two operations carry the same name.
    #[error("two operations are named {op}")]
    DuplicateName {
        /// The name.
        op: String,
    },
}
