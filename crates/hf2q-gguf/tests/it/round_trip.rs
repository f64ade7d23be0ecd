//! What is written is read again.

use hf2q_gguf::{Array, Bytes, Gguf, GgufBuilder, GgufWriter, Metadata, TensorSpec, TensorType, Value};
use proptest::collection::vec;
use proptest::prelude::*;

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        (-1e30_f32..1e30).prop_map(Value::F32),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        (-1e300_f64..1e300).prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        ".{0,12}".prop_map(Value::String),
    ]
}

fn array() -> impl Strategy<Value = Array> {
    prop_oneof![
        vec(any::<u8>(), 0..9).prop_map(Array::U8),
        vec(any::<i8>(), 0..9).prop_map(Array::I8),
        vec(any::<u16>(), 0..9).prop_map(Array::U16),
        vec(any::<i16>(), 0..9).prop_map(Array::I16),
        vec(any::<u32>(), 0..9).prop_map(Array::U32),
        vec(any::<i32>(), 0..9).prop_map(Array::I32),
        vec(-1e30_f32..1e30, 0..9).prop_map(Array::F32),
        vec(any::<u64>(), 0..9).prop_map(Array::U64),
        vec(any::<i64>(), 0..9).prop_map(Array::I64),
        vec(-1e300_f64..1e300, 0..9).prop_map(Array::F64),
        vec(any::<bool>(), 0..9).prop_map(Array::Bool),
        vec(".{0,5}", 0..9).prop_map(Array::String),
    ]
}

pub(crate) fn metadata() -> impl Strategy<Value = Metadata> {
    let value = prop_oneof![scalar(), array().prop_map(Value::Array)];
    vec(("[a-z]{1,6}\\.[a-z_]{1,6}", value), 0..12).prop_map(|pairs| pairs.into_iter().collect())
}

/// Tensors of some types and their data.
pub(crate) fn tensors() -> impl Strategy<Value = Vec<(TensorSpec, Vec<u8>)>> {
    let ty = prop::sample::select(TensorType::all().collect::<Vec<_>>());
    let tensor = (ty, 1_u64..3, vec(1_u64..4, 0..4), any::<u8>());
    vec(tensor, 0..6).prop_map(|tensors| {
        let named = tensors.into_iter().enumerate().map(|(i, (ty, blocks, rest, fill))| {
            let mut shape = vec![blocks * ty.block_len() as u64];
            shape.extend(rest);
            let spec = TensorSpec { name: format!("t{i}"), ty, shape };
            let bytes = spec.bytes().unwrap();
            let data = (0..bytes).map(|b| fill.wrapping_add(b as u8)).collect();
            (spec, data)
        });
        named.collect()
    })
}

pub(crate) fn build(metadata: &Metadata, tensors: &[(TensorSpec, Vec<u8>)]) -> GgufBuilder {
    let start = GgufBuilder::new().metadata(metadata);
    tensors.iter().fold(start, |b, (spec, data)| b.tensor(&spec.name, spec.ty, &spec.shape, data.clone()))
}

fn assert_same(file: &Gguf, metadata: &Metadata, tensors: &[(TensorSpec, Vec<u8>)]) {
    assert_eq!(file.metadata(), metadata);
    assert_eq!(file.tensors().len(), tensors.len());
    for (t, (spec, data)) in file.tensors().iter().zip(tensors) {
        assert_eq!((&t.name, t.ty, &t.shape), (&spec.name, spec.ty, &spec.shape));
        assert_eq!(file.data(t), data);
        assert_eq!(file.bytes(t).as_ref(), data);
        assert_eq!(t.offset % file.alignment(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn bytes_written_are_read(metadata in metadata(), tensors in tensors()) {
        let bytes = build(&metadata, &tensors).to_bytes().unwrap();
        assert_same(&Gguf::parse(Bytes::from_vec(bytes)).unwrap(), &metadata, &tensors);
    }

    /// Pieces of any size, through a file: the same bytes as in memory.
    #[test]
    fn pieces_make_the_same_file(tensors in tensors(), piece in 1_usize..100) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        let metadata: Metadata = [("general.alignment", 64_u32)].into_iter().collect();
        let specs = tensors.iter().map(|(spec, _)| spec.clone()).collect();
        let mut writer = GgufWriter::create(&path, metadata.clone(), specs).unwrap();
        for (spec, data) in &tensors {
            for chunk in data.chunks(piece) {
                writer.write(&spec.name, chunk).unwrap();
            }
        }
        prop_assert_eq!(writer.finish().unwrap(), [path.clone()]);
        prop_assert_eq!(std::fs::read(&path).unwrap(), build(&metadata, &tensors).to_bytes().unwrap());
        assert_same(&Gguf::open(&path).unwrap(), &metadata, &tensors);
    }

    /// Sets of every size hold what one file holds, opened through any part.
    #[test]
    fn sets_hold_the_same(tensors in tensors(), limit in 0_u64..3000, pick in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        let metadata: Metadata = [("general.name", "set")].into_iter().collect();
        let paths = build(&metadata, &tensors).write_split(&dir.path().join("m.gguf"), limit).unwrap();
        let file = Gguf::open(&paths[pick.index(paths.len())]).unwrap();
        prop_assert_eq!(file.paths(), &paths);
        let mut found = file.metadata().clone();
        let count = found.remove("split.count").map_or(Some(1), |v| v.as_integer());
        prop_assert_eq!(count, Some(paths.len() as i128));
        prop_assert!(paths.len() <= tensors.len().max(1));
        let mut single = metadata.clone();
        for key in ["split.no", "split.tensors.count"] {
            found.remove(key);
            single.remove(key);
        }
        prop_assert_eq!(found, single);
        for (t, (spec, data)) in file.tensors().iter().zip(&tensors) {
            prop_assert_eq!(&t.name, &spec.name);
            prop_assert_eq!(file.data(t), data);
        }
        for (i, path) in paths.iter().enumerate() {
            let alone = file.tensors().iter().filter(|t| t.file == i).count() <= 1;
            prop_assert!(alone || std::fs::metadata(path).unwrap().len() <= limit);
        }
    }
}
