//! What can be wrong with a file, a request for a key, or a write.

use std::io;
use std::path::{Path, PathBuf};

/// Errors of this crate. Messages name the file, key or tensor, what was found, what is accepted and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// Something is wrong with one file; the inner error says what.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<GgufError>,
    },
    /// The operating system refused.
    #[error("{}: cannot {action}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as a verb.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// A folder, pipe or device where a file should be.
    #[error("{}: is {found}; a regular file is needed", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },

    /// No bytes at all.
    #[error("the file is empty (0 bytes): the download or copy did not happen; fetch it again")]
    Empty,
    /// Another kind of file.
    #[error("not a GGUF file: it begins with \"{found}\"{guess}; a GGUF file begins with \"GGUF\"")]
    NotGguf {
        /// The first bytes, escaped.
        found: String,
        /// What it looks like, or nothing.
        guess: &'static str,
    },
    /// A format that came before GGUF.
    #[error("an old {name} file, from before GGUF: not supported; convert the original checkpoint again")]
    OldFormat {
        /// The format's name.
        name: &'static str,
    },
    /// Version 1, with 32-bit lengths.
    #[error("GGUF version 1: not supported (2 and 3 are); convert the original checkpoint again")]
    Version1,
    /// A version that does not exist, or not yet.
    #[error("GGUF version {found}: supported are 2 and 3; the file is damaged or newer than this program")]
    Version {
        /// The version field.
        found: u32,
    },
    /// Written with the most significant byte first.
    #[error("a big-endian GGUF file: not supported; convert it to little-endian or get the usual file")]
    BigEndian,

    /// The file ends within the header.
    #[error(
        "the file ends within {place}: {need} bytes are needed at byte {at}, the file has {len} in all; \
         it is damaged or incomplete"
    )]
    Truncated {
        /// What was being read.
        place: String,
        /// Where, in bytes from the start.
        at: u64,
        /// Bytes needed there.
        need: u64,
        /// Bytes of the file.
        len: u64,
    },
    /// More metadata keys than the file has room for.
    #[error("the header announces {found} metadata keys; {left} bytes follow, enough for at most {most}")]
    KeyCount {
        /// The count in the header.
        found: u64,
        /// Bytes after the header.
        left: u64,
        /// Keys that could fit.
        most: u64,
    },
    /// More tensors than the file has room for.
    #[error("the header announces {found} tensors; {left} bytes follow, enough for at most {most}")]
    TensorCount {
        /// The count in the header.
        found: u64,
        /// Bytes that follow.
        left: u64,
        /// Tensors that could fit.
        most: u64,
    },
    /// A string longer than the rest of the file.
    #[error("{place} is a string of {found} bytes at byte {at}, but only {left} bytes follow")]
    StringLength {
        /// What was being read.
        place: String,
        /// Where the text begins.
        at: u64,
        /// The announced length in bytes.
        found: u64,
        /// Bytes that follow.
        left: u64,
    },
    /// An array longer than the rest of the file.
    #[error(
        "`{key}` is an array of {found} values of type {ty}; the {left} bytes that follow cannot hold them: the file is cut short or damaged"
    )]
    ArrayLength {
        /// The metadata key.
        key: String,
        /// The announced number of values.
        found: u64,
        /// Their type.
        ty: &'static str,
        /// Bytes that follow.
        left: u64,
    },
    /// An array of arrays.
    #[error("`{key}` is an array of arrays: not supported; arrays hold numbers, bools or strings")]
    NestedArray {
        /// The metadata key.
        key: String,
    },
    /// A metadata value of a type that does not exist.
    #[error("`{key}` has value type {found}; GGUF has the types 0 to 12")]
    ValueType {
        /// The metadata key.
        key: String,
        /// The type's id.
        found: u32,
    },
    /// An array whose values are of a type that does not exist.
    #[error("`{key}` is an array of value type {found}; GGUF has the types 0 to 12")]
    ArrayType {
        /// The metadata key.
        key: String,
        /// The type's id.
        found: u32,
    },
    /// A truth value that is neither.
    #[error("`{key}` holds a bool with byte {found} (at index {index}); a bool is 0 or 1")]
    Bool {
        /// The metadata key.
        key: String,
        /// Place in the array, 0 for a single value.
        index: usize,
        /// The byte.
        found: u8,
    },
    /// Text that is not UTF-8.
    #[error("{place} is not UTF-8 text (first invalid byte at byte {at} of the file)")]
    Utf8 {
        /// What was being read.
        place: String,
        /// Where.
        at: u64,
    },
    /// Two values for one key.
    #[error("metadata key `{key}` appears twice; which value counts cannot be known")]
    DuplicateKey {
        /// The metadata key.
        key: String,
    },
    /// A file alignment that is not usable.
    #[error("`general.alignment` is {found}; it must be a power of two from 8 to 1048576")]
    Alignment {
        /// The value.
        found: u64,
    },

    /// A key that is needed is not there.
    #[error("metadata key `{key}` ({expected}) is missing; the file is incomplete or of another kind")]
    MissingKey {
        /// The metadata key.
        key: String,
        /// What its value would be.
        expected: &'static str,
    },
    /// A key holds another type.
    #[error("metadata key `{key}` is {found}; expected {expected}")]
    KeyType {
        /// The metadata key.
        key: String,
        /// What is accepted.
        expected: &'static str,
        /// The type found.
        found: String,
    },
    /// A key holds a number that does not fit.
    #[error("metadata key `{key}` holds {found}; expected {expected}")]
    KeyRange {
        /// The metadata key.
        key: String,
        /// What is accepted.
        expected: &'static str,
        /// The number found.
        found: i128,
    },

    /// Two tensors of one name.
    #[error("tensor `{tensor}` appears twice; which one counts cannot be known")]
    DuplicateTensor {
        /// The tensor.
        tensor: String,
    },
    /// A tensor with no or too many dimensions.
    #[error("tensor `{tensor}` has {found} dimensions; 1 to 4 are possible")]
    Dimensions {
        /// The tensor.
        tensor: String,
        /// Their number.
        found: u64,
    },
    /// A tensor without elements.
    #[error("tensor `{tensor}` of shape {shape:?} has no elements; every dimension must be at least 1")]
    ZeroDimension {
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// A tensor larger than any memory.
    #[error("tensor `{tensor}` of shape {shape:?} is too large: its size does not fit 63 bits")]
    SizeOverflow {
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<u64>,
    },
    /// A type this crate does not know.
    #[error("tensor `{tensor}` has type {id}{name}: not supported; supported are {}", type_names())]
    UnknownType {
        /// The tensor.
        tensor: String,
        /// The type's id.
        id: u32,
        /// Its name in brackets, where one is known.
        name: &'static str,
    },
    /// Rows that cannot be cut into blocks.
    #[error("tensor `{tensor}` has rows of {cols} elements; {ty} needs a multiple of {block}")]
    RowLength {
        /// The tensor.
        tensor: String,
        /// Its type.
        ty: crate::TensorType,
        /// Elements of a row.
        cols: u64,
        /// Elements of a block.
        block: usize,
    },
    /// Data that does not begin on a multiple of the alignment.
    #[error(
        "tensor `{tensor}` begins at data offset {offset}, no multiple of the file's alignment {alignment}"
    )]
    Misaligned {
        /// The tensor.
        tensor: String,
        /// Bytes from the start of the data section.
        offset: u64,
        /// Alignment in bytes.
        alignment: u64,
    },
    /// Data that would end beyond any file.
    #[error("tensor `{tensor}` begins at data offset {offset}: its end does not fit 64 bits")]
    OffsetOverflow {
        /// The tensor.
        tensor: String,
        /// Bytes from the start of the data section.
        offset: u64,
    },
    /// The file is shorter than its header promises.
    #[error(
        "the file has {len} bytes, its header promises {expected}: tensor `{tensor}` would end at byte {end}; \
         the download or copy is incomplete, fetch it again"
    )]
    MissingData {
        /// The first tensor that is not wholly there.
        tensor: String,
        /// Where it would end.
        end: u64,
        /// Bytes a complete file would have at least.
        expected: u64,
        /// Bytes of the file.
        len: u64,
    },
    /// Two tensors share bytes.
    #[error("tensors `{first}` and `{second}` overlap in the file")]
    Overlap {
        /// The one that begins first.
        first: String,
        /// The one that begins within it.
        second: String,
    },

    /// A part of a split model whose name does not say which.
    #[error(
        "the file is part of a model split into {count} files, but its name does not end in -00001-of-{count:05}.gguf \
         (or another number): restore the original names"
    )]
    SplitName {
        /// Files of the set by `split.count`.
        count: u64,
    },
    /// A name like that of a part of a split model, but no split keys inside.
    #[error(
        "the name says part {number} of {count}, but the file has no `split.count` above 1: it belongs to no set; \
         rename it if it is a whole model"
    )]
    SplitKeysMissing {
        /// Part by the name, from 1.
        number: u32,
        /// Files of the set by the name.
        count: u32,
    },
    /// Parts of a split model that are not there.
    #[error("parts of the split model are missing: {}", list(missing))]
    SplitMissing {
        /// All missing files.
        missing: Vec<PathBuf>,
    },
    /// A part's key does not fit its name or the first part.
    #[error("`{key}` is {found}, expected {expected}: the file does not belong to this set, or was renamed")]
    SplitKey {
        /// The metadata key.
        key: &'static str,
        /// Its value.
        found: u64,
        /// What name or first part demand.
        expected: u64,
    },
    /// The parts do not hold as many tensors as announced.
    #[error(
        "the parts hold {found} tensors together, `split.tensors.count` says {expected}: parts of different sets"
    )]
    SplitTensors {
        /// Tensors found.
        found: u64,
        /// Tensors announced.
        expected: u64,
    },
    /// A part of a split model was given as bytes.
    #[error("the bytes are one of {count} parts of a split model; open it by its path")]
    SplitBytes {
        /// Files of the set.
        count: u64,
    },

    /// The output is one of the inputs.
    #[error("{} is the same file as the input {}: writing would destroy it; choose another output", output.display(), input.display())]
    SameFile {
        /// Where to write.
        output: PathBuf,
        /// The input.
        input: PathBuf,
    },
    /// A name that other readers refuse.
    #[error("tensor name `{tensor}` has {len} bytes; 1 to 63 are possible")]
    TensorName {
        /// The tensor.
        tensor: String,
        /// Its length in bytes.
        len: usize,
    },
    /// Data for a tensor that is not the next.
    #[error(
        "data for tensor `{found}` was written where {expected} comes next; tensors are written in order"
    )]
    WriteOrder {
        /// The tensor given.
        found: String,
        /// The tensor whose turn it is, or that there is none.
        expected: String,
    },
    /// More data than the tensor takes.
    #[error("tensor `{tensor}` takes {bytes} bytes; {given} were written")]
    WriteTooMuch {
        /// The tensor.
        tensor: String,
        /// Its size.
        bytes: u64,
        /// Bytes given so far.
        given: u64,
    },
    /// Finished before all data was written.
    #[error("tensor `{tensor}` has {given} of its {bytes} bytes, and {after} tensors after it have none")]
    WriteIncomplete {
        /// The first incomplete tensor.
        tensor: String,
        /// Its size.
        bytes: u64,
        /// Bytes given.
        given: u64,
        /// Tensors not begun.
        after: usize,
    },
    /// A key that an edit must not touch.
    #[error("`{key}` must stay as it is: {why}{hint}")]
    ProtectedKey {
        /// The metadata key.
        key: String,
        /// What depends on it.
        why: String,
        /// What can be done, or nothing.
        hint: &'static str,
    },
    /// A key to be removed that is not there.
    #[error("metadata key `{key}` is not in the file, so it cannot be removed")]
    AbsentKey {
        /// The metadata key.
        key: String,
    },
    /// A name that no new key should have.
    #[error("`{key}` cannot name a metadata key: a name has 1 to 65535 letters, digits, `.`, `_` and `-`")]
    KeyName {
        /// The name.
        key: String,
    },
    /// An output that would replace another file.
    #[error("{} exists already: remove it or choose another output", path.display())]
    OutputExists {
        /// The file.
        path: PathBuf,
    },
    /// A file that another program changes while it is copied.
    #[error("{} changed while it was copied; nothing was written", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A new file that does not hold what was written.
    #[error("{}: the new file does not read back as it was written; nothing was changed", path.display())]
    ReadBack {
        /// Where it should have gone.
        path: PathBuf,
    },
    /// The caller ended the work.
    #[error("cancelled; nothing was written")]
    Cancelled,
    /// A limit that would make too many files.
    #[error(
        "a limit of {max_bytes} bytes a file makes {files} files; at most 65535 are possible: raise the limit"
    )]
    SplitCount {
        /// The limit.
        max_bytes: u64,
        /// Files it makes.
        files: usize,
    },
}

impl GgufError {
    /// Says which file the error is about.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        Self::File { path: path.to_owned(), error: Box::new(self) }
    }

    /// The error itself, without the file's name around it.
    pub fn kind(&self) -> &Self {
        match self {
            Self::File { error, .. } => error.kind(),
            other => other,
        }
    }
}

/// Wraps an answer of the operating system; for `map_err`.
pub(crate) fn io_error(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> GgufError {
    move |source| GgufError::Io { path: path.to_owned(), action, source }
}

fn type_names() -> String {
    let names: Vec<&str> = crate::TensorType::all().map(crate::TensorType::name).collect();
    names.join(", ")
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
    paths.join(", ")
}
